"""Rules for rectifiers. What follows a large dense layer works on its transpose.

A matrix product copies its right factor into another order before it multiplies. With the samples of a mini-batch on
the left that is the weights: for 32 samples a sixth of the time. So the layer is multiplied the other way round, with
its result transposed; the rectifier, its gradient and the next products take it as it lies (`Graph.turned`), and
whatever else comes finds a Transpose.
"""

from edgefl.learn.models.onnx.graph import ONNX_TYPES, Graph, Value
from edgefl.learn.models.onnx.operators_pool import to_first
from edgefl.learn.models.onnx.rules import aten, on
from edgefl.learn.models.onnx.sizes import static

LARGE = 2**15  # weights of a layer from which on it pays


@on(aten.relu.default)
def _relu(g: Graph, x: Value) -> str:
    turned = _turned_product(g, x) if g.dense.get(x.name, 0) >= LARGE else None
    return g("Relu", x) if turned is None else g("Transpose", g("Relu", turned), perm=[1, 0])


@on(aten.threshold_backward.default)
def _threshold_backward(g: Graph, dy: Value, y: Value, threshold: float) -> str:
    """The gradient of a rectifier; where a maximum follows, only what the maximum chose needs its mask."""
    if dy.name in g.pooled and g.pooled[dy.name][1].name == y.name:
        dz, x, z, kernel = g.pooled[dy.name]
        masked = Value(_masked(g, dz.name, z, threshold), dz.fake)
        return to_first(g, masked, x, z, kernel)
    if y.ndim == 2 and (turned := g.turned(y)):
        dy_turned = g.turned(dy) or _turned_product(g, dy) or g("Transpose", dy, perm=[1, 0])
        return g("Transpose", _masked(g, dy_turned, Value(turned, y.fake.t()), threshold), perm=[1, 0])
    return _masked(g, dy.name, y, threshold)


def _masked(g: Graph, dy: str, y: Value, threshold: float) -> str:
    return g("Mul", dy, g("Cast", g("Greater", y, g.constant(threshold, y.dtype)), to=ONNX_TYPES[y.dtype]))


def _turned_product(g: Graph, x: Value) -> str | None:
    """The transpose of what a dense layer gives, or its gradient: the factors in the other order, each transposed."""
    if x.name not in g.dense:
        return None
    (a, b, *bias), attributes = g.makers[x.name].inputs, dict(g.makers[x.name].attributes)
    flags = {"transA": 1 - attributes.pop("transB", 0), "transB": 1 - attributes.pop("transA", 0)}
    column = [g("Reshape", row, g.constant([static(x.shape[1]), 1])) for row in bias]
    return g("Gemm", b, a, *column, **attributes, **flags)
