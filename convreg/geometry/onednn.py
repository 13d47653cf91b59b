"""oneDNN Graph's rules: layouts, shape resolution, padding and the size relation, with row numbers R14 to R32.

Source: operation pages and `shape_infer.cpp` of oneDNN 3.13/3.14; conformance ``"document"`` follows the pages,
``"library"`` what the released library computes.
"""

from __future__ import annotations

from typing import NamedTuple

from ..spec import Call, Dim, Shape
from . import Axis, Geometry, effective, halves, ints, reach

SPATIAL_LISTS = ("strides", "pads_begin", "pads_end", "dilations")
TRANSPOSED = ("IOX", "XOI")
"""Orders of the weights of a transposed convolution."""


class Sides(NamedTuple):
    """Both data tensors as (batch, channels, spatial extents), and the weights as (small, large, taps) extents."""

    large: tuple[int, int, tuple[int, ...]]
    small: tuple[int, int, tuple[int, ...]]
    weights: tuple[int, int, tuple[int, ...]]


def split_data(shape: Shape, data_format: str) -> tuple[Dim, Dim, Shape]:
    """Return batch, channels and spatial extents of an NCX or NXC shape."""
    return (shape[0], shape[1], shape[2:]) if data_format == "NCX" else (shape[0], shape[-1], shape[1:-1])


def join_data(batch: Dim, channels: Dim, spatial: Shape, data_format: str) -> Shape:
    """Inverse of `split_data`."""
    return (batch, channels, *spatial) if data_format == "NCX" else (batch, *spatial, channels)


def split_weights(shape: Shape, weights_format: str) -> tuple[Dim, Dim, Shape]:
    """Return small-side, large-side and tap extents; OIX and IOX begin with the small side, XIO and XOI end with it."""
    if weights_format in ("OIX", "IOX"):
        return shape[0], shape[1], shape[2:]
    return shape[-1], shape[-2], shape[:-2]


def output_padding(call: Call) -> tuple[int, ...] | None:
    """Return the attribute if the operator has it under this conformance and it was given."""
    return call["output_padding"] if call.declares("output_padding") else None


def check_lists(call: Call, rank: int) -> None:
    """Refuse wrong ranks (R16) and attribute lists of a wrong length (R14, R34, R32)."""
    if not 3 <= rank <= 5:
        raise call.refuse("rank", rank, "3, 4 or 5: batch, channels and one to three spatial axes", "R16")
    for name in SPATIAL_LISTS:
        if len(call[name]) != rank - 2:
            rule = "R34" if not call[name] and name.startswith("pads") else "R14"
            raise call.refuse(name, list(call[name]), f"one entry per spatial axis ({rank - 2})", rule)
    extra = output_padding(call)
    if extra is not None and len(extra) != rank - 2:
        raise call.refuse("output_padding", list(extra), f"one entry per spatial axis ({rank - 2})", "R32")


def check_ranks(call: Call, **shapes: Shape) -> int:
    """Refuse tensors of different ranks (R15) and return the rank."""
    ranks = {name: len(shape) for name, shape in shapes.items()}
    if len(set(ranks.values())) > 1:
        raise call.refuse("rank", ranks, "tensors of equal rank", "R15")
    return next(iter(ranks.values()))


def resolve_shape(call: Call, port: str, output: str, rank: int) -> tuple[int, ...]:
    """Return the output shape from the shape input or attribute, else from ``out=`` (R17 to R20)."""
    stated: tuple[int, ...] | None = call[port]
    if stated is not None:
        check_stated(call, port, output, rank)
    if call.has(output):
        known = call.shape(output)
        if len(known) != rank:
            raise call.refuse(output, list(known), f"a tensor of rank {rank}", "R15")
        if stated is not None and stated != known:
            raise call.refuse(port, list(stated), f"the shape {list(known)} of the given output", "R20")
        return known
    if stated is None:
        raise call.refuse(port, None, f"the shape of {output} as argument, attribute or out=", "R17")
    return stated


def check_stated(call: Call, port: str, output: str, rank: int) -> None:
    """Refuse a stated shape of a wrong length (R18) or with negative entries (R19); entries may be unknown."""
    stated: Shape = call[port]
    if len(stated) != rank:
        raise call.refuse(port, list(stated), f"{rank} entries, the full shape of {output}", "R18")
    if any(isinstance(extent, int) and extent < 0 for extent in stated):
        raise call.refuse(port, list(stated), "no negative entry", "R19")


def check_channels(call: Call, sides: Sides, names: tuple[str, str]) -> int:
    """Refuse batches (R21), channels (R22 to R24) and weights (R28) that do not fit; return the groups."""
    (large_batch, large, _), (small_batch, small, _), (weights_small, weights_large, taps) = sides
    groups: int = call["groups"]
    if 0 in (weights_small, weights_large, *taps):
        raise call.refuse("weights", [weights_small, weights_large, *taps], "no zero extent", "R28")
    if large_batch != small_batch:
        raise call.refuse("batch", [large_batch, small_batch], f"equal batch sizes of {names[0]} and {names[1]}", "R21")
    if large != weights_large * groups:
        if large == weights_large and call["weights_format"] in TRANSPOSED:
            raise call.refuse("weights", [weights_small, weights_large],
                              "grouped weights as (IC, OC/groups), not (IC/groups, OC)", "R24")
        raise call.refuse(names[0], large, f"{weights_large * groups} channels (weights have {weights_large} "
                          f"per group, groups={groups})", "R22")
    if small != weights_small:
        raise call.refuse(names[1], small, f"{weights_small} channels, as the weights have", "R22")
    if small % groups:
        raise call.refuse("groups", groups, f"a divisor of the {small} channels of {names[1]}", "R23")
    return groups


def same_from_large(large: int, kernel: int, stride: int, *, upper: bool) -> tuple[int, int]:
    """SAME pads as the library infers them: total from the large extent, odd element at the end for SAME_UPPER."""
    covered = large % stride or stride
    return halves(max(kernel - covered, 0), odd_at_begin=not upper)


def same_from_small(
    large: int, small: int, kernel: int, stride: int, extra: int, *, upper: bool
) -> tuple[int, int]:
    """SAME pads of the published page: total from the small extent, odd element at the beginning for same_upper."""
    total = reach(small, kernel, stride) - large + extra
    return halves(max(total, 0), odd_at_begin=upper)


def pads_in_effect(
    call: Call, large: tuple[int, ...], small: tuple[int, ...] | None, taps: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Return (begin, end) per axis; with `small` the page's formula is used, else the library's."""
    mode = call["auto_pad"]
    if mode == "none":
        return list(zip(call["pads_begin"], call["pads_end"], strict=True))
    if mode == "valid":
        return [(0, 0)] * len(taps)
    upper = mode == "same_upper"
    kernels = [effective(k, d) for k, d in zip(taps, call["dilations"], strict=True)]
    if small is None:
        return [same_from_large(x, ek, s, upper=upper)
                for x, ek, s in zip(large, kernels, call["strides"], strict=True)]
    extra = ints(call["output_padding"], len(taps), 0)
    return [same_from_small(x, y, ek, s, op, upper=upper)
            for x, y, ek, s, op in zip(large, small, kernels, call["strides"], extra, strict=True)]


def forward_extent(large: int, kernel: int, stride: int, begin: int, end: int) -> int:
    """Extent of the small side; the division truncates toward zero as the library's does, so overhang gives 1."""
    room = large - kernel + begin + end
    return (room // stride if room >= 0 else -(-room // stride)) + 1


def relate(call: Call, sides: Sides, pads: list[tuple[int, int]], groups: int) -> Geometry:
    """Check the size relation on every axis (R25, R26) and return the geometry."""
    axes = []
    for index, (x, y, k, s, d, (begin, end)) in enumerate(
        zip(sides.large[2], sides.small[2], sides.weights[2], call["strides"], call["dilations"], pads, strict=True)
    ):
        kernel = effective(k, d)
        fits = forward_extent(x, kernel, s, begin, end)
        if fits <= 0 or fits != y:  # an empty small side does not fit even where its size is the one that follows
            sizes = {"large": x, "small": y, "kernel": k, "pads": [begin, end]}
            allowed, rule = f"sizes with (large + pads - {kernel}) / {s} + 1 == small, which is {fits}", "R25"
            if fits <= 0:
                allowed, rule = f"large + pads above {kernel - s}, so that the kernel has a position", "R26"
            raise call.refuse(f"spatial axis {index}", sizes, allowed, rule)
        axes.append(Axis(x, y, k, s, d, begin))
    batch, large_channels, _ = sides.large
    return Geometry(batch, groups, large_channels // groups, sides.small[1] // groups, tuple(axes)).checked(call)


def check_bias(call: Call, channels: int) -> None:
    """Refuse a bias that is not one value per output channel."""
    if call.has("bias") and call.shape("bias") != (channels,):
        raise call.refuse("bias", list(call.shape("bias")), f"shape [{channels}], one value per output channel", "R22")


def backward_data(call: Call) -> tuple[Geometry, tuple[int, ...]]:
    """ConvolutionBackwardData: diff_dst is the small side, dst_shape (the shape of diff_src) the large one."""
    layout, diff_dst, weights = call["data_format"], call.shape("diff_dst"), call.shape("weights")
    rank = check_ranks(call, diff_dst=diff_dst, weights=weights)
    check_lists(call, rank)
    shape = resolve_shape(call, "dst_shape", "diff_src", rank)
    sides = Sides(split_data(shape, layout), split_data(diff_dst, layout),
                  split_weights(weights, call["weights_format"]))
    groups = check_channels(call, sides, ("diff_src", "diff_dst"))
    page = sides.small[2] if call.base == "document" else None
    pads = pads_in_effect(call, sides.large[2], page, sides.weights[2])
    return relate(call, sides, pads, groups), shape


def backward_weights(call: Call, large: str, small: str, output: str) -> tuple[Geometry, tuple[int, ...]]:
    """ConvolutionBackwardWeights and its transposed sibling: `large` and `small` name the data ports."""
    layout = call["data_format"]
    rank = check_ranks(call, **{large: call.shape(large), small: call.shape(small)})
    check_lists(call, rank)
    shape = resolve_shape(call, "weights_shape", output, rank)
    sides = Sides(split_data(call.shape(large), layout), split_data(call.shape(small), layout),
                  split_weights(shape, call["weights_format"]))
    groups = check_channels(call, sides, (large, small))
    pads = pads_in_effect(call, sides.large[2], None, sides.weights[2])
    return relate(call, sides, pads, groups), shape


def may_be_page_order(call: Call) -> bool:
    """Whether grouped weights may be in the page's order: they are if their large extent is all the channels."""
    return call.base == "document" and call["weights_format"] in TRANSPOSED and call["groups"] > 1


def forward(call: Call, large: str, output: str) -> tuple[Geometry, tuple[int, ...], bool]:
    """Convolution and ConvTransposeBackwardData: `large` -> `output`.

    Returns the geometry, the output's shape, and whether grouped transposed weights came in the page's order
    (small side divided by the groups instead of the large one).
    """
    layout, data, weights = call["data_format"], call.shape(large), call.shape("weights")
    rank = check_ranks(call, **{large: data, "weights": weights})
    check_lists(call, rank)
    batch, channels, spatial = split_data(data, layout)
    small_channels, large_channels, taps = split_weights(weights, call["weights_format"])
    groups = call["groups"]
    page_order = may_be_page_order(call) and large_channels == channels
    if page_order:
        small_channels, large_channels = small_channels * groups, channels // groups
    pads = pads_in_effect(call, spatial, None, taps)
    extents = tuple(
        forward_extent(x, effective(k, d), s, begin, end)
        for x, k, s, d, (begin, end) in zip(spatial, taps, call["strides"], call["dilations"], pads, strict=True)
    )
    shape = join_data(batch, small_channels, extents, layout)
    if call.has(output):
        shape = call.shape(output)
        if len(shape) != rank:
            raise call.refuse(output, list(shape), f"a tensor of rank {rank}", "R15")
    sides = Sides((batch, channels, spatial), split_data(shape, layout),
                  (small_channels, large_channels, taps))
    check_channels(call, sides, (large, output))
    geometry = relate(call, sides, pads, groups)
    if call["weights_format"] in TRANSPOSED:
        check_slack(call, geometry, pads)
    return geometry, shape, page_order


def check_slack(call: Call, geometry: Geometry, pads: list[tuple[int, int]]) -> None:
    """Refuse an output_padding that is not the slack visible in diff_dst's size (page of ConvTransposeBackwardData)."""
    extra = output_padding(call)
    if extra is None:
        return
    for index, (axis, (_, end), more) in enumerate(zip(geometry.axes, pads, extra, strict=True)):
        slack = end - axis.end
        if more != slack:
            allowed = f"{slack} on spatial axis {index}, the slack of diff_dst, which is below the stride {axis.stride}"
            if slack < 0:
                allowed = f"none, because the kernel exceeds the padded diff_dst by {-slack} on spatial axis {index}"
            raise call.refuse("output_padding", list(extra), allowed, "R32")


def transposed_forward(call: Call) -> tuple[Geometry, tuple[int, ...]]:
    """ConvTranspose: src is the small side; the large extent is the natural one plus output_padding."""
    layout, data, weights = call["data_format"], call.shape("src"), call.shape("weights")
    rank = check_ranks(call, src=data, weights=weights)
    check_lists(call, rank)
    batch, channels, spatial = split_data(data, layout)
    small_channels, large_channels, taps = split_weights(weights, call["weights_format"])
    groups = call["groups"]
    extra = ints(call["output_padding"], rank - 2, 0)
    pads, extents = [], []
    for y, k, s, d, begin, end, more in zip(spatial, taps, call["strides"], call["dilations"], call["pads_begin"],
                                            call["pads_end"], extra, strict=True):
        kernel = effective(k, d)
        if call["auto_pad"] == "valid":
            begin, end = 0, 0
        elif call["auto_pad"] != "none":
            begin, end = halves(max(kernel - s, 0), odd_at_begin=call["auto_pad"] == "same_lower")
        if more >= s:
            raise call.refuse("output_padding", list(extra), f"entries below the stride {s}", "R32")
        pads.append((begin, end))
        extents.append(reach(y, kernel, s) - begin - end + more)
    shape = join_data(batch, large_channels * groups, tuple(extents), layout)
    sides = Sides(split_data(shape, layout), (batch, channels, spatial),
                  (small_channels, large_channels, taps))
    check_channels(call, sides, ("dst", "src"))
    if any(extent < 1 for extent in (*spatial, *extents)):
        raise call.refuse("src", list(data), f"positive sizes whose result {extents} is positive", "R26")
    return relate(call, sides, pads, groups), shape


def known_ranks(call: Call, first: str, second: str = "weights") -> tuple[Shape, Shape] | None:
    """Shapes of two tensors with unknown extents for an unknown rank; None where both ranks are unknown."""
    known = {name: shape for name in (first, second) if (shape := call.tensor(name).shape) is not None}
    if not known:
        return None
    rank = check_ranks(call, **known)
    check_lists(call, rank)
    return known.get(first, (None,) * rank), known.get(second, (None,) * rank)


def infer_stated(call: Call, port: str, output: str, first: str, second: str) -> Shape | None:
    """Output shape of a gradient as far as `port` states it, else unknown extents in the rank of the two tensors."""
    known = known_ranks(call, first, second)
    if known is not None and call[port] is not None:
        check_stated(call, port, output, len(known[0]))
    return call[port] or (None if known is None else (None,) * len(known[0]))


def infer_forward(call: Call, large: str) -> Shape | None:
    """Output shape of a forward operator as far as it is known."""
    known = known_ranks(call, large)
    if known is None:
        return None
    data, weights = known
    batch, channels, spatial = split_data(data, call["data_format"])
    small, large_channels, taps = split_weights(weights, call["weights_format"])
    if may_be_page_order(call):
        known_order = all(isinstance(count, int) for count in (channels, small, large_channels))
        small = (small * call["groups"] if large_channels == channels else small) if known_order else None
    extents: list[Dim] = []
    for x, k, s, d, begin, end in zip(spatial, taps, call["strides"], call["dilations"], call["pads_begin"],
                                      call["pads_end"], strict=True):
        if not (isinstance(x, int) and isinstance(k, int)):
            extents.append(None)
            continue
        kernel = effective(k, d)
        if call["auto_pad"] == "valid":
            begin = end = 0
        elif call["auto_pad"] != "none":
            begin, end = same_from_large(x, kernel, s, upper=True)
        extents.append(forward_extent(x, kernel, s, begin, end))
    return join_data(batch, small, tuple(extents), call["data_format"])


def infer_transposed(call: Call) -> Shape | None:
    """Output shape of ConvTranspose as far as it is known."""
    known = known_ranks(call, "src")
    if known is None:
        return None
    batch, _, spatial = split_data(known[0], call["data_format"])
    _, large, taps = split_weights(known[1], call["weights_format"])
    extents: list[Dim] = []
    extra = ints(call["output_padding"], len(spatial), 0)
    for y, k, s, d, begin, end, more in zip(spatial, taps, call["strides"], call["dilations"], call["pads_begin"],
                                            call["pads_end"], extra, strict=True):
        if not (isinstance(y, int) and isinstance(k, int)):
            extents.append(None)
            continue
        kernel = effective(k, d)
        total = {"none": begin + end, "valid": 0}.get(call["auto_pad"], max(kernel - s, 0))
        extents.append(reach(y, kernel, s) - total + more)
    channels = large * call["groups"] if isinstance(large, int) else None
    return join_data(batch, channels, tuple(extents), call["data_format"])
