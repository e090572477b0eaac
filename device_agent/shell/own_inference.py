"""The device's own model at work, on the device: opened from its folder, judged, asked, and written as ONNX.

It runs as it was trained: on PyTorch where the device trains with it, otherwise on onnxruntime. The graphs that the
coordinator sent are checked again as if they had just arrived. Nothing is connected, and nothing leaves the device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from device_agent.durable.own_models import OwnModels, StoredOwnModel
from device_agent.shell.backends import GRAPHS_LIMIT, maker
from edgefl.base.errors import ConfigError, EdgeflError, RemoteError, StoreError, nearest
from edgefl.base.vector import Array, State, Vector
from edgefl.delivery.card import own_card
from edgefl.delivery.deploy import save_onnx
from edgefl.delivery.deployed import check_shape
from edgefl.delivery.probe import made_up
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.run.first_model import digest
from edgefl.job.run.statistics import raw_units
from edgefl.job.run.work import OWN, SHARED
from edgefl.learn.models.base import Model
from edgefl.learn.models.onnx.bundle import Bundle, unpack
from edgefl.learn.tasks.form import Form
from edgefl.learn.tasks.kinds import checked
from edgefl.system.disk import FolderDisk
from edgefl.wire.messages import GRAPHS, read


@dataclass(frozen=True, slots=True)
class OwnModel:
    """A model from the device's folder: its own, or the shared one that it last received in the same run."""

    path: Path
    card: Mapping[str, str]
    form: Form
    sample: tuple[int, ...]
    outputs: int
    dtype: type[np.generic]
    model: Model
    params: Vector
    bundle: Bundle | None  # the graphs that it runs on; None: PyTorch runs it
    kept: StoredOwnModel

    def logits(self, x: Array) -> Array:
        """The outputs for all of `x`."""
        check_shape(self, x)
        try:
            return self.model.logits(self.params, np.ascontiguousarray(x, self.dtype))
        except RemoteError as error:  # graphs are checked when they are first needed
            raise ConfigError(f"{self.path}: refused, {error.code}: {error}") from None


def open_own(file: AgentFile, run: str | None = None) -> tuple[OwnModel, OwnModel]:
    """Return the device's own model of this run, or of its newest one, and the shared model it was made of."""
    models = OwnModels(FolderDisk(file.agent.folder.expanduser() / file.agent.id))
    run_key = _chosen(models, run)
    path = Path(models.where(run_key))
    try:
        kept = models.read(run_key)
        form, bundle = checked(kept.manifest.form), _bundle(kept)
        bare = maker(file.compute)(kept.manifest, kept.graphs)
    except StoreError as error:
        raise ConfigError(str(error)) from None
    except EdgeflError as error:
        raise ConfigError(f"{path}: {error}") from None
    known: State = {key: kept.arrays[key] for key in ("mean", "scale") if key in kept.arrays}
    model, manifest = raw_units(bare, known), kept.manifest
    kind = (np.int64 if bundle.dtype == "int64" else np.float32) if bundle else _kind(bare, manifest.sample)

    def of(which: str) -> OwnModel:
        params = kept.arrays[which]
        card = own_card(
            manifest, round=kept.round, sha256=digest(params), device=file.agent.id, normalise=known, of=which
        )
        what = form, manifest.sample, manifest.outputs, kind, model, params, bundle, kept
        return OwnModel(path, card, *what)

    return of(OWN), of(SHARED)


def export(own: OwnModel, out: Path) -> float:
    """Write the model as one ONNX file, for its owner alone; return how far it is from the model, which is little."""
    if out.suffix != ".onnx" or out.is_dir():
        raise ConfigError(f"{out}: only ONNX can be written; name it e.g. {out.with_suffix('.onnx').name}")
    x = made_up(own.model, own.sample, tokens=own.dtype is np.int64)
    bundle = own.bundle or _exported(own, x)
    return save_onnx(out, bundle, own.model, own.params, x=x, facts=own.card, form=own.form)


def _chosen(models: OwnModels, run: str | None) -> str:
    """The key of the run that is meant: by its name the newest that was called so."""
    runs = models.runs()
    if not runs:
        raise ConfigError(
            f"{models.where()}: holds no model of this device's own; a run of fedper, fedrep, fedbn, ditto or pfedme"
            " leaves one as soon as an update of this device was taken (agent.own_models says how many are kept)"
        )
    names = {key.rpartition(".")[0]: key for key in reversed(runs)} | {key: key for key in runs}
    if run is not None and run not in names:
        known = sorted({key.rpartition(".")[0] for key in runs})
        raise ConfigError(f"--run {run}: this device has no model of its own of that run; {nearest(run, known)}")
    return runs[0] if run is None else names[run]


def _bundle(kept: StoredOwnModel) -> Bundle | None:
    if kept.graphs is None:
        return None
    _, opened = read(GRAPHS, kept.graphs, GRAPHS_LIMIT)
    return unpack(bytes(opened.body))


def _kind(model: Model, sample: tuple[int, ...]) -> type[np.generic]:
    """What a network of PyTorch reads."""
    from edgefl.learn.models.torch_backend import TorchModel  # noqa: PLC0415 - only with PyTorch

    return np.int64 if isinstance(model, TorchModel) and model.reads_tokens(sample) else np.float32


def _exported(own: OwnModel, x: Array) -> Bundle:
    """The graphs of a network that PyTorch runs here."""
    from edgefl.job.run.network import export_graphs  # noqa: PLC0415 - as above

    manifest = own.kept.manifest
    what = manifest.network, manifest.sample, manifest.outputs, manifest.seed
    return unpack(export_graphs(*what, like=x, form=own.form))
