"""Clusters of processes on this machine, started once for all tests that ask for the same one."""

from __future__ import annotations

from contextlib import ExitStack

import pytest


@pytest.fixture(scope="session")
def cluster():
    """`cluster(workers, threads=1)` returns a client of so many processes, whose kernels take so many threads."""
    distributed = pytest.importorskip("distributed")
    import dask.config

    clients = {}

    with ExitStack() as undo:
        # Tests kill workers, which start again within a second. So long after the end of a worker Dask closes its nanny
        # if no worker of its name runs, even if a later test has just killed the restarted one.
        undo.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}))

        def started(workers, threads):
            made = undo.enter_context(distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0",
                env={"CONVREG_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}))
            client = undo.enter_context(distributed.Client(made, set_as_default=False))
            client.wait_for_workers(workers, timeout=60)
            return client

        def start(workers, threads=1):
            key = workers, threads
            if key in clients:
                try:  # a worker that a test has killed starts again; one that died while it started does not
                    clients[key].wait_for_workers(workers, timeout=30)
                except distributed.TimeoutError:
                    del clients[key]
            if key not in clients:
                clients[key] = started(workers, threads)
            return clients[key]

        yield start
