"""The fixture `assert_gradient` for pytest: fails a test with convreg's report of what is wrong and where.

    def test_kernel(assert_gradient):
        dx = my_kernel(dy, w)
        assert_gradient("onednn::ConvolutionBackwardData", [dy, w, x.shape], dx, strides=[1, 1], pads_begin=[1, 1],
                        pads_end=[1, 1], dilations=[1, 1], data_format="NCX", weights_format="OIX")

pytest imports this package at every start (entry point ``pytest11``). It stands beside convreg and not in it, because
an import of a part of convreg is an import of NumPy and of the kernels. Those wait until a test asks for a verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ARITHMETIC = ("accumulator", "parts", "operands", "flush_to_zero", "ties", "other")
"""Arguments that say how the kernel computes; `convreg.golden.compare` takes them."""


@pytest.fixture
def assert_gradient() -> Callable[..., Any]:
    """Return a function that judges results of a kernel and fails the test if they are wrong.

    ``assert_gradient(op, inputs, results, *, standard="bound", **attributes)``: `op`, `inputs` and `attributes` are a
    call as `convreg.golden.make` takes it, `results` and `standard` are those of `convreg.golden.compare`, and so are
    `accumulator`, `parts`, `operands`, `flush_to_zero`, `ties` and `other`. `standard` names all that decides: the
    bound does only if it is named, as in ``["bound", "cosine"]``. The function returns the report of a pass.
    """

    def check(op: Any, inputs: Any, results: Any, *, standard: Any = "bound", **attributes: Any) -> Any:
        __tracebackhide__ = True
        from convreg import golden

        kernel = {name: attributes.pop(name) for name in ARITHMETIC if name in attributes}
        report = golden.compare(golden.make(op, inputs, **attributes), results, standard, **kernel)
        if not report:
            pytest.fail(str(report))
        return report

    return check
