"""convreg inside onnxruntime: nodes on its memory, and models in its sessions."""
