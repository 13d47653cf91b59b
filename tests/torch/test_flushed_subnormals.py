"""Kernels beside a PyTorch that flushes subnormal numbers: they keep them, whatever the thread that calls is set to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import convreg
from convreg import onednn

torch = pytest.importorskip("torch")

GEN = np.random.default_rng(7)
DY, W = ((GEN.standard_normal(extents) * scale).astype(np.float32)
         for extents, scale in [((2, 64, 16, 16), 2.0**-70), ((64, 64, 3, 3), 2.0**-64)])
SMALL = (GEN.standard_normal(1 << 17) * 2.0**-130).astype(np.float32)
"""Subnormal numbers, and enough of them for two threads."""
WIDE = SMALL.astype(np.float64)


@pytest.fixture
def flushing() -> Iterator[None]:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush")
    yield
    torch.set_flush_denormal(False)


def gradient(threads: int) -> np.ndarray:
    return onednn.convolution_backward_data(
        DY, W, strides=[1, 1], pads_begin=[1, 1], pads_end=[1, 1], dilations=[1, 1], dst_shape=[2, 64, 16, 16],
        data_format="NCX", weights_format="OIX", threads=threads)


CALLS = {
    "gradient": gradient,
    "float64 to float32": lambda threads: convreg.quantize(WIDE, "float32", threads=threads),
    "float32 to float64": lambda threads: convreg.dequantize(SMALL, dtype=np.float64, threads=threads),
    "scaled": lambda threads: convreg.quantize(SMALL, "bfloat16", scale=2.0**4, threads=threads),
    "stochastic": lambda threads: convreg.quantize(SMALL, "bfloat16", rounding="stochastic", seed=3, threads=threads),
}
EXPECTED = {(name, threads): call(threads) for name, call in CALLS.items() for threads in (1, 2)}
"""Computed before anything flushes."""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CALLS)
def test_subnormal_numbers_are_kept(flushing, name, threads):
    got, expected = CALLS[name](threads), EXPECTED[name, threads]
    assert got.tobytes() == expected.tobytes()  # as bytes: comparisons would flush, too
    assert float(torch.tensor([2.0**-130]) * 1) == 0
