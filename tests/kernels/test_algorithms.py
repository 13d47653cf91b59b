"""What convreg.algorithm tells about a call, and calls that must take a named algorithm."""

from __future__ import annotations

import asyncio
import threading

import ml_dtypes
import numpy as np
import pytest
from convreg.ops.kernels import engine
from engine_comparison import each_instruction_set
from places import ROOT
from valid_calls import VALID, several

import convreg
from convreg import OpError, OpTypeError

LAYER = {"strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1], "data_format": "NCX",
         "weights_format": "OIX"}
ATEN = {"bias_sizes": [24], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": False,
        "output_padding": [0, 0], "groups": 1, "output_mask": [True, True, True]}
KERNELS = {
    "onednn::Convolution": ["forward"], "onednn::ConvTranspose": ["backward_data"],
    "onednn::ConvolutionBackwardData": ["backward_data"], "onednn::ConvolutionBackwardWeights": ["backward_weights"],
    "onednn::ConvTransposeBackwardData": ["forward"], "onednn::ConvTransposeBackwardWeights": ["backward_weights"],
    "openvino::ConvolutionBackpropData": ["backward_data"],
    "openvino::GroupConvolutionBackpropData": ["backward_data"],
    "aten::convolution_backward": ["backward_data", "backward_weights", "bias_sum"],
    "ascend::ConvolutionBackward": ["backward_data", "backward_weights", "bias_sum"],
    "microsoft::ConvGrad": ["backward_data", "backward_weights", "bias_sum"],
    "nodes::Quantize": [], "nodes::Dequantize": [],
}
BACKWARD = "aten::convolution_backward"
WEIGHTS = "onednn::ConvolutionBackwardWeights"


def operands(dtype=np.float32, batch: int = 2) -> list[np.ndarray]:
    """The gradient of the output, the data and the weights of a layer that `laid_out` and `gathered` fit."""
    gen = np.random.default_rng(0)
    return [gen.standard_normal(shape).astype(dtype) for shape in ((batch, 24, 20, 20), (batch, 16, 20, 20),
                                                                   (24, 16, 3, 3))]


def data_gradient(**more):
    dy, x, w = operands()
    return convreg.onednn.convolution_backward_data(dy, w, x.shape, **LAYER, **more)


def chosen(operator, *args, **more) -> list[str]:
    return [choice.name for choice in convreg.algorithm(operator, *args, **more)]


@pytest.fixture
def isa():
    """The instruction set of before comes back."""
    before = engine.isa()
    yield before
    engine.use_isa(before)


# ---------------------------------------------------------------------------------------------------------------------
# What is told


@pytest.mark.parametrize("name", VALID)
def test_choices_of_every_operator(name):
    call = VALID[name]
    choices = convreg.algorithm(name, *call.tensors, **call.arguments, threads=1)
    assert [choice.kernel for choice in choices] == KERNELS[name]
    for choice in choices:
        assert choice.isa == engine.isa()
        assert choice.threads == 1
        assert choice.products > 0
        assert choice.name in [one.name for one in choice.candidates]
        assert [one.cycles for one in choice.candidates] == sorted(one.cycles for one in choice.candidates)
        for one in choice.candidates:
            assert one.name in convreg.algorithm_names()
            assert one.name.startswith("weights_") == (choice.kernel in ("backward_weights", "bias_sum"))
            assert one.cycles > 0
            assert one.workspace > 0
            assert one.source.endswith(".pxi")


def test_choices_are_printed_as_a_table():
    dy, x, w = operands()
    choice, = convreg.algorithm("onednn::ConvolutionBackwardData", dy, w, x.shape, **LAYER, threads=1)
    lines = str(choice).splitlines()
    assert lines[0] == f"backward_data: {choice.name} (multiply-adds, {engine.isa()}, threads: 1)"
    assert lines[1].split() == ["algorithm", "unit", "Mcycles", "ms", "KiB", "file"]
    assert [line.split()[0] for line in lines[3:]] == [one.name for one in choice.candidates]


def test_sources_are_files_of_the_engine():
    folder = ROOT / "ops" / "kernels" / "engine"
    if not folder.is_dir():
        pytest.skip("needs the source checkout")
    for call in VALID.values():
        for choice in convreg.algorithm(call.name, *call.tensors, **call.arguments):
            assert all((folder / one.source).is_file() for one in choice.candidates)


def test_the_workspace_is_that_of_workspace_bytes():
    """Of the algorithm that is told, if no other is tried."""
    for name, call in VALID.items():
        for threads in (1, 3):
            choices = convreg.algorithm(name, *call.tensors, **call.arguments, threads=threads)
            if len(choices) == 1 and choices[0].unit == "multiply-adds":
                told, = [one.workspace for one in choices[0].candidates
                         if (one.name, one.unit) == (choices[0].name, choices[0].unit)]
                needed = convreg.workspace_bytes(name, *call.tensors, **call.arguments, threads=threads)
                assert told == needed or told < needed in [one.workspace for one in choices[0].candidates]


def test_nothing_is_told_of_empty_results():
    dy, x, w = operands(batch=0)
    assert convreg.algorithm("onednn::ConvolutionBackwardData", dy, w, x.shape, **LAYER) == []


def test_nothing_is_computed_and_operands_are_not_read():
    hollow = [np.broadcast_to(np.float32(1), array.shape) for array in operands()]
    out = np.full(hollow[1].shape, 7, np.float32)
    choice, = convreg.algorithm("onednn::ConvolutionBackwardData", hollow[0], hollow[2], out.shape, **LAYER, out=out)
    assert choice.kernel == "backward_data"
    assert (out == 7).all()


def test_functions_and_names_are_told_alike():
    dy, x, w = operands()
    by_name = convreg.algorithm(BACKWARD, dy, x, w, **ATEN, threads=1)
    assert convreg.algorithm(convreg.aten.convolution_backward, dy, x, w, **ATEN, threads=1) == by_name


def test_float64_has_algorithms_of_its_own():
    assert chosen(BACKWARD, *operands(np.float64), **ATEN) == ["float64", "weights_float64", "weights_float64"]


def test_formats_change_the_unit(isa):
    dy, x, w = operands(ml_dtypes.bfloat16)
    for name in each_instruction_set():
        choice = convreg.algorithm("onednn::ConvolutionBackwardData", dy, w, x.shape, **LAYER)[0]
        units = {"amx": "matrix unit", "avx512bf16": "dot products"}
        assert choice.unit == units.get(name, "multiply-adds")
        assert choice.isa == name


def test_strides_change_the_choice():
    shape, w = (2, 64, 14, 14), np.zeros((64, 1, 3, 3), np.float32)
    names = {}
    for layout in ("NCX", "NXC"):
        x = np.zeros(shape if layout == "NCX" else (2, 14, 14, 64), np.float32)
        names[layout] = chosen("onednn::ConvolutionBackwardData", x, w, x.shape, **{**LAYER, "data_format": layout},
                               groups=64)
    assert names["NXC"] == ["depthwise_nxc"]
    assert names["NCX"] != names["NXC"]


def test_the_instruction_set_changes_the_choice(isa):
    x, w = np.zeros((2, 64, 14, 14), np.float32), np.zeros((64, 1, 3, 3), np.float32)
    names = {}
    for name in each_instruction_set():
        names[name], = chosen("onednn::ConvolutionBackwardData", x, w, x.shape, **LAYER, groups=64)
    assert names.get("avx512", "depthwise_planes") == "depthwise_planes"
    assert names.get("avx2", "depthwise_planes") == "depthwise_planes"
    assert names.get("generic", "") not in ("depthwise_planes", "depthwise_ncx")


def test_threads_change_the_answer():
    dy, x, w = operands()
    told = {threads: convreg.algorithm("onednn::ConvolutionBackwardData", dy, w, x.shape, **LAYER, threads=threads)[0]
            for threads in (1, 3)}
    assert [told[threads].threads for threads in (1, 3)] == ([1, 3] if convreg.capabilities()["openmp"] else [1, 1])
    if told[3].threads == 3:
        assert told[1].candidates[0].workspace < told[3].candidates[0].workspace
    small = VALID["onednn::ConvolutionBackwardData"]
    assert convreg.algorithm(small.name, *small.tensors, **small.arguments, threads=3)[0].threads == 1


def test_calls_are_refused_as_the_operator_refuses_them():
    dy, x, w = operands()
    for name, args, arguments in [
        ("onednn::ConvolutionBackwardData", (dy, w, (2, 16, 21, 20)), LAYER),
        ("onednn::ConvolutionBackwardData", (dy, w, x.shape), {**LAYER, "conformance": "no such"}),
        ("onednn::ConvolutionBackwardData", (dy, w.astype(np.int32), x.shape), LAYER),
        ("onednn::ConvolutionBackwardData", (dy, w, x.shape), {**LAYER, "threads": 0}),
        (BACKWARD, (dy, x), ATEN),
        ("openvino::ConvolutionBackpropData", (dy, w), {**VALID["openvino::ConvolutionBackpropData"].arguments,
                                                        "auto_pad": "middle"}),
    ]:
        with pytest.raises(OpError) as called:
            convreg.get(name)(*args, **arguments)
        with pytest.raises(OpError) as asked:
            convreg.algorithm(name, *args, **arguments)
        assert (type(asked.value), str(asked.value)) == (type(called.value), str(called.value))
    with pytest.raises(convreg.UnknownOp):
        convreg.algorithm("onednn::NoSuch", dy, w)


def test_references_take_any_algorithm_but_the_plain_loops_if_those_are_forced(monkeypatch):
    dy, x, w = operands()
    named = []
    compute = engine.backward_data

    def backward_data(*arrays, algorithm=None, **settings):
        named.append(algorithm)
        compute(*arrays, algorithm=algorithm, **settings)

    monkeypatch.setattr(engine, "backward_data", backward_data)
    results = []
    for forced in ("gathered", "reference"):
        with convreg.force_algorithm(forced):
            results.append(convreg.onednn.convolution_backward_data.reference(dy, w, x.shape, **LAYER))
    assert named == [None, "reference"]
    assert np.array_equal(*results)


def test_an_unknown_instruction_set_is_refused(monkeypatch):
    call = VALID["onednn::Convolution"]
    monkeypatch.setattr(engine, "unknown_isa", "mmx")
    with pytest.raises(OpError, match="CONVREG_ISA"):
        convreg.algorithm(call.name, *call.tensors, **call.arguments)


# ---------------------------------------------------------------------------------------------------------------------
# Calls that name an algorithm


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.usefixtures("guarded_workspace")
def test_forced_algorithms_give_equal_bits(dtype):
    dy, x, w = operands(dtype)
    expected = several(convreg.aten.convolution_backward(dy, x, w, **ATEN))
    names = {one.name for choice in convreg.algorithm(BACKWARD, dy, x, w, **ATEN) for one in choice.candidates}
    assert names
    for name in ("reference", *names):
        with convreg.force_algorithm(name):
            told = chosen(BACKWARD, dy, x, w, **ATEN)
            results = several(convreg.aten.convolution_backward(dy, x, w, **ATEN))
        assert name in told
        for result, wanted in zip(results, expected, strict=True):
            assert np.array_equal(result.view("u1"), wanted.view("u1"))


def test_all_but_the_named_kernels_choose_freely():
    dy, x, w = operands()
    free = chosen(BACKWARD, dy, x, w, **ATEN)
    with convreg.force_algorithm("gathered"):
        assert chosen(BACKWARD, dy, x, w, **ATEN) == ["gathered", *free[1:]]
    with convreg.force_algorithm("weights_product"):
        assert chosen(BACKWARD, dy, x, w, **ATEN) == [free[0], "weights_product", free[2]]
    with convreg.force_algorithm("reference"):
        assert chosen(BACKWARD, dy, x, w, **ATEN) == ["reference", "reference", free[2]]


def test_unknown_names():
    with pytest.raises(OpError, match="did you mean gathered") as caught, convreg.force_algorithm("gathred"):
        pass
    assert (caught.value.op, caught.value.argument) == ("convreg::force_algorithm", "name")
    assert all(repr(name) in caught.value.allowed for name in convreg.algorithm_names())
    for name in ("", "Gathered", "gathered ", "x" * 1000):
        with pytest.raises(OpError), convreg.force_algorithm(name):
            pass


@pytest.mark.parametrize("name", [None, 3, b"gathered", ["gathered"], np.str_])
def test_names_of_a_wrong_type(name):
    with pytest.raises(OpTypeError), convreg.force_algorithm(name):
        pass


@pytest.mark.parametrize("name", ["depthwise_nxc", "float64"])
def test_a_misfit_is_refused_with_the_names_that_fit(name):
    out = np.full(operands()[1].shape, 7, np.float32)
    fitting = {"gathered", "laid_out"}
    with convreg.force_algorithm(name):
        for compute in (data_gradient, lambda **more: convreg.algorithm(
                "onednn::ConvolutionBackwardData", operands()[0], operands()[2], out.shape, **LAYER, **more)):
            with pytest.raises(OpError, match=f"{name}' does not fit") as caught:
                compute(out=out)
            assert caught.value.op == "onednn::ConvolutionBackwardData"
            assert {part.strip() for part in caught.value.allowed.partition(":")[2].split(",")} >= fitting
    assert (out == 7).all()
    assert np.array_equal(data_gradient(out=out), data_gradient())


def test_a_misfit_of_one_kernel_writes_no_output():
    dy, x, w = operands()
    out = tuple(np.full(array.shape, 7, np.float32) for array in (x, w, w[:, 0, 0, 0]))
    with pytest.raises(OpError), convreg.force_algorithm("weights_float64"):
        convreg.aten.convolution_backward(dy, x, w, **ATEN, out=out)
    assert all((array == 7).all() for array in out)


@pytest.mark.skipif("avx512bf16" not in engine.usable(), reason="no dot products of bfloat16")
def test_values_do_not_decide_whether_an_algorithm_fits(isa):
    """Sums that may become subnormal are computed again with multiply-adds, for which blocks would be too large."""
    engine.use_isa("avx512bf16")
    far = {**LAYER, "strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [42991]}
    out = np.full((1, 4, 10), 7, ml_dtypes.bfloat16)
    outcomes = []
    for x, w in ((1, 1), (1e-25, 1e-20)):
        operands = np.full((1, 3, 43001), x, out.dtype), np.full((4, 3, 2), w, out.dtype)
        try:
            with convreg.force_algorithm("laid_out"):
                convreg.onednn.convolution(*operands, **far, out=out, threads=1)
            outcomes.append("computed")
        except OpError:
            outcomes.append("refused")
    assert len({*outcomes}) == 1


def test_the_reference_takes_operands_of_two_formats():
    dy, x, w = operands()
    arguments = {**LAYER, "conformance": "emulation"}
    mixed = convreg.quantize(dy, "bfloat16"), w, x.shape
    expected = convreg.onednn.convolution_backward_data(*mixed, **arguments)
    with convreg.force_algorithm("reference"):
        assert np.array_equal(convreg.onednn.convolution_backward_data(*mixed, **arguments), expected)


def test_the_block_ends_the_forcing():
    dy, x, w = operands()
    free = chosen(BACKWARD, dy, x, w, **ATEN)
    with pytest.raises(KeyError), convreg.force_algorithm("gathered"):
        raise KeyError("lost")
    with pytest.raises(OpError), convreg.force_algorithm("depthwise_nxc"):
        data_gradient()
    assert chosen(BACKWARD, dy, x, w, **ATEN) == free


def test_blocks_nest():
    def told():
        dy, x, w = operands()
        return chosen("onednn::ConvolutionBackwardData", dy, w, x.shape, **LAYER)

    with convreg.force_algorithm("gathered"):
        with convreg.force_algorithm("reference"):
            assert told() == ["reference"]
        assert told() == ["gathered"]


def test_repeated_calls_are_forced():
    """A call that the cache of earlier calls holds."""
    for _ in range(2):
        data_gradient()
    with convreg.force_algorithm("depthwise_nxc"), pytest.raises(OpError):
        data_gradient()
    data_gradient()


def test_other_threads_choose_freely():
    results = []

    def compute():
        try:
            results.append(data_gradient())
        except OpError as error:
            results.append(error)

    with convreg.force_algorithm("depthwise_nxc"):
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
    assert isinstance(results[0], np.ndarray)


def test_tasks_are_forced_alone():
    dy, x, w = operands()

    async def told(name):
        with convreg.force_algorithm(name):
            await asyncio.sleep(0)
            names = chosen("onednn::ConvolutionBackwardData", dy, w, x.shape, **LAYER)
            await asyncio.sleep(0)
        return names

    async def both():
        return await asyncio.gather(told("gathered"), told("laid_out"), told("reference"))

    assert asyncio.run(both()) == [["gathered"], ["laid_out"], ["reference"]]


def test_names_are_those_of_the_engine():
    names = convreg.algorithm_names()
    assert names == engine.algorithm_names()
    assert names[0] == "reference"
    assert len({*names}) == len(names)
    names.clear()
    assert convreg.algorithm_names()
