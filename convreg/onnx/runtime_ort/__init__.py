"""convreg inside onnxruntime: nodes in its memory, models in its sessions, graphs of which it runs a part."""
