"""Operators over Dask arrays on clusters: equal bits for any number of workers, also when one is killed."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import signal
import time

import numpy as np
import pytest

import convreg
from convreg import OpError
from convreg.distributed import apply

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.xdist_group("clusters")

LAYER = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "cube_math_type": 3}


def operands(batch=13):
    gen = np.random.default_rng(0)
    return (gen.standard_normal((batch, 24, 56, 56), np.float32), gen.standard_normal((batch, 16, 56, 56), np.float32),
            gen.standard_normal((24, 16, 3, 3), np.float32))


def digest(arrays) -> str:
    return hashlib.sha256(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest()


def gradients(client, chunks, batch=13):
    dy, x, w = operands(batch)
    return apply("ascend::ConvolutionBackward", da.from_array(dy, chunks=(chunks, -1, -1, -1)), x, w, client=client,
                 **LAYER)


@pytest.fixture(scope="module")
def expected():
    dy, x, w = operands()
    return digest(convreg.ascend.convolution_backward(dy, x, w, **LAYER))


@pytest.mark.parametrize(("workers", "threads"), [
    (2, 1), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((1, 1), (1, 2), (2, 2), (3, 1), (3, 2)))])
def test_equal_bits_for_any_number_of_workers(cluster, expected, workers, threads):
    client = cluster(workers, threads)
    for chunks in (3, 13):
        assert digest(client.gather(client.compute(list(gradients(client, chunks))))) == expected


@pytest.mark.parametrize(("chunk", "held"), [(64, 64), (16, 128)])
def test_tasks_too_large_for_every_worker_are_refused(cluster, chunk, held):
    """The sum has one piece of 64 samples, which is held twice where it crosses chunks; nothing is computed."""
    wide, narrow = (da.zeros((64, channels, 14, 14), chunks=(chunk, -1, -1, -1), dtype=np.float32)
                    for channels in (2**20, 1))
    with pytest.raises(OpError, match=r"allowed: smaller chunks: the largest worker has \d+ bytes") as refused:
        apply("onednn::ConvolutionBackwardWeights", narrow, wide, weights_shape=(2**20, 1, 3, 3), client=cluster(2, 1),
              strides=(1, 1), pads_begin=(1, 1), pads_end=(1, 1), dilations=(1, 1), data_format="NCX",
              weights_format="OIX")
    needed = int(re.search(r"take (\d+) bytes", str(refused.value))[1])
    sample, result = 4 * 14 * 14 * (2**20 + 1), 4 * 9 * 2**20
    assert held * sample <= needed <= held * sample + 4 * result


@pytest.mark.parametrize("workers", [2, *(pytest.param(more, marks=pytest.mark.slow) for more in (1, 3))])
def test_a_killed_worker_changes_nothing(cluster, workers):
    client, batch = cluster(workers), 60
    gen = da.random.default_rng(0)  # the workers make the numbers
    dy, x = (gen.standard_normal((batch, channels, 56, 56), chunks=(2, -1, -1, -1), dtype=np.float32)
             for channels in (24, 16))
    w = operands(1)[2]
    results = client.compute(list(apply("ascend::ConvolutionBackward", dy, x, w, client=client, **LAYER)))
    time.sleep(0.1)  # some tasks are done, some are not
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    whole = (array.compute(scheduler="synchronous") for array in (dy, x))
    assert digest(client.gather(results)) == digest(convreg.ascend.convolution_backward(*whole, w, **LAYER))


def test_arrays_that_the_cluster_holds_already(cluster, expected):
    client = cluster(2, 1)
    dy, x, w = operands()
    with client.as_current():  # persisted chunks, and futures as chunks
        held = da.from_array(dy, chunks=(5, -1, -1, -1)).persist()
        parts = [da.from_delayed(client.scatter(x[first:first + 4]), x[first:first + 4].shape, x.dtype)
                 for first in range(0, len(x), 4)]
        results = apply("ascend::ConvolutionBackward", held, da.concatenate(parts), w, client=client, **LAYER)
        assert digest(client.gather(client.compute(list(results)))) == expected


def test_tasks_take_their_share_of_the_processors(cluster):
    client = cluster(2, 1)
    x = da.ones((4, 2, 8, 8), chunks=(1, -1, -1, -1), dtype=np.float32)
    for given in (client, None):  # None: the worker divides its own processors
        rounded = apply("nodes::Quantize", x, client=given)
        assert client.compute(rounded).result().shape == x.shape


def test_chunks_that_no_worker_has_room_for_are_refused(cluster):
    x = da.zeros((4, 2**20, 2**10, 2**10), chunks=(1, -1, -1, -1), dtype=np.float32)
    with pytest.raises(OpError, match=r"chunks and pieces whose tasks take \d+ bytes.*smaller chunks"):
        apply("nodes::Quantize", x, client=cluster(2, 1))


@pytest.mark.slow
def test_arrays_larger_than_the_memory_of_a_worker(tmp_path):
    zarr = pytest.importorskip("zarr")
    limit, batch = 384 * 2**20, 264
    gen = np.random.default_rng(0)
    stored = {}
    for name, channels in (("dy", 32), ("x", 32)):
        stored[name] = zarr.create_array(tmp_path / f"{name}.zarr", shape=(batch, channels, 112, 112), chunks=(
            8, channels, 112, 112), dtype="float32", compressors=None)
        for first in range(0, batch, 8):
            stored[name][first:first + 8] = gen.standard_normal((8, channels, 112, 112), np.float32)
    w = gen.standard_normal((32, 32, 3, 3), np.float32)
    dy, x = (da.from_zarr(tmp_path / f"{name}.zarr") for name in ("dy", "x"))
    assert min(dy.nbytes, x.nbytes) > limit
    local = distributed.LocalCluster(n_workers=1, threads_per_worker=1, memory_limit=limit, dashboard_address=None)
    with local, distributed.Client(local, set_as_default=False) as client, client.as_current():
        pid = next(iter(client.run(os.getpid).values()))
        dx, dw, db = apply("ascend::ConvolutionBackward", dy, x, w, client=client, **LAYER)
        written = dx.to_zarr(tmp_path / "dx.zarr", compute=False)
        _, dw, db = client.gather(client.compute([written, dw, db]))
        peak = next(iter(client.run(resource.getrusage, resource.RUSAGE_SELF).values())).ru_maxrss * 1024
        assert next(iter(client.run(os.getpid).values())) == pid  # it was not restarted
    assert peak < limit
    expected = convreg.ascend.convolution_backward(stored["dy"][:], stored["x"][:], w, **LAYER)
    assert digest([zarr.open_array(tmp_path / "dx.zarr")[:], dw, db]) == digest(expected)
