"""The calls of operators: arguments become a checked call, outputs are allocated, and the operator runs.

`function` makes the Python function of a declaration. `execution` runs calls that are given in a vendor's names, as
nodes of a graph are. Both check a call with `binding` and look up repeated ones in `repeated`.
"""
