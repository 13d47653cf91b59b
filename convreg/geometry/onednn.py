"""oneDNN Graph's rules: layouts, shape resolution, padding and the size relation, with row numbers R14 to R32.

Source: operation pages and `shape_infer.cpp` of oneDNN 3.13/3.14; conformance ``"document"`` follows the pages,
``"library"`` what the released library computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..spec import Call, Dim, Shape
from . import Axis, Geometry, effective, halves, ints, known, reach

SPATIAL_LISTS = ("strides", "pads_begin", "pads_end", "dilations")
TRANSPOSED = ("IOX", "XOI")
"""Orders of the weights of a transposed convolution."""


Pads = list[tuple[int, int] | None]
"""(begin, end) per axis; None where they depend on an extent that is not known."""


class Sides(NamedTuple):
    """Both data tensors as (batch, channels, spatial extents), and the weights as (small, large, taps) extents."""

    large: tuple[Dim, Dim, Shape]
    small: tuple[Dim, Dim, Shape]
    weights: tuple[Dim, Dim, Shape]


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


def stated_weights(call: Call) -> str:
    """Name of what states the weights of a weights gradient: the shape, or a given output."""
    return "weights_shape" if call["weights_shape"] is not None else call.spec.outputs[0].name


def check_channels(call: Call, sides: Sides, names: tuple[str, str], weights: tuple[str, Shape]) -> int:
    """Refuse batches (R21), channels (R22 to R24) and weights (R28) that do not fit; return the groups.

    `names` are the ports of the large and the small side, `weights` is the name and the shape of the weights as given.
    Extents may be unknown; nothing is refused for them.
    """
    (large_batch, large, _), (small_batch, small, _), (weights_small, weights_large, _) = sides
    groups: int = call["groups"]
    argument, given = weights[0], list(weights[1])
    if 0 in given:
        raise call.refuse(argument, given, "no zero extent", "R28")
    if known(large_batch, small_batch) and large_batch != small_batch:
        raise call.refuse("batch", [large_batch, small_batch], f"equal batch sizes of {names[0]} and {names[1]}", "R21")
    if known(large, weights_large) and large != weights_large * groups:
        divided = argument == "weights" or (known(small, weights_small) and small == weights_small * groups)
        if large == weights_large and divided and call["weights_format"] in TRANSPOSED:
            raise call.refuse(argument, given, "grouped weights as (IC, OC/groups), not (IC/groups, OC)", "R24")
        raise call.refuse(names[0], large, f"{weights_large * groups} channels (weights have {weights_large} "
                          f"per group, groups={groups})", "R22")
    if known(small, weights_small) and small != weights_small:
        raise call.refuse(names[1], small, f"{weights_small} channels, as the weights have", "R22")
    channels = small if known(small) else weights_small
    if known(channels) and channels % groups:
        raise call.refuse("groups", groups, f"a divisor of the {channels} channels of {names[1]}", "R23")
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


def pads_in_effect(call: Call, large: Shape, small: Shape | None, taps: Shape) -> Pads:
    """Return (begin, end) per axis; with `small` the page's formula is used, else the library's."""
    mode = call["auto_pad"]
    if mode == "none":
        return list(zip(call["pads_begin"], call["pads_end"], strict=True))
    if mode == "valid":
        return [(0, 0)] * len(taps)
    upper = mode == "same_upper"
    if small is None:
        return [same_from_large(x, effective(k, d), s, upper=upper) if known(x, k) else None
                for x, k, d, s in zip(large, taps, call["dilations"], call["strides"], strict=True)]
    extra = ints(call["output_padding"], len(taps), 0)
    return [same_from_small(x, y, effective(k, d), s, op, upper=upper) if known(x, y, k) else None
            for x, y, k, d, s, op in zip(large, small, taps, call["dilations"], call["strides"], extra, strict=True)]


def forward_extent(large: int, kernel: int, stride: int, begin: int, end: int) -> int:
    """Extent of the small side; the division truncates toward zero as the library's does, so overhang gives 1."""
    room = large - kernel + begin + end
    return (room // stride if room >= 0 else -(-room // stride)) + 1


def check_sizes(call: Call, sides: Sides, pads: Pads) -> None:
    """Refuse axes that break the size relation (R25, R26), as far as their extents are known."""
    for index, (x, y, k, s, d, around) in enumerate(
        zip(sides.large[2], sides.small[2], sides.weights[2], call["strides"], call["dilations"], pads, strict=True)
    ):
        if around is None or not known(x, k):
            continue
        begin, end = around
        kernel = effective(k, d)
        fits = forward_extent(x, kernel, s, begin, end)
        if fits <= 0 or (known(y) and fits != y):  # an empty small side does not fit even where its size follows
            sizes = {"large": x, "small": y, "kernel": k, "pads": [begin, end]}
            allowed, rule = f"sizes with (large + pads - {kernel}) / {s} + 1 == small, which is {fits}", "R25"
            if fits <= 0:
                allowed, rule = f"large + pads above {kernel - s}, so that the kernel has a position", "R26"
            raise call.refuse(f"spatial axis {index}", sizes, allowed, rule)


def settle(
    call: Call, sides: Sides, names: tuple[str, str], weights: tuple[str, Shape], page: Shape | None = None
) -> Pads:
    """Refuse what does not fit, as far as extents are known, and return the pads; `page` as in `pads_in_effect`."""
    check_channels(call, sides, names, weights)
    pads = pads_in_effect(call, sides.large[2], page, sides.weights[2])
    check_sizes(call, sides, pads)
    return pads


def build(call: Call, sides: Sides, pads: Pads) -> Geometry:
    """Return the geometry of sides that are known and fit."""
    batch, large_channels, spatial = sides.large
    groups = call["groups"]
    axes = tuple(Axis(x, y, k, s, d, around[0] if around else 0) for x, y, k, s, d, around in zip(
        spatial, sides.small[2], sides.weights[2], call["strides"], call["dilations"], pads, strict=True))
    return Geometry(batch, groups, large_channels // groups, sides.small[1] // groups, axes).checked(call)


def check_bias(call: Call, channels: Dim) -> None:
    """Refuse a bias that is not one value per output channel, as far as shapes are known."""
    bias = call.tensor("bias").shape if call.has("bias") else None
    if bias is not None and (len(bias) != 1 or (known(channels, *bias) and bias[0] != channels)):
        raise call.refuse("bias", list(bias), f"shape [{channels}], one value per output channel", "R22")


def backward_data(call: Call) -> tuple[Geometry, tuple[int, ...]]:
    """ConvolutionBackwardData: diff_dst is the small side, dst_shape (the shape of diff_src) the large one."""
    diff_dst, weights = call.shape("diff_dst"), call.shape("weights")
    rank = check_ranks(call, diff_dst=diff_dst, weights=weights)
    check_lists(call, rank)
    shape = resolve_shape(call, "dst_shape", "diff_src", rank)
    return build(call, *settled_data(call, shape, diff_dst, weights)), shape


def settled_data(call: Call, diff_src: Shape, diff_dst: Shape, weights: Shape) -> tuple[Sides, Pads]:
    """Sides and pads of ConvolutionBackwardData, refused as far as extents are known and do not fit."""
    layout = call["data_format"]
    sides = Sides(split_data(diff_src, layout), split_data(diff_dst, layout),
                  split_weights(weights, call["weights_format"]))
    page = sides.small[2] if call.base == "document" else None
    return sides, settle(call, sides, ("diff_src", "diff_dst"), ("weights", weights), page)


def backward_weights(call: Call, large: str, small: str, output: str) -> tuple[Geometry, tuple[int, ...]]:
    """ConvolutionBackwardWeights and its transposed sibling: `large` and `small` name the data ports."""
    shapes = {large: call.shape(large), small: call.shape(small)}
    rank = check_ranks(call, **shapes)
    check_lists(call, rank)
    shape = resolve_shape(call, "weights_shape", output, rank)
    return build(call, *settled_weights(call, shapes, shape)), shape


def settled_weights(call: Call, data: Mapping[str, Shape], weights: Shape) -> tuple[Sides, Pads]:
    """As `settled_data`, for a weights gradient; `data` has the large and the small side by the names of the ports."""
    large, small = data
    layout = call["data_format"]
    sides = Sides(split_data(data[large], layout), split_data(data[small], layout),
                  split_weights(weights, call["weights_format"]))
    return sides, settle(call, sides, (large, small), (stated_weights(call), weights))


def may_be_page_order(call: Call) -> bool:
    """Whether grouped weights may be in the page's order: they are if their large extent is all the channels."""
    return call.base == "document" and call["weights_format"] in TRANSPOSED and call["groups"] > 1


def forward(call: Call, large: str, output: str) -> tuple[Geometry, tuple[int, ...], bool]:
    """Convolution and ConvTransposeBackwardData: `large` -> `output`.

    Returns the geometry, the output's shape, and whether grouped transposed weights came in the page's order
    (small side divided by the groups instead of the large one).
    """
    data, weights = call.shape(large), call.shape("weights")
    rank = check_ranks(call, **{large: data, "weights": weights})
    check_lists(call, rank)
    sides, pads, page_order = forward_sides(call, data, weights)
    shape = join_data(*sides.small, call["data_format"])
    if call.has(output):
        shape = call.shape(output)
        if len(shape) != rank:
            raise call.refuse(output, list(shape), f"a tensor of rank {rank}", "R15")
    sides = sides._replace(small=split_data(shape, call["data_format"]))
    check_forward(call, sides, pads, (large, output), weights)
    return build(call, sides, pads), shape, page_order


def forward_sides(call: Call, data: Shape, weights: Shape) -> tuple[Sides, Pads, bool]:
    """Sides, of which the small one follows from the others, pads, and whether weights are in the page's order."""
    batch, channels, spatial = split_data(data, call["data_format"])
    small, large, taps = split_weights(weights, call["weights_format"])
    groups, page_order = call["groups"], False
    if may_be_page_order(call) and not known(channels, large):
        small = large = None  # they depend on the order
    elif may_be_page_order(call) and large == channels:
        if channels % groups:
            raise call.refuse("groups", groups, f"a divisor of the {channels} channels of diff_dst", "R23")
        small, large, page_order = small * groups if known(small) else None, channels // groups, True
    pads = pads_in_effect(call, spatial, None, taps)
    extents = tuple(
        forward_extent(x, effective(k, d), s, *around) if around is not None and known(x, k) else None
        for x, k, s, d, around in zip(spatial, taps, call["strides"], call["dilations"], pads, strict=True)
    )
    return Sides((batch, channels, spatial), (batch, small, extents), (small, large, taps)), pads, page_order


def check_forward(call: Call, sides: Sides, pads: Pads, names: tuple[str, str], weights: Shape) -> None:
    """Refuse what does not fit, as far as extents are known."""
    check_channels(call, sides, names, ("weights", weights))
    check_sizes(call, sides, pads)
    if call["weights_format"] in TRANSPOSED:
        check_slack(call, sides, pads)


def check_slack(call: Call, sides: Sides, pads: Pads) -> None:
    """Refuse an output_padding that is not the slack visible in diff_dst's size (page of ConvTransposeBackwardData)."""
    extra = output_padding(call)
    if extra is None:
        return
    for index, (x, y, k, s, d, around, more) in enumerate(zip(
        sides.large[2], sides.small[2], sides.weights[2], call["strides"], call["dilations"], pads, extra, strict=True,
    )):
        if around is None or not known(x, y, k):
            continue
        slack = x + sum(around) - reach(y, effective(k, d), s)
        if more != slack:
            allowed = f"{slack} on spatial axis {index}, the slack of diff_dst, which is below the stride {s}"
            if slack < 0:
                allowed = f"none, because the kernel exceeds the padded diff_dst by {-slack} on spatial axis {index}"
            raise call.refuse("output_padding", list(extra), allowed, "R32")


def transposed_forward(call: Call) -> tuple[Geometry, tuple[int, ...]]:
    """ConvTranspose: src is the small side; the large extent is the natural one plus output_padding."""
    data, weights = call.shape("src"), call.shape("weights")
    check_lists(call, check_ranks(call, src=data, weights=weights))
    sides, pads = settled_transposed(call, data, weights)
    return build(call, sides, pads), join_data(*sides.large, call["data_format"])


def settled_transposed(call: Call, data: Shape, weights: Shape) -> tuple[Sides, Pads]:
    """As `settled_data`, for ConvTranspose: the large side follows from the others."""
    batch, channels, spatial = split_data(data, call["data_format"])
    small_channels, large_channels, taps = split_weights(weights, call["weights_format"])
    extra = ints(call["output_padding"], len(spatial), 0)
    pads: Pads = []
    extents: list[Dim] = []
    for y, k, s, d, begin, end, more in zip(spatial, taps, call["strides"], call["dilations"], call["pads_begin"],
                                            call["pads_end"], extra, strict=True):
        if more >= s:
            raise call.refuse("output_padding", list(extra), f"entries below the stride {s}", "R32")
        if not known(k):
            pads.append(None)
            extents.append(None)
            continue
        kernel = effective(k, d)
        if call["auto_pad"] == "valid":
            begin, end = 0, 0
        elif call["auto_pad"] != "none":
            begin, end = halves(max(kernel - s, 0), odd_at_begin=call["auto_pad"] == "same_lower")
        pads.append((begin, end))
        extents.append(reach(y, kernel, s) - begin - end + more if known(y) else None)
    made = large_channels * call["groups"] if known(large_channels) else None
    sides = Sides((batch, made, tuple(extents)), (batch, channels, spatial), (small_channels, large_channels, taps))
    check_channels(call, sides, ("dst", "src"), ("weights", weights))
    if any(known(extent) and extent < 1 for extent in (*spatial, *extents)):
        raise call.refuse("src", list(data), f"positive sizes whose result {extents} is positive", "R26")
    check_sizes(call, sides, pads)
    return sides, pads


def channels_of(call: Call, shape: Shape | None) -> Dim:
    """Channels of a data tensor as far as they are known."""
    return None if shape is None else split_data(shape, call["data_format"])[1]
