"""ONNX schemas of our operators, and shape inference: of our nodes, and of whole models without what ends onnx's."""
