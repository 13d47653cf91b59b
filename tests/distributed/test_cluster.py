"""What `client=` may be, and what is refused before any work."""

import subprocess
import sys
import time

import pytest

pytest.importorskip("distributed")

import cluster_tasks

import convreg
from convreg.distributed.cluster import ROOM, Cluster
from convreg.errors import Asking, GraphError, OpError, OpTypeError

pytestmark = pytest.mark.xdist_group("cluster")
ASK = Asking("convreg::numerics")


def test_a_given_client_stays_open(cluster):
    client = cluster(2)
    with Cluster(client, ASK) as reached:
        assert reached.client is client
        workers = reached.workers()
        assert len(workers) == 2
        assert {worker.version for worker in workers} == {convreg.__version__}
        assert all(worker.tasks == 1 and worker.threads == 1 and worker.room > 0 for worker in workers)
        limits = [entry["memory_limit"] for entry in client.scheduler_info()["workers"].values()]
        assert all(worker.room < ROOM * limit for worker, limit in zip(workers, limits, strict=True))
    assert client.status == "running"


def test_threads_of_workers_on_one_host_do_not_exceed_its_processors(cluster):
    with Cluster(cluster(2), ASK) as reached:
        one, two = reached.workers()
        many = [one._replace(processors=8, tasks=3), two._replace(processors=8, tasks=1),
                one._replace(host="other", processors=2, tasks=4)]
        assert dict(reached.shares(many).threads) == {one.host: 2, "other": 1}


def test_tasks_know_their_threads(cluster):
    for threads in (1, 2):
        with Cluster(cluster(1, threads), ASK) as reached:
            shares = reached.shares()
            assert reached.client.submit(shares.here, pure=False).result(30) == threads


def test_local_cluster_ends_with_the_work():
    with Cluster("local:1", ASK) as reached:
        client = reached.client
        assert [worker.tasks for worker in reached.workers()] == [1]
    assert client.status == "closed"


def test_address(cluster):
    address = cluster(1).scheduler.address
    with Cluster(address, ASK) as reached:
        assert len(reached.workers()) == 1
    assert cluster(1).status == "running"


@pytest.mark.parametrize("client", ["local:", "local:0", "local:-1", "local:2.5", "local:1000000", "local:two", "",
                                    "host", "tcp://", "a b:1"])
def test_strings_that_name_no_cluster(client):
    with pytest.raises(OpError, match=r"convreg::numerics: client=.* is refused; allowed: .*local:N"):
        Cluster(client, ASK)


@pytest.mark.parametrize("client", [2, b"local:2", ["local:2"], object()])
def test_objects_that_are_no_client(client):
    with pytest.raises(OpTypeError, match="client="):
        Cluster(client, ASK)


def test_refusals_of_values_that_do_not_pickle(cluster):
    """Dask has a reducer of exceptions of its own, without which they come back as another class."""
    with pytest.raises(OpError, match=r"a::b: argument=<unlocked _thread\.lock .*> is refused; allowed: it"):
        cluster(1).submit(cluster_tasks.refuse, pure=False).result(60)


def test_closed_client(cluster):
    from distributed import Client

    client = Client(cluster(1).scheduler.address, set_as_default=False)
    client.close()
    with pytest.raises(OpError, match="'closed' is refused; allowed: a client that is connected"):
        Cluster(client, ASK)


def test_scheduler_that_is_not_there(monkeypatch):
    monkeypatch.setattr("convreg.distributed.cluster.SECONDS", 1.0)
    begin = time.monotonic()
    with pytest.raises(OpError) as refused:
        Cluster("tcp://127.0.0.1:9", ASK)
    assert time.monotonic() - begin < 5
    text = str(refused.value)
    assert text.startswith("convreg::numerics: client='tcp://127.0.0.1:9' is refused; allowed: the address of a "
                           "scheduler that answers within 1 seconds")
    assert "\n" not in text


def test_cluster_without_workers(monkeypatch):
    from distributed import Client, LocalCluster

    monkeypatch.setattr("convreg.distributed.cluster.SECONDS", 0.2)
    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", processes=True) as empty, Client(
            empty, set_as_default=False) as client, pytest.raises(OpError, match="a cluster with a worker: none came"):
        Cluster(client, ASK)


def pretend(client, version, **more):
    """Let workers be another version of convreg; they cannot import the functions of tests."""
    code = f"import convreg.distributed.cluster\nconvreg.distributed.cluster.__version__ = {version!r}"
    client.run(exec, code, **more)


def test_worker_of_another_version(cluster):
    client = cluster(2)
    victim = sorted(client.scheduler_info()["workers"])[0]
    pretend(client, "0.0.9", workers=[victim])
    try:
        with pytest.raises(OpError) as refused:
            Cluster(client, ASK)
        assert f"worker {victim} with convreg 0.0.9" in str(refused.value)
        assert f"workers with convreg {convreg.__version__}" in str(refused.value)
    finally:
        pretend(client, convreg.__version__, workers=[victim])


def test_worker_of_another_version_that_comes_later(cluster):
    client = cluster(1)
    with Cluster(client, ASK) as reached:
        shares = reached.shares()
        pretend(client, "0.0.9")
        try:
            with pytest.raises(OpError, match=r"with convreg 0\.0\.9"):
                client.submit(shares.here, pure=False).result(30)
        finally:
            pretend(client, convreg.__version__)


def test_without_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(GraphError, match=r"pip install 'convreg\[distributed\]'"):
        Cluster("local:1", ASK)


def test_import_convreg_does_not_import_dask():
    code = ("import sys, convreg, convreg.distributed.cluster, convreg.numerics, convreg.golden, convreg.onnx\n"
            "print([name for name in sys.modules if name.partition('.')[0] in ('dask', 'distributed')])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
