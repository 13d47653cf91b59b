"""The cluster that `client=` names: how it is reached, and what its workers must have.

Dask starts, watches and replaces workers. Here a client is made or taken, the versions of the workers are compared with
this process's, and the processors of each host are divided among its workers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple

from .. import __version__
from ..errors import GraphError, OpError, Refusing
from ..files import reason
from ..memory import physical_memory
from ..ops import kernels
from ..ops.kernels.threads import available

SECONDS = 5.0
"""How long a scheduler may take to answer, and a cluster to have its first worker."""
ROOM = 0.8
"""The share of its memory limit that a worker fills: above it Dask gives it no new tasks, and above 0.95 ends it."""
KEPT_MEMORY = {f"distributed.nanny.pre-spawn-environ.MALLOC_{name}_THRESHOLD_": size
               for name, size in (("TRIM", 2**30), ("MMAP", 2**25))}
"""Dask lets workers return memory after every large array; taking it again costs more time than most cases need."""
ANY_PORT = "127.0.0.1:0"
THREADS = "CONVREG_NUM_THREADS"
ALLOWED = "a distributed.Client, the address of a scheduler such as 'tcp://host:8786', 'local:N', or None"


class Worker(NamedTuple):
    """A worker of a cluster: one process, which runs so many tasks at a time.

    Attributes
    ----------
    address, host : str
    tasks : int
        The tasks that it runs at a time.
    processors : int
        The processors of its host that it may use.
    isa : str
        The instruction set of its kernels.
    room : int
        The bytes that its tasks may take together.
    threads : int or None
        What its environment says about threads: ``CONVREG_NUM_THREADS``.
    version : str
        Of convreg.
    """

    address: str
    host: str
    tasks: int
    processors: int
    isa: str
    room: int
    threads: int | None
    version: str


class Shares(NamedTuple):
    """What a task has to know of the cluster: the version of convreg, and the kernels' threads by host."""

    version: str
    threads: Mapping[str, int]

    def here(self) -> int:
        """Return the number of threads for the kernels of the task that asks.

        It is ``CONVREG_NUM_THREADS`` where the worker's environment has it, as for the workers of ``"local:N"``. Else
        the processors of the host are divided among the tasks that its workers run at a time. A worker on a host that
        was not there when the work began takes one thread. The number changes no bit.

        Raises
        ------
        OpError
            If the worker has another version of convreg, which it can only have if it came later than the work.
        """
        from distributed import get_worker

        worker = get_worker()
        if __version__ != self.version:
            raise _other_version(_Asked(), worker.address, __version__, self.version)
        return _stated_threads() or self.threads.get(worker.ip, 1)


def threads_of_worker() -> int:
    """Return the kernels' threads of a task whose cluster is not known: its process divides the processors of its host
    among the tasks that it runs at a time, unless the environment states a number."""
    from distributed import get_worker

    return _stated_threads() or max(1, available() // get_worker().state.nthreads)


class Cluster:
    """A cluster that was reached, and whose workers have this version of convreg; a context manager.

    Attributes
    ----------
    client : distributed.Client
    dashboard : str or None
        The address of Dask's page about the cluster, where it serves one.
    """

    def __init__(self, client: Any, ask: Refusing) -> None:
        """Take or make a client.

        Parameters
        ----------
        client : distributed.Client or str
            As `ALLOWED` says. ``"local:N"`` starts N processes on this machine, each for one task at a time. What is
            started here ends with `close`; a client that was given stays open.
        ask : Refusing
            In whose name errors are raised.

        Raises
        ------
        OpError, OpTypeError
            If the argument is none of these, no scheduler answers within some seconds, the cluster has no worker, or a
            worker has another version of convreg.
        GraphError
            If dask and distributed are not installed.
        """
        require_distributed()
        self._ask, self._given = ask, client
        with ExitStack() as undo:
            self.client = _client(client, ask, undo)
            self.dashboard: str | None = self._link()
            self.workers()
            self._undo = undo.pop_all()

    def workers(self) -> list[Worker]:
        """Return the workers that the cluster has now.

        Raises
        ------
        OpError
            As the constructor.
        """
        try:
            self.client.wait_for_workers(1, timeout=SECONDS)
            answers = self.client.run(_about, on_error="return")
        except TimeoutError:
            raise self._ask.refuse("client", self._given, f"a cluster with a worker: none came within {SECONDS:g} "
                                   "seconds", "cluster") from None
        except OSError as error:
            raise self.lost(error) from None
        found = []
        for address, answer in answers.items():
            if isinstance(answer, ModuleNotFoundError):
                raise _other_version(self._ask, address, f"none that imports ({answer})", __version__)
            if isinstance(answer, OpError):
                raise answer
            if not isinstance(answer, dict):
                raise self.lost(answer)
            if answer["version"] != __version__:
                raise _other_version(self._ask, address, answer["version"], __version__)
            found.append(Worker(**answer))
        return found

    def shares(self, workers: Sequence[Worker] | None = None) -> Shares:
        """Return what the tasks have to know, `Shares`."""
        tasks: dict[str, int] = {}
        processors: dict[str, int] = {}
        for worker in self.workers() if workers is None else workers:
            tasks[worker.host] = tasks.get(worker.host, 0) + worker.tasks
            processors[worker.host] = max(processors.get(worker.host, 1), worker.processors)
        return Shares(__version__, {host: max(1, processors[host] // count) for host, count in tasks.items()})

    def lost(self, error: BaseException) -> OpError:
        """Return the exception for a cluster that answers no more."""
        return self._ask.refuse("client", self._given, f"a cluster that answers until the work is done; it said: "
                                f"{reason(error)}", "cluster")

    def close(self) -> None:
        """End what was started for this object."""
        self._undo.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def _link(self) -> str | None:
        try:
            return str(self.client.dashboard_link) or None
        except Exception:  # it has no page
            return None


def require_distributed() -> None:
    """Raise before anything else is done for a cluster.

    Raises
    ------
    GraphError
        If dask and distributed do not import; it names the extra that brings them.
    """
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise GraphError("a cluster needs dask and distributed, which are not installed: pip install "
                         "'convreg[distributed]'") from None


def _client(given: Any, ask: Refusing, undo: ExitStack) -> Any:
    from distributed import Client

    if isinstance(given, Client):
        if given.asynchronous:
            raise ask.refuse("client", "asynchronous", "a client whose calls wait: asynchronous=False", "cluster")
        if given.status != "running":
            raise ask.refuse("client", given.status, "a client that is connected", "cluster")
        return given
    if not isinstance(given, str):
        raise ask.refuse("client", given, ALLOWED, "cluster", wrong_type=True)
    kind, _, rest = given.partition(":")
    if kind == "local":
        return _local(given, rest, ask, undo)
    if not re.fullmatch(r"([a-z]+://)?[^\s:/]+:[0-9]{1,5}|[a-z]+://\S+", given):
        raise ask.refuse("client", given, ALLOWED, "cluster")
    try:
        return undo.enter_context(Client(given, timeout=SECONDS, set_as_default=False))
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise ask.refuse("client", given, f"the address of a scheduler that answers within {SECONDS:g} seconds "
                         f"({reason(error)})", "cluster") from None


def _local(given: str, number: str, ask: Refusing, undo: ExitStack) -> Any:
    """Start workers on this machine."""
    import dask
    from distributed import Client, LocalCluster

    most = max(available(), 8)
    if not re.fullmatch("0*[1-9][0-9]{0,4}", number) or int(number) > most:
        raise ask.refuse("client", given, f"local:N with N from 1 to {most}, which are the processors of this machine, "
                         "or 8 where it has fewer", "cluster")
    try:
        with dask.config.set(KEPT_MEMORY):
            cluster = undo.enter_context(LocalCluster(
                n_workers=int(number), threads_per_worker=1, processes=True, dashboard_address=ANY_PORT,
                env={THREADS: str(min(_stated_threads() or most, max(1, available() // int(number))))}))
        return undo.enter_context(Client(cluster, timeout=SECONDS, set_as_default=False))
    except (OSError, RuntimeError) as error:
        raise ask.refuse("client", given, "workers that start; a program that starts them needs the line `if __name__ "
                         f"== \"__main__\":` before its own work ({reason(error)})", "cluster") from None


class _Asked:
    """In whose name a task on a worker raises errors."""

    def refuse(self, argument: str, value: Any, allowed: str, rule: str = "arguments", *,
               wrong_type: bool = False) -> OpError:
        """Return the exception."""
        return OpError("convreg::distributed", argument, value, allowed, rule=rule)


def _other_version(ask: Refusing, address: str, theirs: str, ours: str) -> OpError:
    return ask.refuse("client", f"worker {address} with convreg {theirs}", f"workers with convreg {ours}, the version "
                      "of the client", "cluster")


def _about(dask_worker: Any) -> dict[str, Any]:
    """Return the fields of `Worker`; runs in the worker, which may have another version."""
    return {"address": dask_worker.address, "host": dask_worker.ip, "tasks": dask_worker.state.nthreads,
            "processors": available(), "isa": str(kernels.capabilities()["isa"]),
            "room": room_of(dask_worker), "threads": _stated_threads(), "version": __version__}


_resident: int | None = None
"""The bytes that this process took when it was first asked, before tasks: modules and Dask's own."""


def room_of(worker: Any) -> int:
    """Return the bytes that the tasks of this process's worker may take together."""
    global _resident
    if _resident is None:
        import psutil  # distributed needs it

        _resident = int(psutil.Process().memory_info().rss)
    limit = getattr(worker.memory_manager, "memory_limit", None) or physical_memory()
    return max(0, int(ROOM * limit) - _resident)


def _stated_threads() -> int | None:
    text = os.environ.get(THREADS, "").strip()
    return int(text) if re.fullmatch("0*[1-9][0-9]{0,8}", text) else None
