"""Operators over Dask arrays return the bits of one call, however the batch is chunked."""

from __future__ import annotations

import cProfile
import pstats
import random

import numpy as np
import pytest
from batch_calls import LAYER, WEIGHTS, gradient_calls, layer, results_of
from drawn_layouts import drawn_call, run, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

import convreg
from convreg import OpError, OpTypeError
from convreg.distributed import apply
from convreg.partial_calls import BATCHED
from convreg.spec import OpSpec

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

ASCEND = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}


def batched(spec: OpSpec) -> list[int]:
    return [spec.input_names.index(spec.roles[role]) for role in BATCHED if role in spec.roles]


def chunks_of(rng: random.Random, batch: int) -> tuple[int, ...]:
    """Any division of a batch, also into parts without samples."""
    edges = sorted(rng.randint(0, batch) for _ in range(rng.randint(0, 4)))
    return tuple(end - first for first, end in zip([0, *edges], [*edges, batch], strict=True))


def chunked(rng: random.Random, array: np.ndarray):
    return da.from_array(array, chunks=(chunks_of(rng, array.shape[0]), *array.shape[1:]))


def computed(results) -> list[np.ndarray | None]:
    results = results if isinstance(results, tuple) else (results,)
    return [None if result is None else np.asarray(result.compute(scheduler="synchronous")) for result in results]


@settings(max_examples=40, deadline=None)
@given(gradient_calls(), st.integers(0, 2**32))
def test_gradients_have_the_bits_of_one_call(call, seed):
    name, tensors, arguments = call
    rng, places = random.Random(seed), batched(convreg.get(name).spec)
    divided = [chunked(rng, array) if place in places else array for place, array in enumerate(tensors)]
    results = apply(name, *divided, **arguments)
    for port, result in zip(convreg.get(name).spec.outputs, computed(results), strict=True):
        expected = results_of(name, tensors, arguments)[port.name]
        assert (result is None) == (expected is None)
        assert result is None or same_bits(result, expected), (name, port.name)


@pytest.mark.parametrize("number", range(2 * len(convreg.operators())))
def test_every_operator_over_chunks(number):
    call = drawn_call(5, number).call
    spec, rng = convreg.get(call.name).spec, random.Random(number)
    tensors = [chunked(rng, array) if place in batched(spec) and array.ndim else array
               for place, array in enumerate(call.tensors)]
    if not any(isinstance(array, da.Array) for array in tensors):
        pytest.skip("a tensor without axes")
    results = computed(apply(call.name, *tensors, **call.arguments))
    for result, expected in zip(results, run(call, call.tensors), strict=True):
        assert (result is None) == (expected is None)
        assert result is None or same_bits(result, expected), call


def test_results_have_the_chunks_of_the_batch_and_none_where_masked():
    gen = np.random.default_rng(0)
    x, dy = (gen.standard_normal((5, channels, 9, 9), np.float32) for channels in (2, 3))
    w = gen.standard_normal((3, 2, 3, 3), np.float32)
    dx, dw, db = apply(convreg.ascend.convolution_backward, da.from_array(dy, chunks=(2, -1, -1, -1)),
                       da.from_array(x, chunks=(3, -1, -1, -1)), w, output_mask=(True, False, True), **ASCEND)
    assert dx.chunks == ((3, 2), (2,), (9,), (9,))
    assert dw is None
    assert db.chunks == ((3,),)
    whole = convreg.ascend.convolution_backward(dy, x, w, **ASCEND)
    assert dx.compute(scheduler="synchronous").tobytes() == whole[0].tobytes()
    assert db.compute(scheduler="synchronous").tobytes() == whole[2].tobytes()


@pytest.mark.parametrize("chunks", [1, 3, (4, 0, 3)])
def test_stochastic_rounding_numbers_the_elements_of_the_whole_batch(chunks):
    gen = np.random.default_rng(0)
    x, dy = (gen.standard_normal((7, channels, 5, 5), np.float32) for channels in (3, 3))
    w = gen.standard_normal((3, 3, 3, 3), np.float32)
    arguments = {**ASCEND, "conformance": "emulation", "output_formats": ("hifloat8",) * 3, "rounding": "stochastic",
                 "seed": 11}
    parts = computed(apply("ascend::ConvolutionBackward", da.from_array(dy, chunks=(chunks, -1, -1, -1)), x, w,
                           **arguments))
    for part, whole in zip(parts, convreg.ascend.convolution_backward(dy, x, w, **arguments), strict=True):
        assert part.tobytes() == whole.tobytes()
    numbers = da.from_array(x, chunks=(chunks, -1, -1, -1))
    more = {"rounding": "stochastic", "seed": 3}
    scale = gen.uniform(1, 2, (7, 1, 1, 1)).astype(np.float32)
    for given_scale in (None, scale, np.float32([1.5])):
        part = apply(convreg.nodes.quantize, numbers, given_scale, **more).compute(scheduler="synchronous")
        assert part.tobytes() == convreg.nodes.quantize(x, given_scale, **more).tobytes()


def test_a_graph_takes_as_long_as_it_has_chunks():
    """The work before anything is computed, in calls of functions; `delayed` takes ten thousand for each chunk."""
    x = da.zeros((1200, 4, 50, 50), chunks=(3, -1, -1, -1), dtype=np.float32)  # pieces cross chunks
    arguments = {**LAYER, "weights_shape": (4, 4, 3, 3)}
    apply(WEIGHTS, x[:3], x[:3], **arguments)  # imports
    with cProfile.Profile() as profile:
        apply(WEIGHTS, x, x, **arguments)
    assert pstats.Stats(profile).total_calls < 1000 * len(x.chunks[0])


def test_arrays_of_the_other_byte_order():
    x, dy = (array[:, :, :50, :50] for array in layer())  # some pieces cross chunks, some do not
    swapped = da.from_array(x.astype(x.dtype.newbyteorder()), chunks=(2, -1, -1, -1))
    dw = apply(WEIGHTS, swapped, da.from_array(dy, chunks=(2, -1, -1, -1)), weights_shape=(24, 16, 3, 3), **LAYER)
    assert dw.compute(scheduler="synchronous").tobytes() == convreg.get(WEIGHTS)(
        x, dy, weights_shape=(24, 16, 3, 3), **LAYER).tobytes()


def test_a_batch_without_samples():
    x, dy = (da.zeros((0, channels, 9, 9), dtype=np.float32) for channels in (16, 24))
    dw = apply(WEIGHTS, x, dy, weights_shape=(24, 16, 3, 3), **LAYER)
    assert not dw.compute(scheduler="synchronous").any()


def test_a_failing_chunk_is_named():
    x, dy = (da.from_array(array, chunks=(1, -1, -1, -1)) for array in layer())

    def spoilt(block, block_info=None):
        return block[:, :3] if block_info[0]["chunk-location"][0] == 2 else block

    dw = apply(WEIGHTS, x.map_blocks(spoilt, meta=x), dy, weights_shape=(24, 16, 3, 3), **LAYER)
    with pytest.raises(OpError, match="onednn::ConvolutionBackwardWeights: ") as caught:
        dw.compute(scheduler="synchronous")
    assert caught.value.__notes__ == ["in samples 2 to 2 of 4"]


@pytest.mark.parametrize(("spoilt", "found"), [
    (lambda block: block[:1], r"float32 of shape \[[12], 5, 5\]"),  # a sum needs both chunks
    (lambda block: block.astype(np.float16), r"float16 of shape \[[24], 5, 5\]"),
], ids=["samples", "dtype"])
def test_chunks_that_are_not_as_stated_are_refused(spoilt, found):
    """Dask takes the word of `map_blocks`; other numbers of samples or formats would give other bits, silently."""
    x = da.ones((4, 5, 5), chunks=(2, -1, -1), dtype=np.float32)
    spoilt = x.map_blocks(spoilt, meta=x._meta)
    w, layer = np.ones((5, 5, 1), np.float32), {"stride": (1,), "padding": (0,), "dilation": (1,)}
    allowed = r".* is refused; allowed: float32 of shape \[[24], 5, 5\], as the Dask array states"
    for result in (apply("nodes::Quantize", spoilt), *apply(
            "ascend::ConvolutionBackward", spoilt, spoilt, w, **layer, conformance="emulation")):
        with pytest.raises(OpError, match=found + allowed):
            result.compute(scheduler="synchronous")


@pytest.mark.parametrize("chunk", [None, 3.0, "words", np.float32(1), [[1.0] * 5] * 5], ids=lambda chunk: type(
    chunk).__name__)
@pytest.mark.parametrize("samples", [(2, 2), (1, 3), (4,)], ids=str)
def test_chunks_that_are_no_arrays_are_refused(chunk, samples):
    x = da.concatenate([da.from_delayed(dask.delayed(lambda: chunk, pure=False)(), (count, 5, 5), np.float32)
                        for count in samples])
    w, layer = np.ones((5, 5, 1), np.float32), {"stride": (1,), "padding": (0,), "dilation": (1,)}
    gradients = apply("ascend::ConvolutionBackward", x, x, w, **layer, conformance="emulation")
    for op, results in (("nodes::Quantize: x", [apply("nodes::Quantize", x)]),
                        ("ascend::ConvolutionBackward: gradOutput", gradients)):
        for result in results:
            with pytest.raises(OpTypeError, match=f"{op}='a chunk of type {type(chunk).__name__}' is refused; allowed: "
                                                  "a Dask array whose chunks are NumPy arrays") as caught:
                result.compute(scheduler="synchronous")
            assert caught.value.__notes__[0].startswith("in samples ")


def test_refusals():
    x, dy = layer()
    whole = [da.from_array(array, chunks=(2, -1, -1, -1)) for array in (x, dy)]

    def refused(match, *args, kind=OpError, op=WEIGHTS, **more):
        with pytest.raises(kind, match=match):
            apply(op, *args, **({"weights_shape": (24, 16, 3, 3), **LAYER} if op == WEIGHTS else {}), **more)

    refused(r"src='chunks \(32, 32\) along axis 2' is refused; allowed: chunks along axis 0", whole[0].rechunk(
        {2: 32}), whole[1])
    refused("chunks of unknown extent along axis 0", whole[0][whole[0][:, 0, 0, 0] > 0], whole[1])
    refused("no Dask array", x, dy)
    refused("equal batch sizes", whole[0][:2], whole[1])
    refused("client='tcp://localhost:1' is refused; allowed: a distributed.Client", *whole, client="tcp://localhost:1")
    refused("client=3 is refused", *whole, client=3, kind=OpTypeError)
    refused("out='given'", *whole, out=np.zeros((24, 16, 3, 3), np.float32), kind=OpTypeError)
    refused("threads=0 is refused", *whole, threads=0)
    w = da.zeros((24, 16, 3, 3), dtype=np.float32)
    refused("weight='a Dask array' is refused; allowed: a NumPy array", whole[1], whole[0], w,
            op="ascend::ConvolutionBackward", kind=OpTypeError, **ASCEND)
    refused("x='a tensor without axes'", da.zeros((), dtype=np.float32), op="nodes::Quantize")
    with pytest.raises(convreg.UnknownOp):
        apply("onednn::Nothing", *whole)
