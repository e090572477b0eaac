"""From any form of a model to the word that a run file has for it."""

from typing import Any

from edgefl.base.errors import ConfigError
from edgefl.learn.models.user_networks import called_plainly, copies, is_module, needs_nothing
from edgefl.learn.session_objects import Hold, place


def model_word(model: Any, hold: Hold) -> str:
    """The `task.model` that stands for it (Any: from outside)."""
    if isinstance(model, str):
        return model
    if is_module(model):
        return hold(type(model).__name__, copies(model))
    if not callable(model):
        raise ConfigError(f"model = {type(model).__name__}: give an nn.Module, what makes one, or a name of the zoo")
    word = str(getattr(model, "__name__", "model"))
    if needs_nothing(model):  # also where it could be told two things, which then mean something else
        return hold(word, called_plainly(model))
    return place(model) or hold(word, model)
