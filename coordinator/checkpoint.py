"""The model and every stage's state on disk, after each round."""

from pathlib import Path

import numpy as np

from edgefl import store
from edgefl.job import Course, Job
from edgefl.vector import State

NAME = "checkpoint.safetensors"


def save(folder: Path, job: Job, course: Course) -> Path:
    """Write where the job stands."""
    arrays: State = {"params": course.params}
    if course.previous is not None:
        arrays["previous"] = course.previous
    for stage, state in course.states.items():
        arrays |= {f"stage/{stage}/{key}": np.asarray(value) for key, value in state.items()}
    about = {
        "round": course.round,
        "best": course.best,
        "reached": course.reached,
        "sha256": course.sha256(),
        "run": job.run.model_dump(mode="json"),
        "layout": {
            "names": job.model.layout.names,
            "shapes": job.model.layout.shapes,
            "buffers": job.model.layout.buffers,
        },
        "sample": job.sample,
        "classes": job.classes,
    }
    path = folder / NAME
    store.save(path, arrays, about)
    return path
