"""Weights and bias gradients from parts of a batch have the bits of one call, for any division of their pieces."""

from __future__ import annotations

import pickle
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from batch_calls import LAYER, call_of, gradient_calls, results_of
from convreg.ops.kernels import engine, trees
from drawn_layouts import same_bits
from hypothesis import event, given, settings
from hypothesis import strategies as st

import convreg
from convreg import OpError, OpTypeError
from convreg.distributed import Partial, join, merge, partial, reductions

ASCEND = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}


def part_of(name, tensors, samples):
    """The operands with some samples of the batch."""
    spec = convreg.get(name).spec
    batched = [spec.input_names.index(spec.roles[role]) for role in ("grad_output", "data") if role in spec.roles]
    return [array[samples.start:samples.stop] if place in batched else array for place, array in enumerate(tensors)]


@settings(max_examples=100, deadline=None)
@given(gradient_calls(), st.data())
def test_any_division_has_the_bits_of_one_call(call, data):
    name, tensors, arguments = call
    whole = results_of(name, tensors, arguments)
    for output, how in reductions(name, *tensors, **arguments).items():
        edges = sorted(data.draw(st.sets(st.integers(1, how.pieces - 1), max_size=5))) if how.pieces > 1 else []
        parts = []
        event(f"{len(edges) > 0} divided")
        for first, end in pairwise([0, *edges, how.pieces]):
            pieces = range(first, end)
            samples, more = how.samples(pieces), {}
            if data.draw(st.booleans()):  # more samples than the pieces need
                samples = range(data.draw(st.integers(0, samples.start)), samples.stop)
                more = {"start": samples.start}
            parts.append(pickle.loads(pickle.dumps(partial(
                name, *part_of(name, tensors, samples), pieces=pieces, of=output, batch=how.batch,
                threads=data.draw(st.integers(1, 3)), **more, **arguments))))
        data.draw(st.randoms()).shuffle(parts)
        assert same_bits(join(parts), whole[output]), (name, output, edges)
        assert sum(part.nbytes for part in parts) % how.bytes == 0


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_parts_have_equal_bits_on_every_instruction_set(dtype):
    name, tensors, arguments = call_of(dtype=dtype)
    before, found = engine.isa(), set()
    try:
        for isa in engine.usable():
            engine.use_isa(isa)
            parts = [partial(name, *tensors, pieces=range(first, first + 1), threads=threads, **arguments)
                     for first, threads in enumerate((1, 2, 1, 2))]
            found.add(join(parts).tobytes())
    finally:
        engine.use_isa(before)
    assert found == {convreg.get(name)(*tensors, **arguments).tobytes()}


def test_partial_sums_join_step_by_step_as_they_arrive():
    name, tensors, arguments = call_of(batch=7)
    how = reductions(name, *tensors, **arguments)["diff_weights"]
    assert how.pieces == 7
    left = merge(partial(name, *tensors, pieces=range(n, n + 1), **arguments) for n in range(3))
    right = merge(partial(name, *tensors, pieces=range(n, n + 1), **arguments) for n in (3, 4, 5, 6))
    assert [(one.first, one.end) for one in left.sums] == [(0, 2), (2, 3)]
    assert [(one.first, one.end) for one in right.sums] == [(3, 4), (4, 7)]
    assert join([right, left]).tobytes() == convreg.get(name)(*tensors, **arguments).tobytes()


def test_joining_leaves_the_partial_sums_as_they_were():
    name, tensors, arguments = call_of()
    parts = [partial(name, *tensors, pieces=range(n, n + 1), **arguments) for n in range(4)]
    before = [part.sums[0].values.copy() for part in parts]
    first = join(parts)
    assert all((part.sums[0].values == values).all() for part, values in zip(parts, before, strict=True))
    assert join(parts).tobytes() == first.tobytes()


def test_a_pickle_holds_the_sums_and_no_operand():
    """Partial sums move between workers; a sample or the weights are often larger."""
    gen = np.random.default_rng(0)
    x, dy = (gen.standard_normal((2, channels, 64, 64), np.float32) for channels in (16, 24))
    weight = np.zeros((24, 16, 3, 3), np.float32)
    part = partial("ascend::ConvolutionBackward", dy, x, weight, pieces=range(1), of="gradBias", **ASCEND)
    assert part.nbytes == 4 * 24
    assert len(pickle.dumps(part)) < 4096


def test_spellings_of_one_call_join():
    name, tensors, arguments = call_of()
    swapped = [array.astype(array.dtype.newbyteorder()) for array in tensors]
    spelt = {**arguments, "strides": np.array(arguments["strides"]), "dilations": list(arguments["dilations"])}
    parts = [partial(name, *given, pieces=range(n, n + 1), **more) for n, (given, more) in enumerate(
        ((tensors, arguments), (swapped, arguments), (tensors, spelt), (swapped, spelt)))]
    assert join(parts).tobytes() == convreg.get(name)(*tensors, **arguments).tobytes()


@pytest.mark.parametrize(("one", "other", "match"), [
    ({"conformance": "ascend950"}, {"conformance": "atlas-a2"}, "two with the conformance 'ascend950' and 'atlas-a2'"),
    ({"scales": (None, np.float32(2), None)}, {"scales": (None, np.float32(4), None)}, "two with the scales"),
    ({"cube_math_type": 1}, {"cube_math_type": 2}, "two with the attributes"),
], ids=["conformance", "scales", "attributes"])
def test_partial_sums_of_different_calls_do_not_join(one, other, match):
    gen = np.random.default_rng(0)
    x, dy = (gen.standard_normal((2, 8, 80, 80), np.float32) for _ in range(2))
    arguments = {**ASCEND, "output_mask": (False, True, False), "conformance": "emulation"}
    parts = [partial("ascend::ConvolutionBackward", dy, x, np.zeros((8, 8, 3, 3), np.float32), pieces=pieces,
                     **{**arguments, **more}) for pieces, more in ((range(2), one), (range(2, 4), other))]
    with pytest.raises(OpError, match=match):
        join(parts)


@pytest.mark.parametrize(("first", "end", "pieces", "expected"), [
    (0, 8, 8, [(0, 8)]), (1, 8, 8, [(1, 2), (2, 4), (4, 8)]), (0, 7, 8, [(0, 4), (4, 6), (6, 7)]),
    (4, 7, 7, [(4, 7)]), (5, 7, 7, [(5, 6), (6, 7)]), (0, 5, 5, [(0, 5)]), (3, 4, 9, [(3, 4)]),
])
def test_ranges_divide_into_subtrees(first, end, pieces, expected):
    assert trees.subtrees_of(first, end, pieces) == expected


def test_every_subtree_that_the_tree_adds_is_one_of_its_own():
    """The statement of `core/reduction.h`, step by step, for every number of pieces up to 40."""
    for pieces in range(1, 41):
        ends, added, step = {first: first + 1 for first in range(pieces)}, set(), 1
        while step < pieces:
            for first in range(0, pieces - step, 2 * step):
                added.add((first, first + step, ends[first + step]))
                ends[first] = ends[first + step]
            step *= 2
        found = {(first, middle, end) for first in range(pieces) for middle in range(first + 1, pieces)
                 for end in range(middle + 1, pieces + 1) if trees.adds(first, middle, end, pieces)}
        assert found == added


def test_scales_and_roundings_of_results_apply_once():
    gen = np.random.default_rng(3)
    x, dy = (gen.standard_normal((4, 16, 64, 64)).astype(ml_dtypes.bfloat16) for _ in range(2))
    weight = np.zeros((16, 16, 3, 3), ml_dtypes.bfloat16)
    arguments = {**ASCEND, "conformance": "emulation", "scales": (np.float32(0.3), np.linspace(
        1, 2, 16, dtype=np.float32), None), "output_formats": ("", "hifloat8", "float16"), "rounding": "stochastic",
        "seed": 5, "output_mask": (False, True, True)}
    _, grad_weight, grad_bias = convreg.ascend.convolution_backward(dy, x, weight, **arguments)
    for name, whole in (("gradWeight", grad_weight), ("gradBias", grad_bias)):
        parts = [partial("ascend::ConvolutionBackward", dy, x, weight, pieces=range(n, n + 1), of=name, **arguments)
                 for n in range(4)]
        assert join(parts).tobytes() == whole.tobytes()


def test_nothing_infinite_meets_padding():
    name, tensors, arguments = call_of(dtype=ml_dtypes.bfloat16)
    tensors[1][1, :, 0, :] = np.inf
    whole = convreg.get(name)(*tensors, **arguments)
    parts = [partial(name, *tensors, pieces=range(n, n + 1), **arguments) for n in range(4)]
    assert same_bits(join(parts), whole)
    assert np.isfinite(whole.astype(np.float32)[:, :, 0, :]).all()  # taps that meet no infinite row


@pytest.mark.parametrize("batch", [0, 1])
def test_batches_that_divide_no_further(batch):
    name, tensors, arguments = call_of(batch=batch)
    how = reductions(name, *tensors, **arguments)["diff_weights"]
    assert how.pieces == 1
    assert how.samples(range(1)) == range(batch)
    assert join([partial(name, *tensors, pieces=range(1), **arguments)]).tobytes() == convreg.get(name)(
        *tensors, **arguments).tobytes()


def test_ranges_cover_all_pieces():
    how = reductions("aten::convolution_backward", *(np.broadcast_to(np.float32(0), shape) for shape in (
        (100, 24, 64, 64), (100, 16, 64, 64), (24, 16, 3, 3))), bias_sizes=[24], **ASCEND, transposed=False,
        output_padding=[0, 0], groups=1, output_mask=[True, True, True])
    assert list(how) == ["grad_weight", "grad_bias"]
    for parts in (1, 3, 8, 1000):
        ranges = how["grad_weight"].ranges(parts)
        assert [n for pieces in ranges for n in pieces] == list(range(100))
        assert len(ranges) == min(parts, 100)


def test_operands_of_any_kind_that_the_call_takes():
    """Lists hold float32 numbers, as in the one call; arrays of other packages may have dtypes of their own."""
    class Foreign:
        dtype, shape = "float", (4, 16, 64, 64)

        def __array__(self, dtype=None, copy=None):
            return tensors[0]

    name, tensors, arguments = call_of()
    whole = convreg.get(name)(*tensors, **arguments)
    for first in (tensors[0].tolist(), Foreign()):
        assert reductions(name, first, tensors[1], **arguments)["diff_weights"].pieces == 4
        assert join([partial(name, first, tensors[1], pieces=range(4), **arguments)]).tobytes() == whole.tobytes()


def test_refusals_of_reductions():
    name, tensors, arguments = call_of()
    how = reductions(name, *tensors, **arguments)["diff_weights"]
    for pieces in (range(3, 5), range(-1, 1), range(2, 2), range(0, 4, 2), 1, None):
        with pytest.raises(OpError, match=r"Reduction: pieces=.*within range\(0, 4\)"):
            how.samples(pieces)
    for parts in (0, -1, 1.5, True, None):
        with pytest.raises(OpError, match=r"Reduction: parts=.*a positive integer"):
            how.ranges(parts)


def test_workspace_and_algorithm_describe_parts():
    name, tensors, arguments = call_of()
    whole = convreg.workspace_bytes(name, *tensors, threads=2, **arguments)
    part = convreg.workspace_bytes(name, *tensors, pieces=range(1, 2), threads=2, **arguments)
    assert 0 < part <= whole
    [choice] = convreg.algorithm(name, *tensors, pieces=range(1, 2), threads=2, **arguments)
    [all_of_it] = convreg.algorithm(name, *tensors, threads=2, **arguments)
    assert choice.kernel == "backward_weights"
    assert choice.products == all_of_it.products / 4
    with pytest.raises(OpError, match="convreg::workspace_bytes: pieces="):
        convreg.workspace_bytes(name, *tensors, pieces=range(4, 5), **arguments)


def test_forced_algorithms_compute_parts():
    name, tensors, arguments = call_of()
    whole = convreg.get(name)(*tensors, **arguments)
    for algorithm in ("reference", "weights_product"):
        with convreg.force_algorithm(algorithm):
            parts = [partial(name, *tensors, pieces=range(n, n + 2), **arguments) for n in (0, 2)]
        assert join(parts).tobytes() == whole.tobytes()


def refused(match, *args, **kwargs):
    with pytest.raises(OpError, match=match):
        partial(*args, **kwargs)


def test_refusals_of_partial():
    name, tensors, arguments = call_of()
    for pieces in (range(0), range(3, 5), range(0, 4, 2), 1, None, [0, 1]):
        refused(r"convreg::distributed::partial: pieces=.*within range\(0, 4\)", name, *tensors, pieces=pieces,
                **arguments)
    refused("batch=3 is refused", name, *tensors, pieces=range(1), batch=3, **arguments)
    refused("start=1 is refused", name, *tensors, pieces=range(1), start=1, **arguments)
    refused("start=0 is refused", name, *[x[:1] for x in tensors], pieces=range(2, 3), batch=4, start=0, **arguments)
    refused("of='other' is refused; allowed: 'diff_weights'", name, *tensors, pieces=range(1), of="other", **arguments)
    refused("of=array", name, *tensors, pieces=range(1), of=np.array(["a", "b"]), **arguments)
    refused("op='onednn::ConvolutionBackwardData' is refused", "onednn::ConvolutionBackwardData", tensors[1],
            np.zeros((24, 16, 3, 3), np.float32), tensors[0].shape, pieces=range(1), **LAYER)
    refused("equal batch sizes", name, tensors[0], tensors[1][:3], pieces=range(1), **arguments)
    with pytest.raises(OpTypeError, match="out='given' is refused"):
        partial(name, *tensors, pieces=range(1), out=np.zeros((24, 16, 3, 3), np.float32), **arguments)
    with pytest.raises(OpTypeError, match="pieces"):
        partial(name, *tensors, **arguments)
    both = (*tensors[::-1], np.zeros((24, 16, 3, 3), np.float32))
    refused("of=None is refused; allowed: 'gradWeight' or 'gradBias'", "ascend::ConvolutionBackward", *both,
            pieces=range(1), **ASCEND)
    refused("of=None is refused; allowed: a call that computes", "ascend::ConvolutionBackward", *both,
            pieces=range(1), output_mask=(True, False, False), **ASCEND)


def test_refusals_of_join():
    name, tensors, arguments = call_of()
    parts = [partial(name, *tensors, pieces=range(n, n + 1), **arguments) for n in range(4)]
    other = partial(name, *[x[:3] for x in tensors], pieces=range(3), **arguments)
    for parts_given, match in (
        ([], "partials='none'"), ([1], "partials="), (3, "partials="), (parts[:3], "without the pieces 3 to 3"),
        (parts[1:], "without the pieces 0 to 0"), ([parts[0], *parts[2:]], "ranges of pieces that follow one another"),
        ([parts[0], *parts], "ranges of pieces that follow one another"), ([parts[0], other], "two with the batch"),
    ):
        with pytest.raises(OpError, match=match):
            join(parts_given)
    assert isinstance(merge(parts), Partial)
