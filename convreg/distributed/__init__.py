"""Work on many machines, with the bits of one: Dask moves and repeats it, convreg says what a task is.

Dask is imported when work is given to a cluster, never before: it is the extra ``convreg[distributed]``.
"""
