"""OpenVINO's ConvolutionBackpropData and GroupConvolutionBackpropData: each variant is a window of the full result.

``"openvino"``: the runtime's window table (rows 1 to 26 refuse), measured with OpenVINO 2026.4.1.
``"document"``: the formula of the older oneDNN Graph page of the same name, with that table's row numbers (R...).
"""

from __future__ import annotations

from typing import NamedTuple

from ..spec import Call, Dim, Shape
from . import Axis, Geometry, effective, halves, ints, known, reach
from .onednn import join_data, split_data, split_weights

# Rows of the two rule tables for the same mistake: (document, openvino).
ROWS = {
    "channels": ("R22", "1"), "group channels": ("R22", "22"), "ranks": ("R15", "2"), "group ranks": ("R15", "21"),
    "rank": ("R16", "3"), "rank above": ("R16", "4"), "strides": ("R14", "5"), "dilations": ("R14", "6"),
    "pads_begin": ("R14", "7"), "pads_end": ("R14", "7"), "output_padding": ("R32", "8"), "extent": ("R26", "13"),
    "output_shape": ("R18", "15"), "negative": ("R19", "17"), "empty": ("R28", "26"), "batch": ("R21", "15"),
    "no pads": ("R34", "7"),
    "divide": ("R23", "R23"), "relation": ("R25", "13"), "negative pads": ("R7", "12"),
}


class Operands(NamedTuple):
    """The common integers of the two operations after layout and groups are resolved."""

    batch: Dim
    groups: Dim
    small: Dim
    """Channels per group of the data (the small side)."""
    large: Dim
    """Channels per group of the output (the large side)."""
    spatial: Shape
    taps: Shape


def row(call: Call, mistake: str) -> str:
    """Return the row of the table in force."""
    return ROWS[mistake][call.base == "openvino"]


def is_grouped(call: Call) -> bool:
    """Whether this is the Group operation, whose filter carries the groups as its first axis."""
    return call.spec.convolution.has_group_axis


def ports(call: Call) -> tuple[str, str]:
    """Names of the data and filter ports."""
    return call.spec.inputs[0].name, call.spec.inputs[1].name


def layout(call: Call) -> str:
    """Layout of the data: the Group operation is always channel-first."""
    return call.spec.convolution.data_layout_of(call)


def spatial_lists(call: Call, count: int) -> dict[str, tuple[int, ...]]:
    """Return the per-axis attributes; an empty list means the neutral value, as the runtime reads it."""
    lists = {}
    for name, neutral in (("strides", 1), ("dilations", 1), ("pads_begin", 0), ("pads_end", 0), ("output_padding", 0)):
        value = ints(call[name], count, neutral)
        if not value and call.base == "openvino":
            value = (neutral,) * count
        if len(value) != count:
            mistake = "no pads" if not value and name.startswith("pads") else name
            raise call.refuse(name, list(value), f"one entry per spatial axis ({count})", row(call, mistake))
        lists[name] = value
    if call["auto_pad"] == "none" and any(pad < 0 for pad in lists["pads_begin"]):  # the other modes do not read them
        raise call.refuse("pads_begin", list(lists["pads_begin"]), "entries at least 0 beside auto_pad=explicit",
                          row(call, "negative pads"))
    return lists


def operands(call: Call, data: Shape, weights: Shape) -> Operands:
    """Split the shapes of data and filter; extents may be unknown."""
    if is_grouped(call):
        groups, small, large, *taps = weights
        return Operands(data[0], groups, small, large, data[2:], tuple(taps))
    groups = call["groups"]
    batch, _, spatial = split_data(data, layout(call))
    small, large, tap_extents = split_weights(weights, call["filter_format"])
    if known(small):
        if small % groups:
            raise call.refuse("groups", groups, f"a divisor of the filter's {small} channels", row(call, "divide"))
        small //= groups
    return Operands(batch, groups, small, large, spatial, tap_extents)


def check_ranks(call: Call) -> int:
    """Refuse ranks that contradict each other and return the number of spatial axes."""
    data_name, filter_name = ports(call)
    return check_rank_pair(call, call.shape(data_name), call.shape(filter_name))


def check_rank_pair(call: Call, data: Shape, weights: Shape) -> int:
    """As `check_ranks`, for shapes whose extents may be unknown."""
    data_name, filter_name = ports(call)
    rank = len(data)
    if len(weights) - is_grouped(call) != rank:
        raise call.refuse(filter_name, list(weights), f"rank {rank + is_grouped(call)}",
                          row(call, "group ranks" if is_grouped(call) else "ranks"))
    if not 3 <= rank <= 5:
        raise call.refuse(data_name, list(data), "rank 3, 4 or 5", row(call, "rank" if rank < 3 else "rank above"))
    return rank - 2


def settled(call: Call, data: Shape, weights: Shape) -> Operands:
    """As `operands`, but refuse filters and channels that do not fit, as far as their extents are known."""
    data_name, filter_name = ports(call)
    if 0 in weights:
        raise call.refuse(filter_name, list(weights), "no zero extent", row(call, "empty"))
    found, channels = operands(call, data, weights), split_data(data, layout(call))[1]
    if not known(channels, found.small):
        return found
    mistake = row(call, "group channels" if is_grouped(call) else "channels")
    if not known(found.groups):  # the Group operation's filter may leave its first extent open
        if channels % found.small:
            raise call.refuse(data_name, list(data), f"a multiple of {found.small} channels, as each group of the "
                              "filter has", mistake)
        return found._replace(groups=channels // found.small)
    if channels != found.groups * found.small:
        raise call.refuse(data_name, list(data), f"{found.groups * found.small} channels, as the filter has", mistake)
    return found


def check_stated(call: Call, stated: Shape, count: int) -> None:
    """Refuse an output_shape with negative entries or of a wrong length; entries may be unknown."""
    if any(known(extent) and extent < 0 for extent in stated):
        raise call.refuse("output_shape", list(stated), "no negative entry", row(call, "negative"))
    full = call.base == "document"
    if len(stated) != count and not (full and len(stated) == count + 2):
        raise call.refuse("output_shape", list(stated), f"the {count} spatial extents"
                          f"{' or the full shape' if full else ''}", row(call, "output_shape"))


def stated_extents(call: Call, batch: Dim, channels: Dim, count: int) -> Shape | None:
    """Spatial extents from the shape input, attribute or ``out=``; None = natural size. Extents may be unknown."""
    stated: Shape | None = call["output_shape"]
    output = call.spec.outputs[0].name
    if stated is not None:
        check_stated(call, stated, count)
    if stated is not None and len(stated) == count + 2:
        full_batch, full_channels, spatial = split_data(stated, layout(call))
        if known(full_batch, batch) and full_batch != batch:
            raise call.refuse("output_shape", list(stated), f"batch {batch}", row(call, "batch"))
        if known(full_channels, channels) and full_channels != channels:
            raise call.refuse("output_shape", list(stated), f"{channels} channels", row(call, "channels"))
        stated = spatial
    if stated is None and call.has(output) and call.base == "document":
        stated = split_data(call.shape(output), layout(call))[2]
    return stated


def window(call: Call, mode: str, full: int, extent: int | None, begin: int, end: int, extra: int) -> tuple[int, int]:
    """Begin and extent of the window of the full result (`full` elements) on one axis."""
    if mode == "valid" or (mode != "none" and extent is None):
        begin = end = 0
    if extent is None:
        return begin, full - begin - end + extra
    if mode.startswith("same"):
        begin, _ = halves(max(full - extent + extra, 0), odd_at_begin=mode == "same_upper")
    return begin, extent


def placed(call: Call, index: int, sizes: tuple[int, ...], stated: Shape | None) -> tuple[int, int]:
    """As `window`, of one axis with its small extent, taps and attributes; refused where it does not fit (13, R25)."""
    y, k, s, d, pb, pe, op = sizes
    full = reach(y, effective(k, d), s)
    begin, extent = window(call, call["auto_pad"], full, stated[index] if stated else None, pb, pe, op)
    if extent < 0:
        raise call.refuse(f"spatial axis {index}", extent, "an output extent of at least 0 after the pads",
                          row(call, "extent"))
    if call.base == "document" and stated and call["auto_pad"] == "none":
        slack = extent + pb + pe - full
        if not 0 <= slack < s and slack != op:
            raise call.refuse("output_shape", list(stated), f"an extent that leaves 0 to {s - 1} or "
                              f"output_padding={op} elements on spatial axis {index}, not {slack}",
                              row(call, "relation"))
    return begin, extent


def backprop(call: Call) -> tuple[Geometry, tuple[int, ...]]:
    """Return the geometry of either operation and the output's shape."""
    data_name, filter_name = ports(call)
    count = check_ranks(call)
    lists = spatial_lists(call, count)
    data, weights = call.shape(data_name), call.shape(filter_name)
    batch, groups, small, large, spatial, taps = settled(call, data, weights)
    stated = stated_extents(call, batch, groups * large, count)
    axes = []
    for index, sizes in enumerate(zip(spatial, taps, *lists.values(), strict=True)):
        begin, extent = placed(call, index, sizes, stated)
        y, k, s, d, *_ = sizes
        axes.append(Axis(extent, y, k, s, d, begin))
    shape = join_data(batch, groups * large, tuple(axis.large for axis in axes), layout(call))
    return Geometry(batch, groups, large, small, tuple(axes)).checked(call), shape


def infer(call: Call) -> Shape | None:
    """Output shape as far as it is known; None if the rank is unknown."""
    data_name, filter_name = ports(call)
    data, weights = call.tensor(data_name).shape, call.tensor(filter_name).shape
    stated: Shape | None = call["output_shape"]
    count = spatial_count(call, data, weights, stated)
    if count is None:
        return None
    data = (None,) * (count + 2) if data is None else data
    weights = (None,) * (count + 2 + is_grouped(call)) if weights is None else weights
    check_rank_pair(call, data, weights)
    (batch, groups, _, large, spatial, taps), lists = settled(call, data, weights), spatial_lists(call, count)
    channels = groups * large if known(groups, large) else None
    open_length = call.base == "openvino" and stated == (None,) * (count + 2)  # how inference says it is unknown
    extents = (None,) * count if open_length else stated_extents(call, batch, channels, count)
    made: list[Dim] = []
    for index, sizes in enumerate(zip(spatial, taps, *lists.values(), strict=True)):
        extent = None if extents is None else extents[index]
        if known(*sizes) and (extents is None or known(extent)):
            extent = placed(call, index, sizes, extents)[1]
        made.append(extent)
    if stated is not None and len(stated) == count + 2 and call.base == "document":
        return stated
    return join_data(batch, channels, tuple(made), layout(call))


def spatial_count(call: Call, data: Shape | None, weights: Shape | None, stated: Shape | None) -> int | None:
    """Number of spatial axes from data, filter, a stated shape or the attribute lists, in that order."""
    if data is not None:
        return len(data) - 2
    if weights is not None:
        return len(weights) - 2 - is_grouped(call)
    if stated is not None and call.base == "openvino":
        return len(stated)
    return next((len(call[name]) for name in ("strides", "dilations", "pads_begin", "pads_end") if call[name]), None)
