"""Cases as tasks of a cluster: results as they come, workers that end, refusals, memory."""

import json
import os
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("distributed")

import cluster_tasks
from distributed import Client, LocalCluster

from convreg.distributed.cluster import Cluster
from convreg.distributed.sweep import AHEAD, Task, sweep, swept
from convreg.errors import Asking, OpError, OpTypeError

pytestmark = pytest.mark.xdist_group("cluster")
ASK = Asking("convreg::numerics")


def echoes(count, size=0):
    return [Task(f"case {number}", (number,), size) for number in range(count)]


def processes(client):
    return set(client.run(os.getpid).values())


def test_every_case_comes_once(cluster):
    seen = []
    found = list(sweep(cluster_tasks.echo, echoes(30), cluster(2), ASK, progress=lambda *step: seen.append(step)))
    assert sorted(task.arguments[0] for task, _ in found) == list(range(30))
    assert all(result[0] == task.arguments[0] for task, result in found)
    assert {result[1] for _, result in found} <= processes(cluster(2))
    assert [done for done, total, _ in seen] == [*range(30), 30]
    assert {total for _, total, _ in seen} == {30}


def test_without_a_cluster_cases_come_in_order():
    found = list(sweep(cluster_tasks.echo, echoes(5), None, ASK))
    assert [(task.name, result) for task, result in found] == [
        (f"case {number}", (number, os.getpid())) for number in range(5)]


def test_no_case_is_an_empty_sweep(cluster):
    assert list(sweep(cluster_tasks.echo, [], cluster(1), ASK)) == []
    assert list(sweep(cluster_tasks.echo, [], None, ASK)) == []


def test_few_cases_are_with_the_cluster(cluster, monkeypatch):
    """The operands of the others are not carried yet, and their results are nowhere."""
    client, waiting, most = cluster(2), 0, 0
    submit = client.submit

    def counted(*args, **kwargs):
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        return submit(*args, **kwargs)

    monkeypatch.setattr(client, "submit", counted)
    for _ in sweep(cluster_tasks.echo, echoes(20), client, ASK):
        waiting -= 1
    assert most == AHEAD * 2
    monkeypatch.setattr("convreg.distributed.sweep.CARRIED", 10_000)
    waiting = most = 0
    large = [Task(str(number), (np.zeros(20_000, np.uint8),)) for number in range(4)]
    for _ in sweep(cluster_tasks.echo, large, client, ASK):
        waiting -= 1
    assert most == 1


def test_large_operands_give_no_warning(cluster):
    array = np.random.default_rng(0).integers(0, 255, 12 * 2**20, np.uint8)
    ((_, (back, _)),) = sweep(cluster_tasks.echo, [Task("large", (array,))], cluster(1), ASK)
    assert np.array_equal(back, array)


def test_threads(cluster):
    for threads in (1, 2):
        ((_, found),) = sweep(cluster_tasks.threads_of, [Task("one", ())], cluster(1, threads), ASK)
        assert found == threads
    ((_, found),) = sweep(cluster_tasks.threads_of, [Task("one", ())], cluster(1), ASK, threads=3)
    assert found == 3
    assert next(iter(sweep(cluster_tasks.threads_of, [Task("one", ())], None, ASK)))[1] is None


def test_a_worker_that_ends_costs_its_tasks_alone(cluster, tmp_path):
    client = cluster(2)
    before = processes(client)
    tasks = [Task(f"case {number}", (str(tmp_path / "flag"), number)) for number in range(8)]
    found = {task.name: result for task, result in sweep(cluster_tasks.die_once, tasks, client, ASK)}
    assert found == {f"case {number}": number for number in range(8)}
    client.wait_for_workers(2, timeout=30)
    assert len(before - processes(client)) == 1


@pytest.mark.slow
def test_a_case_that_ends_its_workers(cluster):
    with pytest.raises(OpError) as refused:
        list(sweep(cluster_tasks.die, [Task("deadly", (), 77)], cluster(2), ASK))
    text = str(refused.value)
    assert "case='deadly' is refused; allowed: one that workers survive" in text
    assert "77 bytes" in text


@pytest.mark.parametrize(("kind", "error", "times"), [
    ("operator", OpTypeError, 1), ("memory", OpError, 2), ("disk", OSError, 2)])
def test_errors_name_their_case(cluster, tmp_path, kind, error, times):
    """The error of an operator comes at once; what may be the worker's is tried twice. Other cases come before it."""
    for client, expected in ((None, 1), (cluster(1), times)):
        flag = tmp_path / str(expected) / "flag"
        flag.parent.mkdir(exist_ok=True)
        flag.write_text("")
        with pytest.raises(error) as failed:
            list(sweep(cluster_tasks.fail, [Task("bad", (str(flag), kind))], client, ASK))
        assert failed.value.__notes__ == ["in case 'bad'"]
        assert flag.read_text() == "x" * expected
    assert dict(sweep(cluster_tasks.echo, echoes(1), cluster(1), ASK))  # the cluster is as before


def test_a_case_that_succeeds_the_second_time(cluster, tmp_path):
    ((_, found),) = sweep(cluster_tasks.recover, [Task("one", (str(tmp_path / "flag"),))], cluster(1), ASK)
    assert found == "done"


def test_nothing_stays_with_the_cluster_when_the_caller_stops(cluster):
    client = cluster(2)
    before = set(client.futures)  # errors that earlier tests caught hold on to theirs
    results = sweep(cluster_tasks.echo, echoes(50), client, ASK)
    next(results)
    assert set(client.futures) - before
    results.close()
    assert not set(client.futures) - before


def test_cases_that_fit_no_worker(cluster):
    with Cluster(cluster(2), ASK) as reached:
        room = max(worker.room for worker in reached.workers())
    results = sweep(cluster_tasks.echo, [*echoes(2), Task("huge", (0,), room * 3)], cluster(2), ASK)
    with pytest.raises(OpError) as refused:
        next(results)  # before anything else is done
    text = str(refused.value)
    assert f"huge='{room * 3} bytes' is refused; allowed: cases of at most " in text
    assert f"cases of at most {room} bytes" in text


def test_cases_that_do_not_fit_together_wait(tmp_path):
    """On one worker with two threads; small ones run at a time."""
    with LocalCluster(n_workers=1, threads_per_worker=2, processes=True, dashboard_address="127.0.0.1:0") as local, \
            Client(local, set_as_default=False) as client:
        with Cluster(client, ASK) as reached:
            room = reached.workers()[0].room
        for size, together in ((room * 2 // 3, False), (room // 4, True)):
            folder = tmp_path / str(size)
            folder.mkdir()
            tasks = [Task(str(number), (str(folder), str(number)), size) for number in range(4)]
            list(sweep(cluster_tasks.hold, tasks, client, ASK))
            times = sorted(tuple(map(float, path.read_text().split())) for path in folder.iterdir())
            assert any(second[0] < first[1] for first, second in pairwise(times)) is together


def test_hosts_of_a_case(cluster):
    with Cluster(cluster(1), ASK) as reached:
        host = reached.workers()[0].host
        with pytest.raises(OpError, match=r"one='no worker' is refused; allowed: one on nowhere"):
            list(swept(cluster_tasks.echo, [Task("one", (1,), 10, ("nowhere",))], reached, ASK))
        tasks = [Task("one", (1,), 10, ("nowhere", host))]
        assert [result[0] for _, result in swept(cluster_tasks.echo, tasks, reached, ASK)] == [1]


def test_a_scheduler_that_ends(tmp_path):
    """The connection is lost in the middle: one error, and what came before was given."""
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m"]
    local = ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = []
    try:
        for arguments in (["distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1", *local],
                          ["distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", *local]):
            started.append(subprocess.Popen([*command, *arguments], env=environment, stderr=subprocess.DEVNULL,
                                            cwd=tmp_path))
            while not file.exists():
                time.sleep(0.05)
                assert started[0].poll() is None
        address = json.loads(file.read_text())["address"]
        results = sweep(cluster_tasks.hold, [Task(str(number), (str(tmp_path), str(number))) for number in range(50)],
                        address, ASK)
        next(results)
        started[0].kill()
        with pytest.raises(OpError) as lost:
            list(results)
        assert str(lost.value).startswith(f"convreg::numerics: client={address!r} is refused; allowed: a cluster that "
                                          "answers until the work is done")
    finally:
        for process in started:
            process.kill()
            process.wait()
