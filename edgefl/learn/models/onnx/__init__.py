"""How a module becomes ONNX graphs: trace it with its gradient, translate each operator, cut the graph in two."""
