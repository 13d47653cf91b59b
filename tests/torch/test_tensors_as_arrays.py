"""Tensors of PyTorch as arguments of operators, verdicts and conversions, without `convreg.torch`."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import convreg  # noqa: E402
from convreg import golden, numerics  # noqa: E402
from convreg.errors import OpTypeError  # noqa: E402

OP = "aten::convolution_backward"
LAYER = {"bias_sizes": None, "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": False,
         "output_padding": [0, 0], "groups": 1, "output_mask": [True, True, False], "conformance": "emulation"}
DTYPES = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)


def pairs(dtype):
    """Operands as tensors and as arrays: a permuted one, every other row of one, and a plain one."""
    made = torch.Generator().manual_seed(1)
    dy, x, w = (torch.randn(shape, generator=made).to(dtype) for shape in ((2, 5, 6, 4), (2, 3, 10, 6), (4, 3, 3, 3)))
    given = dy.permute(0, 3, 1, 2), x[:, :, ::2], w
    name = str(dtype).removeprefix("torch.")
    return given, [tensor.float().numpy().astype(convreg.finfo(name).dtype) for tensor in given]


def equal(mine, due):
    return mine.dtype == due.dtype and mine.shape == due.shape and mine.tobytes() == due.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_operators_take_tensors(dtype):
    given, arrays = pairs(dtype)
    for mine, due in zip(convreg.aten.convolution_backward(*given, **LAYER)[:2],
                         convreg.aten.convolution_backward(*arrays, **LAYER)[:2], strict=True):
        assert equal(mine, due)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conversions_take_tensors(dtype):
    (_, given, _), (_, array, _) = pairs(dtype)
    assert equal(convreg.quantize(given, "hifloat8"), convreg.quantize(array, "hifloat8"))
    assert equal(convreg.dequantize(given), convreg.dequantize(array))
    assert not convreg.ulp_distance(given, array).any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_verdicts_take_tensors(dtype):
    given, arrays = pairs(dtype)
    vectors = golden.make(OP, given, **LAYER)
    results = {name: torch.tensor(np.array(array, np.float32)).to(dtype) for name, array in vectors.outputs.items()}
    assert golden.compare(vectors, results).passed
    results["grad_input"][0, 0, 0, 0] = 448
    assert not golden.compare(vectors, results).passed
    with pytest.raises(OpTypeError, match="grad_input"):
        golden.compare(vectors, {**results, "grad_input": results["grad_input"].to(torch.float32)})
    assert str(numerics.compare(OP, given, LAYER)) == str(numerics.compare(OP, arrays, LAYER))


@pytest.mark.parametrize(("tensor", "reason"), [
    (torch.ones(1, 3, 4, 4, dtype=torch.bfloat16, requires_grad=True), "requires grad"),
    (torch.ones(1, 3, 4, 4, dtype=torch.bfloat16, device="meta"), "meta"),
    (torch.ones(1, 3, 4, 4, dtype=torch.bfloat16).to_sparse(), "Sparse"),
    (torch.ones(1, 3, 4, 4, dtype=torch.float8_e4m3fnuz), "Float8_e4m3fnuz")], ids=["grad", "meta", "sparse", "fnuz"])
def test_other_tensors_are_refused(tensor, reason):
    with pytest.raises(OpTypeError, match=f"input='Tensor' is refused; .*{reason}"):
        convreg.aten.convolution_backward(np.ones((1, 2, 4, 4), np.float32), tensor, np.ones((2, 3, 3, 3), np.float32),
                                          **LAYER)
