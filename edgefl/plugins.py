"""What authors of algorithms, stages, selections, codecs, losses and data sources import, under one stable name.

    algorithms     Algorithm, LocalTraining, and what `plan`, `train` and `stages` take and give
    stages         Stage, Draft, and the stages that others are made of: Mean, Scale, Clip, Momentum
    selections     Selection, Candidate
    codecs         Codec
    losses         Loss, and those that others are made of: cross_entropy, ...
    data sources   Source, Dataset
    models         lora, merged

Modules below `edgefl` may move between versions; these names stay. Importing this module never imports torch: devices
import it too. `lora` and `merged` need torch, and are imported when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgefl.base.errors import ConfigError, Diverged, RunError, WireError
from edgefl.base.schedule import Purpose
from edgefl.base.vector import Array, Layout, State, Vector, dot, norm
from edgefl.learn.aggregation import Clip, Mean, Momentum, Scale, mean
from edgefl.learn.contract import (
    STRICT,
    Algorithm,
    Budget,
    Counts,
    Draft,
    Fitting,
    Noise,
    Outvoting,
    Personal,
    Seen,
    Site,
    Stage,
    Task,
    Traits,
    Update,
)
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.source import Source
from edgefl.learn.losses import Loss, binary_cross_entropy, cross_entropy, log_softmax, mean_squared_error, softmax
from edgefl.learn.models.base import Model
from edgefl.learn.models.rule import Rule
from edgefl.learn.privacy.noise import Mechanism, Objective, Output, Price
from edgefl.learn.privacy.private import Private
from edgefl.learn.products import Products, Rows
from edgefl.learn.selection.base import Candidate, Kind, Selection
from edgefl.learn.tasks.fields import Field as FormField  # pydantic's Field is used beside it
from edgefl.learn.tasks.form import Form
from edgefl.learn.training.local import LocalTraining
from edgefl.learn.training.optimisers import Move, Optimiser
from edgefl.learn.training.projection import Projection, project
from edgefl.learn.training.rates import Rates
from edgefl.learn.training.walking import Sgd, Step, Walked, gradient, loss_gradient, walk
from edgefl.wire.codecs import Codec

if TYPE_CHECKING:
    from edgefl.learn.models.lora import lora, merged

__all__ = [
    "STRICT",
    "Algorithm",
    "Array",
    "Budget",
    "Candidate",
    "Clip",
    "Codec",
    "ConfigError",
    "Counts",
    "Dataset",
    "Diverged",
    "Draft",
    "Fitting",
    "Form",
    "FormField",
    "Kind",
    "Layout",
    "LocalTraining",
    "Loss",
    "Mean",
    "Mechanism",
    "Model",
    "Momentum",
    "Move",
    "Noise",
    "Objective",
    "Optimiser",
    "Output",
    "Outvoting",
    "Personal",
    "Price",
    "Private",
    "Products",
    "Projection",
    "Purpose",
    "Rates",
    "Rows",
    "Rule",
    "RunError",
    "Scale",
    "Seen",
    "Selection",
    "Sgd",
    "Site",
    "Source",
    "Stage",
    "State",
    "Step",
    "Task",
    "Traits",
    "Update",
    "Vector",
    "Walked",
    "WireError",
    "binary_cross_entropy",
    "cross_entropy",
    "dot",
    "gradient",
    "log_softmax",
    "lora",
    "loss_gradient",
    "mean",
    "mean_squared_error",
    "merged",
    "norm",
    "project",
    "softmax",
    "walk",
]


def __getattr__(name: str) -> Any:  # Any: a function of a module that needs torch
    """Return `lora` or `merged`, imported now."""
    if name in {"lora", "merged"}:
        return getattr(import_module("edgefl.learn.models.lora"), name)
    raise AttributeError(f"module 'edgefl.plugins' has no attribute '{name}'")
