"""A sweep of numerics on a cluster: the results of one process, for any workers, with one that is killed."""

import json
import os
import signal

import pytest

pytest.importorskip("distributed")

from sweep_cases import ASCEND, FORMATS, numerics_cases

from convreg.errors import OpError
from convreg.numerics import Case, sweep

pytestmark = pytest.mark.xdist_group("cluster")


def shown(found):
    return [(name, json.dumps(comparison.to_dict())) for name, comparison in found.items()]


@pytest.fixture(scope="module")
def expected():
    return shown(sweep(numerics_cases(), formats=FORMATS))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_those_of_one_process(cluster, expected, workers, threads):
    assert shown(sweep(numerics_cases(), formats=FORMATS, client=cluster(workers), threads=threads)) == expected


def test_a_worker_that_is_killed(cluster, expected, tmp_path):
    client = cluster(2)

    def kill(done, total, name):
        if done == 2 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").write_text("")
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    found = sweep(numerics_cases(), formats=FORMATS, client=client, path=tmp_path / "file", progress=kill)
    assert (tmp_path / "killed").exists()
    assert shown(found) == expected
    assert len((tmp_path / "file").read_text().splitlines()) == 1 + len(expected)


def test_an_interrupted_sweep_goes_on(cluster, expected, tmp_path):
    """On the cluster, and then in this process."""
    path, client = tmp_path / "file", cluster(2)

    def stop(done, total, name):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(numerics_cases(), formats=FORMATS, client=client, path=path, progress=stop)
    assert len(path.read_text().splitlines()) == 4
    assert shown(sweep(numerics_cases(), formats=FORMATS, path=path)) == expected


def test_a_case_that_fails_keeps_the_others(cluster, tmp_path):
    cases = numerics_cases(3)
    bad = [cases["carried 1"].inputs[0] * float("inf"), *cases["ascend 0"].inputs[1:]]
    with pytest.raises(OpError, match="gradOutput='infinity or NaN'") as failed:
        sweep({**cases, "bad": Case("ascend::ConvolutionBackward", [bad[0][:, :, :6], *bad[1:]], ASCEND)},
              formats=FORMATS, client=cluster(1), path=tmp_path / "file")
    assert failed.value.__notes__ == ["in case 'bad'"]
    names = [json.loads(line)["case"] for line in (tmp_path / "file").read_text().splitlines()[1:]]
    assert set(names) <= set(cases)


@pytest.mark.slow
def test_a_cluster_of_its_own(expected):
    assert shown(sweep(numerics_cases(), formats=FORMATS, client="local:2")) == expected
