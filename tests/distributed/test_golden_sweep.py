"""Golden vectors made by a cluster: the files of one process, for any workers, with one that is killed."""

import os
import signal

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("distributed")

from golden_cases import ascend_case, data_case, files_of, weights_case

import convreg
from convreg.errors import GraphError
from convreg.golden import Operand, cases, layouts, sweep, sweeping

pytestmark = pytest.mark.xdist_group("cluster")

GIVEN = Operand((2, 4, 6, 6), "hifloat8", values=convreg.quantize(np.ones((2, 4, 6, 6), np.float32), "hifloat8"))
CASES = [data_case("a b", "bfloat16"), weights_case("d", "float16"), ascend_case("values", conformance="emulation"),
         *(ascend_case(f"number {number}") for number in range(4))]
CASES[2].inputs["grad_output"] = GIVEN
CASES[2].inputs["input"] = Operand((2, 3, 6, 6), "bfloat16", values=np.ones((2, 3, 6, 6), ml_dtypes.bfloat16))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The files of one process, by layout."""
    root = tmp_path_factory.mktemp("expected")
    for layout in ("npz", "bin"):
        layouts.write(layout, root / layout, (case.make() for case in CASES), seed=0, fill="normal", command="x")
    return {layout: files_of(root / layout) for layout in ("npz", "bin")}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_files_are_those_of_one_process(cluster, expected, tmp_path, workers, threads):
    sweep(CASES, tmp_path / "root", command="x", client=cluster(workers), threads=threads)
    assert files_of(tmp_path / "root") == expected["npz"]


def test_a_worker_that_is_killed(cluster, expected, tmp_path):
    client = cluster(2)

    def kill(done, total, name):
        if done == 2 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").write_text("")
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    sweep(CASES, tmp_path / "root", "bin", command="x", client=client, progress=kill)
    assert (tmp_path / "killed").exists()
    assert files_of(tmp_path / "root") == expected["bin"]


def test_an_interrupted_sweep_goes_on(cluster, expected, tmp_path):
    """Begun on two workers, continued on three, ended in this process."""
    def stop(done, total, name):
        if done == 2:
            raise KeyboardInterrupt

    for workers in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            sweep(CASES, tmp_path / "root", command="x", client=cluster(workers), progress=stop)
        assert [path.name for path in (tmp_path / "root").iterdir()] == [sweeping.WORK]
    seen = []
    sweep(CASES, tmp_path / "root", command="x", progress=lambda *step: seen.append(step))
    assert seen[0][1] == len(CASES) - 4
    assert files_of(tmp_path / "root") == expected["npz"]


def test_tables_are_in_the_order_of_the_cases(cluster, tmp_path):
    own = [ascend_case(f"number {number}") for number in range(6)]
    sweep(own, tmp_path / "cluster", "ttk", client=cluster(3))
    sweep(own, tmp_path / "here", "ttk")
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "here")


def test_cases_of_a_source(cluster, tmp_path):
    found = list(cases("mb2_ic3ih9_oc4_kh3sh2ph1_nlayer"))
    sweep(found, tmp_path / "cluster", client=cluster(2), fill="integers")
    sweep(found, tmp_path / "here", fill="integers")
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "here")


def test_a_case_that_the_layout_cannot_express(cluster, tmp_path):
    """The error comes from a worker; what was done stays."""
    with pytest.raises(GraphError, match="case 'a b' cannot be written as ttk") as failed:
        sweep([ascend_case("good"), CASES[0]], tmp_path / "root", "ttk", client=cluster(1))
    assert failed.value.__notes__ == ["in case 'a b'"]
