"""What a model file says about itself: text by key in the metadata of `model.onnx`, for any runtime to read.

`onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map` gives the same. Lists are JSON.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgefl.base.errors import ConfigError, RemoteError
from edgefl.base.scores import beside
from edgefl.base.vector import Array, State
from edgefl.base.version import __version__
from edgefl.job.config.schema import RunFile
from edgefl.job.run.first_model import Origin
from edgefl.learn.tasks.form import PLAIN, Form, read
from edgefl.learn.tasks.kinds import checked
from edgefl.system.json_text import parse_json
from edgefl.wire.messages import Manifest


def card(
    run: RunFile,
    *,
    round: int,
    sha256: str,
    sample: Sequence[int],
    classes: int,
    class_names: Sequence[str] | None,
    targets: int = 1,
    target_names: Sequence[str] | None = None,
    scores: Mapping[str, Any],
    origin: Origin | None = None,
    normalise: State | None = None,
    form: Form = PLAIN,
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
        "targets": None if classes or form.kind else targets,
        "target_names": None if classes or target_names is None else list(target_names),
        **_units(normalise),
        "task": form.kind or None,
        "rows": form.described(),  # how its inputs and outputs are read as rows, where they are not plain
        "loss_function": run.task.loss,
        "data": run.task.data,
        "algorithm": run.algorithm["name"],
        "rounds": round,
        "seed": run.run.seed,
        "from": origin.source if origin else None,  # the model that the run began with, and which it was
        "from_sha256": origin.sha256 if origin else None,
        **beside(scores),
    }
    return {key: _text(value) for key, value in facts.items() if value not in (None, {})}


def own_card(
    manifest: Manifest, *, round: int, sha256: str, device: str, normalise: State, of: str = "own"
) -> dict[str, str]:
    """Return what a model of a device's own says about itself, by the manifest that the device trained it by."""
    form, classes, name = checked(manifest.form), manifest.classes, manifest.job
    facts: dict[str, Any] = {
        "name": name,
        "version": f"{name}-{round}-{of}-{sha256[:12]}",
        "edgefl_version": __version__,
        "model_sha256": sha256,
        "network": manifest.network,
        "input_shape": list(manifest.sample),
        "classes": classes or None,
        "class_names": list(manifest.class_names) or None,
        "targets": None if classes or form.kind else manifest.targets,
        "target_names": None if classes else list(manifest.target_names) or None,
        **_units(normalise),
        "task": form.kind or None,
        "rows": form.described(),
        "loss_function": manifest.loss,
        "data": f"the data of '{device}'",
        "algorithm": manifest.algorithm.get("name", "unknown"),
        "rounds": round,
        "seed": manifest.seed,
        "device": device,
    }
    return {key: _text(value) for key, value in facts.items() if value is not None}


def _units(normalise: State | None) -> dict[str, Any]:
    if not normalise:
        return {}
    return {
        "input_units": "raw: the file itself takes off the fleet's mean and divides by its deviation",
        "input_mean": _short(normalise["mean"]),
        "input_deviation": _short(1 / normalise["scale"]),
    }


def class_names(facts: Mapping[str, str]) -> tuple[str, ...] | None:
    """The names of the classes on a card, if it has them and they are what they should be."""
    return _names(facts, "class_names")


def target_names(facts: Mapping[str, str]) -> tuple[str, ...] | None:
    """The names of the real targets on a card, likewise."""
    return _names(facts, "target_names")


def rows(facts: Mapping[str, str]) -> Form:
    """How a model's inputs and outputs are read, by its card."""
    try:
        return checked(read(parse_json(facts["rows"]))) if "rows" in facts else PLAIN
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"the model's card has rows that cannot be read ({type(error).__name__})") from None
    except RemoteError as error:
        raise ConfigError(f"the model's card: {error}") from None


def is_regression(facts: Mapping[str, str], outputs: int) -> bool:
    """Return whether a model with this card and this number of outputs gives real numbers; one output always does."""
    return outputs == 1 or facts.get("targets") == str(outputs)


def _names(facts: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    try:
        names = parse_json(facts[key])
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


def _short(values: Array) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
