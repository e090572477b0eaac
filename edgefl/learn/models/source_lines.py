"""Which line of a model's own code an error comes from; lines inside of torch do not help its author."""

import sysconfig
from itertools import pairwise
from traceback import FrameSummary, extract_tb
from typing import TYPE_CHECKING

from edgefl.base.version import CODE

if TYPE_CHECKING:
    from torch.fx import Node

# Not where a model is written: Python's own library, this package, and torch.
_OTHERS = (sysconfig.get_paths()["stdlib"] + "/", str(CODE) + "/", "<")
_PACKAGES = ("/site-packages/", "/dist-packages/")
_LIBRARIES = ("/torch/", "/torchvision/", "/sympy/", "/numpy/")


def model_line(error: BaseException) -> str | None:
    """The innermost line of the model's code behind an error, or None if no such code was running."""
    frames = [frame for frame in extract_tb(error.__traceback__) if is_model_code(frame.filename)]
    return shown(frames[-1]) if frames else None


def is_model_code(file: str) -> bool:
    """Whether a file is likely to be a model's, and not a library's."""
    if any(folder in file for folder in _PACKAGES):  # a model may be installed as a package
        return not any(library in file for library in _LIBRARIES)
    return not file.startswith(_OTHERS)


def shown(frame: FrameSummary) -> str:
    """A line of code as messages write it."""
    return f"{frame.filename} line {frame.lineno} ({(frame.line or '').strip()})"


def reason(error: BaseException) -> str:
    """The first line of what an error says, with its kind where that tells more."""
    text = next(iter(str(error).splitlines()), "")
    if not text:
        return type(error).__name__
    return f"{type(error).__name__}: {text}" if isinstance(error, NameError | KeyError | AttributeError) else text


def source_line(node: "Node") -> str:
    """The model's line behind an operator; for one of the backward pass, the line whose results it reads."""
    waiting, seen = [node], set["Node"]()
    while waiting:
        current = waiting.pop(0)
        lines = [line.strip() for line in (current.meta.get("stack_trace") or "").splitlines()]
        frames = [
            (where, code)
            for where, code in pairwise(lines)
            if where.startswith("File ") and "onnx_export.py" not in where
        ]
        own = [frame for frame in frames if "/torch/" not in frame[0]]
        layers = [frame for frame in frames if "/torch/nn/modules/" in frame[0]]
        if own or layers:
            where, code = (own or layers)[-1]
            file, line, *_ = where.removeprefix("File ").split(", ")
            name = file.strip('"')
            return f"{name} {line} ({code})"
        seen.add(current)
        waiting.extend(n for n in reversed(current.all_input_nodes) if n not in seen)
    return "an unknown line"
