"""Training steps divided among processes: the same step, cut where the samples of the batch meet.

A step model is specialised to the extents of a batch (`specialised`). Every node is asked whether rows of its results
depend on the same rows of its operands alone (`splits`, `separable`, `windows`). What does runs on each shard of the
batch, what does not runs once on whole operands (`plan`, `units`). The units are tasks (`work`), executed in this
process or by Dask (`executors`), and `steps` has the interface of one carried session.
"""
