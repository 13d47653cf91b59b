"""Nodes of ours rewritten: to standard ONNX, to function bodies, and to other dialects."""
