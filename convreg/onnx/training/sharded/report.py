"""What one divided step took, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .assembly import Division
from .executors import Ran

KINDS = ("sum", "join", "whole", "shard")
"""The order of work within a stage."""


@dataclass(frozen=True)
class StageReport:
    """The tasks of one kind in one stage.

    Attributes
    ----------
    stage : int
    kind : {"sum", "join", "whole", "shard"}
        Sums of pieces that need more than one shard, sums joined, nodes on whole operands, nodes on shards.
    tasks : int
    seconds : float
        Of all tasks together, without waiting and moving.
    longest : float
        Of the task that took longest.
    moved : int
        Bytes that came from the client or from other workers.
    made : int
        Bytes of results that other tasks or the client read.
    """

    stage: int
    kind: str
    tasks: int
    seconds: float
    longest: float
    moved: int
    made: int


@dataclass(frozen=True)
class StepReport:
    """What a step took.

    Attributes
    ----------
    before, workers, after : float
        Seconds in the client's process before the tasks, until all tasks were done, and for the update.
    shards : int
        How many shards the batch was divided into.
    stages : tuple of StageReport
    """

    before: float
    workers: float
    after: float
    shards: int
    stages: tuple[StageReport, ...]

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return self.before + self.workers + self.after

    @property
    def moved(self) -> int:
        """Bytes that moved between processes before tasks."""
        return sum(stage.moved for stage in self.stages)

    def __str__(self) -> str:
        """A table of the stages."""
        lines = [f"{self.seconds:.3f} s: {self.before:.3f} before, {self.workers:.3f} on workers, {self.after:.3f} "
                 f"after; {self.shards} shards", "stage  kind   tasks  seconds  longest   moved MB    made MB"]
        lines += [f"{row.stage:5}  {row.kind:5}  {row.tasks:5}  {row.seconds:7.3f}  {row.longest:7.3f}  "
                  f"{row.moved / 1e6:9.2f}  {row.made / 1e6:9.2f}" for row in self.stages]
        return "\n".join(lines)


def reported(division: Division, ran: Iterable[Ran], took: tuple[float, float, float]) -> StepReport:
    """Return what a step took by what its units took."""
    units = division.program.units
    rows: dict[tuple[int, int], list[Ran]] = {}
    for one in ran:
        unit = units[one.unit]
        rows.setdefault((unit.stage, KINDS.index(unit.kind)), []).append(one)
    stages = [StageReport(stage, KINDS[kind], len(members), sum(one.seconds for one in members),
                          max(one.seconds for one in members), sum(one.moved for one in members),
                          sum(one.made for one in members))
              for (stage, kind), members in sorted(rows.items())]
    return StepReport(*took, division.shards, tuple(stages))
