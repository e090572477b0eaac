"""The list of transforms that a run file declares; which lists are refused: edgefl/job/config/hiding.py."""

from typing import TYPE_CHECKING

from edgefl.job.transforms.coding import ErrorFeedback, coding
from edgefl.job.transforms.private import private_training
from edgefl.job.transforms.sealing import Sealing
from edgefl.job.transforms.transform import Transform
from edgefl.learn.contract import Algorithm
from edgefl.wire.codecs import Codec

if TYPE_CHECKING:
    from edgefl.job.config.schema import RunFile  # an agent does without it


def transforms_of(run: "RunFile") -> tuple[Transform, ...]:
    """Return the transforms of a run, in the order of the device."""
    from edgefl.job.transforms.update_bounds import UpdateBounds  # noqa: PLC0415 - an agent does without it

    caps = run.guards.caps()
    bounds = () if caps.off else (UpdateBounds(caps=caps),)
    seal = () if run.wire.seal is False else (Sealing(),)
    return (*bounds, *device_transforms(run.make_algorithm(), run.wire.up_codec()), *seal)


def device_transforms(algorithm: Algorithm, codec: Codec) -> tuple[Transform, ...]:
    """Return those that a device carries out where it trains, as its task's manifest has them."""
    return (*private_training(algorithm), ErrorFeedback(), coding(codec))
