"""Training steps on clusters: the parameters of one process, for any workers, with one that is killed."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("distributed")
pytest.importorskip("onnxruntime")

from divided_steps import batch, bits, step_of
from exported_models import batch_of, classifier

import convreg.onnx
from convreg.errors import GraphError, OpError
from convreg.onnx.training.sharded import executors, work

pytestmark = pytest.mark.xdist_group("cluster")


def trained(step, batches, **options):
    with convreg.onnx.Trainer(step, engine="onnxruntime", threads=1, **options) as trainer:
        for feeds in batches:
            trainer.step(feeds)
        return bits(trainer)


@pytest.mark.parametrize("statistics", ["synchronous", "whole", "per_shard"])
def test_a_cluster_has_the_bits_of_one_process(cluster, statistics):
    step = convreg.onnx.training_step(classifier(dropout=True), optimizer="adam", seed=3)
    batches = [batch_of(count, number) for number, count in enumerate((9, 9, 4))]
    here = trained(step, batches, shards=3, statistics=statistics)
    assert trained(step, batches, shards=3, statistics=statistics, client=cluster(2)) == here
    if statistics == "whole":
        assert trained(step, batches) == here


def test_batches_whose_shards_run_the_same_models(cluster):
    """Shards of 1 and 2 samples, in other places: models alone do not tell such batches apart."""
    step = convreg.onnx.training_step(classifier(), optimizer="adam")
    batches = [batch_of(count, number) for number, count in enumerate((4, 5, 4))]
    options = {"shards": 3, "statistics": "per_shard"}
    assert trained(step, batches, **options, client=cluster(2)) == trained(step, batches, **options)


def test_a_cluster_that_restarts_between_steps(cluster):
    step = convreg.onnx.training_step(classifier(), optimizer="adam")
    batches = [batch_of(6, number) for number in range(2)]
    client = cluster(2)
    with convreg.onnx.Trainer(step, engine="onnxruntime", shards=3, client=client) as trainer:
        trainer.step(batches[0])
        client.restart()
        trainer.step(batches[1])
        assert bits(trainer) == trained(step, batches, shards=3)


def test_the_cluster_forgets_batches_that_the_trainer_forgets(cluster, monkeypatch):
    monkeypatch.setattr("convreg.onnx.training.sharded.steps.MOST_DIVISIONS", 2)
    client = cluster(2)
    with convreg.onnx.Trainer(failing_step()[0], client=client, shards=2, engine="onnxruntime") as trainer:
        for samples in range(3, 8):
            trainer.step({"x": np.ones((samples, 4), np.float32), "place": np.zeros((samples, 1), np.int64)})
        until = time.monotonic() + 10
        while time.monotonic() < until and programs_of(client) > 2:
            time.sleep(0.05)
        assert 0 < programs_of(client) <= 2


def programs_of(client) -> int:
    return sum(str(key).startswith("convreg_program") for key in client.who_has())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["residual", "unet", "depthwise", "places"])
def test_workers_and_threads_change_no_bit(cluster, name):
    """20 steps on 1, 2, 3 and 8 workers, whose kernels take 1 and 2 threads."""
    step = step_of(name, optimizer="adam", learning_rate=0.001)
    batches = [batch(name, 16 if number % 5 else 11, number) for number in range(20)]
    wanted = trained(step, batches, shards=8)
    for workers, threads in ((1, 1), (2, 1), (3, 1), (8, 1), (1, 2), (2, 2)):
        assert trained(step, batches, client=cluster(workers, threads)) == wanted, (workers, threads)
    if name != "residual":
        assert trained(step, batches) == wanted


def test_a_worker_that_is_killed_in_the_middle_of_a_step(cluster, monkeypatch):
    monkeypatch.setattr(executors, "SHARED", 0)  # parameters are copied to all workers, however small
    client = cluster(2)
    step = step_of("residual", optimizer="adam", learning_rate=0.001)
    batches = [batch("residual", 64, number) for number in range(2)]
    wanted = trained(step, batches, shards=8)
    killed = []
    trainer = convreg.onnx.Trainer(step, engine="onnxruntime", client=client)
    trainer.step(batches[0])
    pids = client.run(os.getpid)

    def kill():
        """End the worker that has results of shards which the step still needs."""
        until = time.monotonic() + 30
        while time.monotonic() < until and not killed:
            for key, holders in client.who_has().items():
                if str(key).startswith("convreg_shard_2") and holders:
                    os.kill(pids[holders[0]], signal.SIGKILL)
                    killed.append(holders[0])
                    break

    thread = threading.Thread(target=kill)
    thread.start()
    trainer.step(batches[1])
    thread.join()
    assert killed
    assert bits(trainer) == wanted
    client.wait_for_workers(2, timeout=30)
    assert pids.keys() != client.run(os.getpid).keys() or pids != client.run(os.getpid)


def test_what_a_step_took(cluster):
    with convreg.onnx.Trainer(step_of("unet"), client=cluster(2), shards=4) as trainer:
        assert trainer.last_step is None
        trainer.step(batch("unet", 8))
        report = trainer.last_step
    tasks = {(stage.stage, stage.kind): stage for stage in report.stages}
    assert tasks[0, "shard"].tasks == 4
    assert tasks[0, "shard"].seconds >= tasks[0, "shard"].longest > 0
    assert tasks[0, "shard"].moved >= batch("unet", 8)["x"].nbytes
    assert report.workers > 0
    assert report.moved > 0


def failing_step():
    """A step whose second input names classes; a shard that reads a wrong one fails, always."""
    import onnx.parser

    weights = ",".join(map(str, range(16)))
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 20]>
        pick (float[N,4] x, int64[N,1] place) => (float loss) <float[4,4] w = {{{weights}}}> {{
            y = MatMul(x, w)
            z = GatherElements<axis=1>(y, place)
            loss = ReduceSum<keepdims=0>(z)
        }}""")
    feeds = {"x": np.ones((6, 4), np.float32), "place": np.zeros((6, 1), np.int64)}
    return convreg.onnx.training_step(model, loss=None), feeds


def test_a_shard_that_fails_twice_says_so(cluster):
    step, feeds = failing_step()
    trainer = convreg.onnx.Trainer(step, client=cluster(2), shards=3, engine="onnxruntime")
    trainer.step(feeds)
    before = bits(trainer)
    with pytest.raises(GraphError, match="samples 4 to 5 of the batch"):
        trainer.step({**feeds, "place": np.array([[0]] * 5 + [[9]])})
    assert bits(trainer) == before
    assert trainer.steps == 1
    trainer.step(feeds)
    assert trainer.steps == 2


def test_workers_that_die_one_after_the_other(monkeypatch):
    monkeypatch.setattr(executors, "_task", lambda *_: os._exit(1))  # a lambda, since workers import no tests
    step, feeds = failing_step()
    # a cluster of its own: Dask gives up workers that die while they start
    with convreg.onnx.Trainer(step, client="local:2", shards=2, engine="onnxruntime") as trainer:
        before = bits(trainer)
        with pytest.raises(GraphError, match=r"workers .*died one after the other"):
            trainer.step(feeds)
        assert bits(trainer) == before


def test_another_version_of_onnxruntime_is_refused(cluster, monkeypatch):
    step, feeds = failing_step()
    monkeypatch.setattr("convreg.onnx.training.sharded.assembly.runtime_version", lambda engine: "0.1")
    monkeypatch.setattr(work, "check_runtime", lambda program: None)
    trainer = convreg.onnx.Trainer(step, client=cluster(2), shards=2, engine="onnxruntime")
    with pytest.raises(GraphError, match=r"a worker has onnxruntime .*; allowed: 0\.1"):
        trainer.step(feeds)


def test_a_cluster_that_ends():
    """The state stays, and the error is one sentence."""
    step, feeds = failing_step()
    with convreg.onnx.Trainer(step, client="local:1", shards=2, engine="onnxruntime") as trainer:
        trainer.step(feeds)
        before = bits(trainer)
    with pytest.raises(OpError, match="a cluster that answers until the work is done"):
        trainer.step(feeds)
    assert bits(trainer) == before
    assert trainer.last_step.stages == ()


@pytest.mark.parametrize("client", ["local:0", "local:99999", "somewhere", 3])
def test_a_client_that_is_none(client):
    with pytest.raises(OpError, match="Trainer: client="):
        convreg.onnx.Trainer(failing_step()[0], client=client)


@pytest.mark.slow
def test_the_command_line(tmp_path):
    import onnx

    step = convreg.onnx.training_step(classifier(), optimizer="adam")
    onnx.save(step, tmp_path / "step.onnx")
    np.savez(tmp_path / "data.npz", **batch_of(24))
    made = []
    for number, options in enumerate((["--dask", "local:2"], ["--shards", "8"], ["--shards", "8", "--statistics",
                                                                                  "per_shard"])):
        subprocess.run([sys.executable, "-W", "error::UserWarning", "-m", "convreg.tools", "train", "step.onnx",
                        "--data", "data.npz", "--epochs", "2", "--batch", "9", "-o", f"{number}.onnx", *options],
                       check=True, cwd=tmp_path, timeout=120)
        made.append((tmp_path / f"{number}.onnx").read_bytes())
    assert made[0] == made[1] != made[2]
