"""From the `model` of a run file to a working back-end. Importable without torch; building needs it."""

import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.base.errors import CodeRefused, ConfigError, EdgeflError, nearest
from edgefl.base.vector import Vector
from edgefl.learn.models import processor
from edgefl.learn.models.source_lines import model_line, reason
from edgefl.learn.models.torch_imports import door
from edgefl.learn.session_objects import shown
from edgefl.learn.tasks.fields import in_words
from edgefl.learn.tasks.form import PLAIN, Form
from edgefl.learn.tasks.kinds import KINDS
from edgefl.system import user_code

if TYPE_CHECKING:
    from torch import nn

    from edgefl.learn.models.torch_backend import TorchModel


def build(
    model: str,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    *,
    threads: int = 1,
    device: str = "auto",
    form: Form = PLAIN,
    labels: str = "",
) -> tuple["TorchModel", Vector]:
    """The back-end and its first weights, the same for the same seed; tried once on a made-up batch.

    `labels` explains the expected number of outputs in the error message.
    """
    module = build_module(model, shape, classes, seed, form)
    backend = door("torch_backend")
    built: TorchModel = backend.TorchModel(module, threads=threads, device=processor.chosen(device))
    params: Vector = backend.initial_params(module)
    takes = f"inputs {in_words(form.inputs)}" if form.inputs else f"samples of shape {shape}"
    _try(f"model '{shown(model)}' on {takes}", built, params, shape, max(classes, 1), labels)
    return built, params


def build_module(model: str, shape: tuple[int, ...], classes: int, seed: int, form: Form = PLAIN) -> "nn.Module":
    """The network itself, freshly initialised: a zoo name, or the result of a "package.module:factory".

    With `classes` 0 the target is one real number, so the network gets one output. One of a `form` takes and gives
    rows; its factory is told the shapes of its inputs by name where there are several, and what its outputs are.
    """
    backend = door("torch_backend")
    torch = backend.torch
    backend.use_threads(1)  # some initial values (orthogonal ones) are solutions of linear systems
    outputs = KINDS[form.kind].asked(form) if form.kind else max(classes, 1)
    taken = {field.name: field.shape for field in form.inputs} if form.inputs else shape
    factory = _factory(model)
    try:
        with torch.random.fork_rng(devices=[]), _other_generators(seed):
            torch.manual_seed(seed % 2**63)
            built = factory(taken, outputs) if _takes_two(factory) else factory()
    except EdgeflError:
        raise
    except Exception as error:
        if _is_torchvision(error):  # imported inside the factory
            door("torchvision_import").import_torchvision()
            return build_module(model, shape, classes, seed, form)
        if (where := model_line(error)) is None:
            raise  # it is our own
        raise ConfigError(f"model '{shown(model)}': its factory fails at {where}: {reason(error)}") from error
    if not isinstance(built, torch.nn.Module):
        raise ConfigError(f"model '{shown(model)}' gave {type(built).__name__}, not a torch nn.Module")
    module: nn.Module = door("torch_rows").on_rows(built, form) if form.known else built
    return module


def made_without_memory(
    model: str, shape: tuple[int, ...], classes: int, seed: int, form: Form = PLAIN
) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of the tensors in a network's flat vector, without memory for their numbers.

    None, if it cannot be made so (on torch's device "meta"): a factory may look at numbers.
    """
    backend = door("torch_backend")
    try:
        with backend.torch.device("meta"):
            module = build_module(model, shape, classes, seed, form)
    except CodeRefused:
        raise
    except Exception:  # noqa: BLE001 - whatever it is, making it really says so
        return None
    params, statistics = backend.tensors_of(module)
    return {name: tuple(tensor.shape) for name, tensor in (params | statistics).items()}


@contextmanager
def _other_generators(seed: int) -> Iterator[None]:
    """The global generators of Python and of numpy follow the seed inside the block, and are left as they were."""
    before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


# Any: the factory is the user's; what it gives back is checked.
def _factory(model: str) -> Callable[..., Any]:
    zoo: dict[str, Callable[..., Any]] = door("zoo").ZOO
    if model in zoo:
        return zoo[model]
    package, colon, name = model.partition(":")
    if not colon:
        raise ConfigError(
            f"unknown model '{model}'; {nearest(model, zoo)}, or give 'package.module:factory'", free_of_data=True
        )
    factory = getattr(_import(model, package), name, None)
    if factory is None:
        known = [n for n, v in vars(sys.modules[package]).items() if callable(v) and not n.startswith("_")]
        raise ConfigError(f"model '{model}': {package} has no '{name}'; {nearest(name, known)}")
    if not callable(factory):
        raise ConfigError(f"model '{model}': {name} is of type {type(factory).__name__}, not a function or class")
    module = door("torch_backend").torch.nn.Module
    if not (issubclass(factory, module) if isinstance(factory, type) else user_code.is_function(factory)):
        raise ConfigError(f"model '{model}': {name} makes no network; name a function or a torch nn.Module")
    return factory  # type: ignore[no-any-return]  # callable, which is all we can know


def _import(model: str, package: str) -> ModuleType:
    try:
        try:
            return user_code.import_module(model, "task.model")
        except (RuntimeError, ImportError) as e:
            if not _is_torchvision(e):
                raise
            door("torchvision_import").import_torchvision()
            return user_code.import_module(model, "task.model")
    except (ImportError, SyntaxError, ValueError) as e:  # ValueError: an empty or relative name
        where = f" at {line}" if (line := model_line(e)) else ""
        raise ConfigError(f"model '{model}': cannot import '{package}'{where}: {reason(e)}") from e


def _takes_two(factory: Callable[..., Any]) -> bool:
    try:
        signature(factory).bind((1,), 1)
    except (TypeError, ValueError):  # ValueError: written in C, without a signature
        return False
    return True


def _try(  # noqa: PLR0917 - a network, what it is given, and what it should give
    what: str, built: "TorchModel", w: Vector, shape: tuple[int, ...], outputs: int, labels: str
) -> None:
    """One step forward and back on two made-up samples: what cannot work says so here, not in round one."""
    x = np.zeros((2, *shape), np.int64 if built.reads_tokens(shape) else np.float32)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what cannot work, an error is enough
            z, pullback = built.vjp(w, x)
            if z.shape == (2, outputs):
                pullback(z)
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError) as e:
        where = f" at {line}" if (line := model_line(e)) else ""
        raise ConfigError(f"{what} fails{where}: {reason(e)}") from e
    if z.shape != (2, outputs):
        squeezed = z.shape == (2,) and outputs == 1
        why = "leave the squeeze or the flatten out" if squeezed else labels
        raise ConfigError(f"{what}: a batch of 2 gives {z.shape}, expected {(2, outputs)}{why and f'; {why}'}")


def _is_torchvision(error: BaseException) -> bool:
    """Whether torchvision was imported beside a CPU torch, without our help, perhaps by another package.

    With our help the next import works.
    """
    if isinstance(error, RuntimeError) and "torchvision::" in str(error):
        return True
    return error.__cause__ is not None and _is_torchvision(error.__cause__)
