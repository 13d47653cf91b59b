"""Programs for users: the command line, the importers and exporters, and the benchmark."""
