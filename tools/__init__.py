"""What a person runs: the command line, and readers that turn other frameworks' files into ONNX models."""
