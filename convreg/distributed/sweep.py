"""Cases as tasks of a cluster: one task per case, results as they come.

A bounded number of cases is with the cluster at any time, so neither operands nor results pile up anywhere. Which
worker computes a case, and what happens to the tasks of a worker that ends, is Dask's decision.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from threading import Condition
from typing import Any, NamedTuple

from ..errors import OpError, Refusing, UnknownOp, add_note
from ..files import reason
from ..progress import Progress, note
from .cluster import Cluster, Shares, Worker, room_of

AHEAD = 2
"""Cases that are with the cluster for each task that it runs at a time, so that no worker waits for the next one."""
CARRIED = 2**30
"""The most bytes of operands that are on their way to workers, unless one case alone has more."""
REFRESH = 5.0
"""Seconds after which the number of workers is asked for again."""

Compute = Callable[..., Any]
"""Computes a case: called with the number of threads, None for the default, and the case's arguments."""


class Task(NamedTuple):
    """A case.

    Attributes
    ----------
    name : str
    arguments : tuple
        They pickle.
    bytes : int
        The memory that a process needs for the case at most, operands and results included.
    hosts : tuple of str
        The hosts that may compute the case; all where there are none.
    """

    name: str
    arguments: tuple[Any, ...]
    bytes: int = 0
    hosts: tuple[str, ...] = ()


def sweep(
    compute: Compute, tasks: Sequence[Task], client: Any, ask: Refusing, *, threads: int | None = None,
    progress: Progress | None = None,
) -> Generator[tuple[Task, Any], None, None]:
    """Yield each case with its result, as they come: in order without a cluster, in any order with one.

    Parameters
    ----------
    compute : callable
        A function of a module that the workers import.
    tasks : sequence of Task
        With different names.
    client : distributed.Client, str or None
        As for `Cluster`; without one this process computes.
    ask : Refusing
        In whose name a refused case is reported.
    threads : int, optional
        For the kernels of each task; by default what `Shares.here` says.
    progress : callable, optional
        Called with the cases that are done, all, and the name of one that comes or was the last one.

    Raises
    ------
    OpError, GraphError
        If the cluster is refused, no worker has the memory for a case, or the cluster is lost. Also what `compute`
        raises, with a note that names the case: an operator's refusal at once, anything else after Dask has repeated
        the case once.
    """
    if client is None:
        yield from _here(compute, tasks, threads, progress)
        return
    with Cluster(client, ask) as cluster, closing(
            swept(compute, tasks, cluster, ask, threads=threads, progress=progress)) as results:
        yield from results


def swept(
    compute: Compute, tasks: Sequence[Task], cluster: Cluster, ask: Refusing, *, threads: int | None = None,
    progress: Progress | None = None,
) -> Generator[tuple[Task, Any], None, None]:
    """`sweep` on a cluster that was reached."""
    workers = cluster.workers()
    _refuse_too_large(tasks, workers, ask)
    if progress is not None and cluster.dashboard is not None:
        note(f"the cluster's page: {cluster.dashboard}")
    flight = _Flight(compute, cluster, workers, ask, threads)
    waiting, done = iter(tasks), 0
    following = next(waiting, None)
    try:
        while following is not None or flight.tasks:
            while following is not None and flight.has_place():
                flight.submit(following)
                following = next(waiting, None)
            if progress is not None:
                progress(done, len(tasks), following.name if following else next(iter(flight.tasks.values())).name)
            task, result = flight.next()
            done += 1
            yield task, result
            del result  # before the next one is fetched
    finally:
        flight.end()
        if progress is not None:
            progress(len(tasks), len(tasks), "")


def _here(compute: Compute, tasks: Sequence[Task], threads: int | None, progress: Progress | None
          ) -> Iterator[tuple[Task, Any]]:
    """Compute the cases in this process."""
    try:
        for done, task in enumerate(tasks):
            if progress is not None:
                progress(done, len(tasks), task.name)
            try:
                result = compute(threads, *task.arguments)
            except Exception as error:
                raise named(error, task.name) from None
            yield task, result
            del result
    finally:
        if progress is not None:
            progress(len(tasks), len(tasks), "")


def named(error: BaseException, name: str) -> BaseException:
    """Return an error with a note that names its case."""
    add_note(error, f"in case {name!r}")
    return error


def _refuse_too_large(tasks: Iterable[Task], workers: Sequence[Worker], ask: Refusing) -> None:
    """Refuse a case that is too large for every worker that may compute it."""
    for task in tasks:
        allowed = [worker for worker in workers if not task.hosts or worker.host in task.hosts]
        if not allowed:
            raise ask.refuse(task.name, "no worker", f"one on {' or '.join(task.hosts)}", "cluster")
        largest = max(allowed, key=lambda worker: worker.room)
        if task.bytes > largest.room:
            raise ask.refuse(task.name, f"{task.bytes} bytes", f"cases of at most {largest.room} bytes, which the "
                             f"largest worker {largest.address} has for them", "memory")


class _Flight:
    """The cases that are with the cluster.

    Attributes
    ----------
    tasks : dict
        Future -> task.
    """

    def __init__(self, compute: Compute, cluster: Cluster, workers: Sequence[Worker], ask: Refusing,
                 threads: int | None) -> None:
        from distributed import as_completed

        self.tasks: dict[Any, Task] = {}
        self._compute, self._cluster, self._client, self._threads = compute, cluster, cluster.client, threads
        self._ask = ask
        self._workers, self._shares = workers, cluster.shares(workers)
        self._finished = as_completed(loop=cluster.client.loop)
        self._sizes: dict[Any, int] = {}
        self._places = sum(worker.tasks for worker in workers)
        self._asked = time.monotonic()
        self._key = f"convreg_{compute.__name__.strip('_')}-{uuid.uuid4().hex}"
        self._number = 0

    def has_place(self) -> bool:
        """Whether the cluster may have another case."""
        if time.monotonic() - self._asked > REFRESH:
            self._places, self._asked = sum(self._client.nthreads().values()), time.monotonic()
        return not self.tasks or (len(self.tasks) < AHEAD * self._places and sum(self._sizes.values()) < CARRIED)

    def submit(self, task: Task) -> None:
        """Give the cluster a case."""
        import dask

        content = pickle.dumps((self._compute, task.arguments), protocol=pickle.HIGHEST_PROTOCOL)
        self._number += 1
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):  # operands are large
            future = self._client.submit(
                computed, content, task.bytes, self._shares, self._threads, key=f"{self._key}-{self._number}",
                pure=False, retries=1, workers=self._hosts(task), allow_other_workers=False)
        self.tasks[future], self._sizes[future] = task, len(content)
        self._finished.add(future)

    def _hosts(self, task: Task) -> list[str] | None:
        """Return the hosts that may compute a case, None for all."""
        able = {worker.host for worker in self._workers if worker.room >= task.bytes
                and (not task.hosts or worker.host in task.hosts)}
        return sorted(able) if task.hosts or able != {worker.host for worker in self._workers} else None

    def next(self) -> tuple[Task, Any]:
        """Return a case that is done and its result, or raise its error."""
        from distributed import CancelledError, KilledWorker

        future = next(self._finished)
        task = self.tasks.pop(future)
        del self._sizes[future]
        try:
            result = future.result()
        except KilledWorker as error:
            raise self._ask.refuse("case", task.name, f"one that workers survive: {error.allowed_failures + 1} ended "
                                   f"while they had it, {error.last_worker.address} was the last one (it was taken to "
                                   f"need {task.bytes} bytes)", "cluster") from None
        except (CancelledError, OSError) as error:
            if isinstance(error, OSError) and self._client.status == "running":
                raise named(error, task.name) from None
            raise self._cluster.lost(_Ended(reason(error) or "cancelled")) from None
        except Exception as error:
            raise named(error, task.name) from None
        finally:
            future.release()
        if isinstance(result, Refused):
            raise named(result.error, task.name)
        return task, result

    def end(self) -> None:
        """Cancel what is with the cluster yet."""
        with suppress(Exception):  # a cluster that is lost has nothing more to cancel
            if self.tasks:
                self._client.cancel(list(self.tasks))
        self.tasks.clear()


class _Ended(Exception):
    """Says how a cluster was lost."""


class Refused(NamedTuple):
    """The result of a case that will never succeed: the error, which Dask shall not try to overcome."""

    error: BaseException


def computed(content: bytes, size: int, shares: Shares, threads: int | None) -> Any:
    """Compute a case in a worker, when the memory of the others there leaves room for it."""
    from distributed import get_worker

    own = shares.here()
    worker = get_worker()
    with _gate(worker.address).passed(size, room_of(worker)):
        compute, arguments = pickle.loads(content)
        try:
            return compute(threads or own, *arguments)
        except (OpError, UnknownOp) as error:
            if getattr(error, "rule", None) == "memory":  # of this worker at this time
                raise
            return Refused(error)


class _Gate:
    """Lets tasks of one worker pass while their bytes fit together; one alone always passes."""

    def __init__(self) -> None:
        self._held, self._changed = 0, Condition()

    @contextmanager
    def passed(self, size: int, room: int) -> Iterator[None]:
        """Wait until there is room, and hold it for the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + size <= room)
            self._held += size
        try:
            yield
        finally:
            with self._changed:
                self._held -= size
                self._changed.notify_all()


_gates: dict[str, _Gate] = {}
"""By the worker's address: several workers may be in one process."""


def _gate(address: str) -> _Gate:
    return _gates.setdefault(address, _Gate())
