"""Which names the graphs of a bundle may bind, and what each of them is: by the layout, the sample and the batch.

A graph may ask for less than it is offered, never for anything else. Gradients may be missing, they are zero then; what
else is expected must be there.
"""

from collections.abc import Iterable, Mapping

from edgefl.base.errors import RemoteError
from edgefl.learn.models.onnx.bundle import Bundle
from edgefl.learn.models.onnx_file import FLOAT, INT64, OnnxGraph, read_file
from edgefl.learn.models.onnx_guard import Signature, verify
from edgefl.learn.models.onnx_values import ValueType

RESULTS = {"forward": "logits", "training": "logits", "input_gradient": "dx"}  # what callers get
OURS = ("w.", "frozen.", "new.", "grad.", "mask.")
RESERVED = ("x", "dz", "dx", "logits")


class Bindings:
    """The graphs of a bundle, each checked for each batch size that it is used with."""

    def __init__(self, bundle: Bundle, limit: int, outputs: int | None = None) -> None:
        """`limit` is the memory in bytes that a graph may need; `outputs` how many a sample has, if that is known."""
        self._bundle, self._limit, self._outputs = bundle, limit, outputs
        layout = bundle.layout
        tensors = {
            name: ValueType(FLOAT, tuple(shape)) for name, shape in zip(layout.names, layout.shapes, strict=True)
        }
        if len(tensors) != len(layout.names):
            raise RemoteError("model.layout", "the layout names a tensor twice")
        trained = len(layout.names) - layout.buffers
        self._weights = {f"w.{name}": value for name, value in tensors.items()}
        self._frozen = {f"frozen.{name}": ValueType(FLOAT, array.shape) for name, array in bundle.frozen.items()}
        self._gradients = {f"grad.{name}": tensors[name] for name in layout.names[:trained]}
        self._statistics = {f"new.{name}": tensors[name] for name in layout.names[trained:]}
        self._trained = layout.names[:trained]
        self._files: dict[str, OnnxGraph] = {}
        self._known: dict[tuple[str, int, int], Signature] = {}

    def signature(self, graph: str, batch: int, steps: int = 1) -> Signature:
        """Return what a graph binds for this number of batches; raise `RemoteError` if it must not run."""
        if (graph, batch, steps) not in self._known:
            check = self._descent(batch, steps) if graph == "descent" else self._check(graph, batch)
            self._known[graph, batch, steps] = check
        return self._known[graph, batch, steps]

    def handed(self, graph: str, batch: int) -> dict[str, ValueType]:
        """What a training graph hands over to its pullback."""
        outputs = self.signature(graph, batch).outputs
        return {name: value for name, value in outputs.items() if name != "logits" and name not in self._statistics}

    def _check(self, graph: str, batch: int) -> Signature:
        kind, single = graph.removeprefix("single_"), graph.startswith("single_")
        ahead = {"backward": f"{'single_' if single else ''}training", "input_gradient": "forward"}.get(kind)
        steady = self._weights | self._frozen
        offered = {**steady, "x": self._input(batch)}
        if kind in ("training", "backward") and not single:
            offered |= self._masks(batch)
        if ahead:
            offered["dz"] = self.signature(ahead, batch).outputs["logits"]
        if kind == "backward" and ahead:
            offered |= self.handed(ahead, batch)
        signature = verify(self._file(graph), offered, steady, batch=batch, limit=self._limit)
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

    def _descent(self, batch: int, steps: int) -> Signature:
        """A graph of whole steps: what it makes of the weights must be all of them, each in its shape."""
        plan, outputs = self._bundle.plan, self._bundle.outputs
        if plan is None or self._outputs not in (None, outputs):
            raise RemoteError("model.binding", f"whole steps for {outputs} outputs, expected are {self._outputs}")
        weights = {name[2:]: value for name, value in self._weights.items()}
        velocities = self._trained if "momentum" in plan.terms else ()
        anchors = self._trained if "pull" in plan.terms else ()
        states = {f"from.{name}": value for name, value in weights.items()}
        states |= {f"velocity_from.{name}": weights[name] for name in velocities}
        fixed = {f"anchor.{name}": weights[name] for name in anchors}
        x, classes = self._input(batch), plan.loss != "squared_error"
        offered = {
            **states,
            **fixed,
            **self._frozen,
            **dict.fromkeys(("gain", *plan.terms), ValueType(FLOAT, ())),
            **self._masks(batch),
            "xs": ValueType(x.type, (steps, *x.shape)),
            "ys": ValueType(INT64, (steps, batch)) if classes else ValueType(FLOAT, (steps, batch, outputs)),
        }
        steady = {*states, *fixed, *self._frozen, "gain", *plan.terms}
        signature = verify(self._file("descent"), offered, steady, batch=batch, limit=self._limit, steps=steps)
        expected = {f"to.{name}": value for name, value in weights.items()}
        expected |= {f"velocity_to.{name}": weights[name] for name in velocities}
        expected["losses"] = ValueType(FLOAT, (steps,))
        _same(signature.outputs, expected, expected)
        return signature

    def _file(self, graph: str) -> OnnxGraph:
        """The graph, read once: it is checked for each size that it is used with."""
        if graph not in self._files:
            self._files[graph] = read_file(getattr(self._bundle, graph))
        return self._files[graph]

    def _input(self, batch: int) -> ValueType:
        return ValueType(INT64 if self._bundle.dtype == "int64" else FLOAT, (batch, *self._bundle.shape))

    def _masks(self, batch: int) -> dict[str, ValueType]:
        masks = {}
        for mask in self._bundle.masks:
            if not mask.name.startswith("mask.") or mask.name in masks:
                raise RemoteError("model.binding", f"the mask '{mask.name}' is there twice, or is none")
            masks[mask.name] = ValueType(FLOAT, tuple(-d * batch if d < 0 else d for d in mask.shape))
        return masks

    def _result(self, kind: str, batch: int, signature: Signature) -> ValueType:
        """Outputs have a row for each sample; how many there are in a row, only the job knows."""
        if kind == "input_gradient":
            return self._input(batch)
        logits = signature.outputs.get("logits", ValueType(FLOAT, ()))
        if self._outputs is not None:
            return ValueType(FLOAT, (batch, self._outputs))
        return ValueType(FLOAT, (batch, *logits.shape[1:]))


def _same(given: Mapping[str, ValueType], expected: Mapping[str, ValueType], needed: Iterable[str]) -> None:
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
