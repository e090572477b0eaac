"""The `[compute]` table of an agent file, which is all that a box knows of that file."""

from typing import Annotated, Literal

from pydantic import Field

from edgefl.job.config.section import Section


class LocalCompute(Section):
    """What this device computes with."""

    backend: Literal["auto", "torch", "onnx"] = "auto"  # auto: torch only for jobs that bring no graphs
    device: Literal["auto", "cpu", "cuda"] = "cpu"  # cuda needs the backend torch
    threads: Annotated[int, Field(ge=1)] = 1  # of the processor
    memory_mb: Annotated[int, Field(ge=1)] = 1024  # what training may need here; a larger graph is declined
    box: bool = True  # graphs run in a process that can do nothing else; False: in the agent's own
    task_seconds: Annotated[float, Field(gt=0)] = 21_600  # after so long a task is given up, whatever became of it
    # "package.module:name" that a job may name: networks (with torch), algorithms, losses, codecs. Ours it always may.
    factories: tuple[str, ...] = ()
