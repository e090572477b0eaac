"""What a model file says about itself: text by key in the metadata of `model.onnx`, for any runtime to read.

`onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map` gives the same. Lists are JSON.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgefl import __version__
from edgefl.config.schema import RunFile


def card(
    run: RunFile,
    *,
    round: int,
    sha256: str,
    sample: Sequence[int],
    classes: int,
    class_names: Sequence[str] | None,
    scores: Mapping[str, Any],
) -> dict[str, str]:
    """Name, version, what goes in and comes out, and how it was trained; what is not known is not there."""
    facts: dict[str, Any] = {
        "name": run.run.name,
        "version": f"{run.run.name}-{round}-{sha256[:12]}",
        "edgefl_version": __version__,
        "model_sha256": sha256,
        "network": run.task.model,
        "input_shape": list(sample),  # of one sample, without the batch
        "classes": classes or None,
        "class_names": None if class_names is None else list(class_names),
        "loss_function": run.task.loss,
        "data": run.task.data,
        "algorithm": run.algorithm["name"],
        "rounds": round,
        "seed": run.run.seed,
        **scores,
    }
    return {key: _text(value) for key, value in facts.items() if value is not None}


def class_names(facts: Mapping[str, str]) -> tuple[str, ...] | None:
    """The names of the classes on a card, if it has them and they are what they should be."""
    try:
        names = json.loads(facts["class_names"])
    except (KeyError, ValueError):
        return None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def line(facts: Mapping[str, str]) -> str:
    """A card in one line for people; empty if it is none of ours."""
    if "version" not in facts or "algorithm" not in facts:
        return ""
    scored = f", accuracy {float(facts['accuracy']):.1%}" if _is_number(facts.get("accuracy")) else ""
    scored += f", RMSE {float(facts['rmse']):.4g}" if _is_number(facts.get("rmse")) else ""
    names = class_names(facts)
    known = f", classes {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}" if names else ""
    how = f"{facts['algorithm']}, {facts.get('rounds', '?')} rounds on {facts.get('data', 'data of its devices')}"
    return f"{facts['version']}: {how}{scored}, input {facts.get('input_shape', '?')}{known}"


def _is_number(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
