"""Which names the graphs of a bundle may bind, and what each of them is: by the layout, the sample and the batch.

A graph may ask for less than it is offered, never for anything else. Gradients may be missing, they are zero then; what
else is expected must be there.
"""

from collections.abc import Iterable, Mapping

from edgefl.errors import RemoteError
from edgefl.models.onnx.bundle import Bundle
from edgefl.models.onnx_file import FLOAT, INT64
from edgefl.models.onnx_guard import Signature, verify
from edgefl.models.onnx_values import Known

RESULTS = {"forward": "logits", "training": "logits", "input_gradient": "dx"}  # what callers get
OURS = ("w.", "new.", "grad.", "mask.")
RESERVED = ("x", "dz", "dx", "logits")


class Bindings:
    """The graphs of a bundle, each checked for each batch size that it is used with."""

    def __init__(self, bundle: Bundle, limit: int, outputs: int | None = None) -> None:
        """`limit` is the memory in bytes that a graph may need; `outputs` how many a sample has, if that is known."""
        self._bundle, self._limit, self._outputs = bundle, limit, outputs
        layout = bundle.layout
        tensors = {name: Known(FLOAT, tuple(shape)) for name, shape in zip(layout.names, layout.shapes, strict=True)}
        if len(tensors) != len(layout.names):
            raise RemoteError("model.layout", "the layout names a tensor twice")
        trained = len(layout.names) - layout.buffers
        self._weights = {f"w.{name}": value for name, value in tensors.items()}
        self._gradients = {f"grad.{name}": tensors[name] for name in layout.names[:trained]}
        self._statistics = {f"new.{name}": tensors[name] for name in layout.names[trained:]}
        self._known: dict[tuple[str, int], Signature] = {}

    def signature(self, graph: str, batch: int) -> Signature:
        """What a graph binds for a batch of this size; RemoteError if it must not run."""
        if (graph, batch) not in self._known:
            self._known[graph, batch] = self._check(graph, batch)
        return self._known[graph, batch]

    def handed(self, graph: str, batch: int) -> dict[str, Known]:
        """What a training graph hands over to its pullback."""
        outputs = self.signature(graph, batch).outputs
        return {name: value for name, value in outputs.items() if name != "logits" and name not in self._statistics}

    def _check(self, graph: str, batch: int) -> Signature:
        kind, single = graph.removeprefix("single_"), graph.startswith("single_")
        ahead = {"backward": f"{'single_' if single else ''}training", "input_gradient": "forward"}.get(kind)
        offered = {**self._weights, "x": self._input(batch)}
        if kind in ("training", "backward") and not single:
            offered |= self._masks(batch)
        if ahead:
            offered["dz"] = self.signature(ahead, batch).outputs["logits"]
        if kind == "backward" and ahead:
            offered |= self.handed(ahead, batch)
        signature = verify(getattr(self._bundle, graph), offered, self._weights, batch=batch, limit=self._limit)
        if kind == "backward":
            _same(signature.outputs, self._gradients, ())
            return signature
        expected = {RESULTS[kind]: self._result(kind, batch, signature)}
        expected |= self._statistics if graph == "training" else {}
        others = signature.outputs.keys() - expected.keys()
        if kind == "training":
            bad = next((name for name in others if name in RESERVED or name.startswith(OURS)), None)
            others = {bad} if bad else set()
        _same({n: v for n, v in signature.outputs.items() if n in expected or n in others}, expected, expected)
        return signature

    def _input(self, batch: int) -> Known:
        return Known(INT64 if self._bundle.dtype == "int64" else FLOAT, (batch, *self._bundle.shape))

    def _masks(self, batch: int) -> dict[str, Known]:
        masks = {}
        for mask in self._bundle.masks:
            if not mask.name.startswith("mask.") or mask.name in masks:
                raise RemoteError("model.binding", f"the mask '{mask.name}' is there twice, or is none")
            masks[mask.name] = Known(FLOAT, tuple(-d * batch if d < 0 else d for d in mask.shape))
        return masks

    def _result(self, kind: str, batch: int, signature: Signature) -> Known:
        """Outputs have a row for each sample; how many there are in a row, only the job knows."""
        if kind == "input_gradient":
            return self._input(batch)
        logits = signature.outputs.get("logits", Known(FLOAT, ()))
        if self._outputs is not None:
            return Known(FLOAT, (batch, self._outputs))
        return Known(FLOAT, (batch, *logits.shape[1:]))


def _same(given: Mapping[str, Known], expected: Mapping[str, Known], needed: Iterable[str]) -> None:
    for name in needed:
        if name not in given:
            raise RemoteError("model.binding", f"the graph does not give '{name}'")
    for name, value in given.items():
        known = expected.get(name)
        if known is None or (value.type, value.shape) != (known.type, known.shape):
            raise RemoteError(
                "model.binding",
                f"the graph gives '{name}' of type {value.type} and shape {value.shape},"
                f" {'which is no part of the model' if known is None else f'expected was {known.shape}'}",
            )
