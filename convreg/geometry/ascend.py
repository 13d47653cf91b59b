"""Ascend's rules about attributes, shapes and empty tensors, with row numbers E17 to E52.

Products follow the interface check row by row, in its order; ``"document"`` and ``"emulation"`` take the rows that the
published page states and leave the rest to the relation between sizes. The relation itself is PyTorch's (`aten`).
Source: `aclnnConvolutionBackward.md`, `convolution_backward_checker.cpp` and `aclnn_convolution_backward.cpp` of the
vendor's operator repository ops-nn (August 2026).
"""

from __future__ import annotations

from ..errors import OpError
from ..spec import Call, Dim
from . import Geometry, aten, effective, ints, known

PRODUCTS = ("ascend950", "atlas-a2", "atlas-910")
CONFORMANCES = ("document", *PRODUCTS, "emulation")
MAX_GROUPS = 65535
INPUTS = ("gradOutput", "input", "weight")
LENGTHS = (("stride", "E33"), ("dilation", "E34"), ("padding", "E35"), ("outputPadding", "E36"))


def is_product(call: Call) -> bool:
    """Whether a product's interface check is in force."""
    return call.conformance in PRODUCTS


def shapes_of(call: Call) -> aten.Convolved:
    """Shapes by role: the large side is the operand that the (transposed) convolution slides over."""
    shapes = aten.shapes_of(call, INPUTS, call["transposed"])
    assert shapes is not None, "ranks that are known"
    return shapes


def names_of(call: Call) -> tuple[str, str]:
    """Ports on the large and the small side."""
    return ("gradOutput", "input") if call["transposed"] else ("input", "gradOutput")


def bias_length(call: Call) -> Dim:
    """Length of the bias, as far as gradOutput or the weight state it."""
    if not call["transposed"]:
        return call.shape("gradOutput")[1]
    divided = call.shape("weight")[1]
    return divided * call["groups"] if known(divided) else None


def check_attributes(call: Call) -> None:
    """Refuse ranks (E17), entries out of bounds (E19 to E24), groups (E25) and cubeMathType (E26)."""
    given = [name for name in ("gradInput", "gradWeight") if call.has(name)] if is_product(call) else []
    for name in (*INPUTS, *given):
        if not 3 <= len(call.shape(name)) <= 5:
            raise call.refuse(name, list(call.shape(name)), "a tensor of rank 3, 4 or 5", "E17")
    call.check_bounds("stride", "padding", "dilation")
    extra = call["outputPadding"] or ()
    if not call["transposed"]:
        if any(extra):
            raise call.refuse("outputPadding", list(extra), "zeros unless transposed", "E24")
    elif any(entry < 0 for entry in extra):
        raise call.refuse("outputPadding", list(extra), "no negative entry", "E22")
    elif len(call.shape("input")) == 5 or not is_product(call):  # the interface compares three axes only
        check_output_padding(call, "E23")
    call.check_bounds("groups", "cubeMathType", "seed")
    if call["groups"] > MAX_GROUPS and not is_product(call):
        raise call.refuse("groups", call["groups"], f"at most {MAX_GROUPS}")


def check_output_padding(call: Call, rule: str) -> None:
    """Refuse an outputPadding that another window would fit into."""
    extra = call["outputPadding"] or ()
    if any(more >= step for more, step in zip(extra, call["stride"], strict=False)):
        raise call.refuse("outputPadding", list(extra), f"entries below the stride {list(call['stride'])}", rule)


def check_shapes(call: Call, mask: tuple[bool, ...]) -> bool:
    """Refuse shapes that contradict each other (E28 to E52); return whether the result may be only zeros.

    A product may accept what does not fit where a tensor is empty. Where extents are unknown, it is therefore refused
    only if it is refused both ways.
    """
    if not is_product(call):
        check_full(call)
        return False
    extents = *call.shape("input"), *call.shape("weight")
    empty = 0 in extents
    if not empty and not known(*extents):
        refuse_both_ways(call, mask)
        return True
    if not empty or call.conformance == "atlas-910":
        check_full(call)
    if empty:
        check_empty(call, mask)
    return empty


def refuse_both_ways(call: Call, mask: tuple[bool, ...]) -> None:
    """Refuse by E28 to E42 what is refused whether or not an unknown extent of input or weight is 0."""
    try:
        check_full(call)
    except OpError:
        if call.conformance != "atlas-910":
            try:
                check_empty(call, mask)
            except OpError:
                pass
            else:
                return
        raise


def check_full(call: Call) -> None:
    """Refuse by E28 to E42. Without a product, the rows about empty tensors, given outputs and depth do not apply."""
    large, small, weight = shapes = shapes_of(call)
    if len({len(shape) for shape in shapes}) > 1:
        raise call.refuse("rank", [len(call.shape(name)) for name in INPUTS], "tensors of equal rank", "E28")
    if is_product(call):
        check_given(call)
    check_lengths(call, len(large) - 2)
    large_name, small_name = names_of(call)
    if known(small[1], weight[0]) and small[1] != weight[0]:
        raise call.refuse(small_name, small[1], f"{weight[0]} channels, as the weight has", "E37")
    if large[1] or weight[1]:
        check_groups(call, "E38", "E39")
    if not is_product(call):
        return
    groups = call["groups"]
    if call.conformance != "ascend950" and large[1] == groups and known(small[1]) and small[1] % groups:
        raise call.refuse(small_name, small[1], f"a multiple of the {groups} depthwise channels", "E40")
    if len(large) == 5:
        kernels = [effective(k, d) if known(k) else None for k, d in zip(weight[2:], call["dilation"], strict=True)]
        rooms = [x + 2 * p - k if known(x, k) else None
                 for x, p, k in zip(large[2:], call["padding"], kernels, strict=True)]
        if any(room is not None and room < 0 for room in rooms):
            raise call.refuse(large_name, list(large), f"padded extents of at least the kernel's {kernels}", "E41")
        fit = [None if room is None else room // s + 1 for room, s in zip(rooms, call["stride"], strict=True)]
        if any(known(made, y) and made != y for made, y in zip(fit, small[2:], strict=True)):
            raise call.refuse(small_name, list(small), f"spatial extents {fit}", "E42")


def check_given(call: Call) -> None:
    """Refuse empty operands (E29) and given outputs of another shape (E30 to E32)."""
    # Only Atlas 910 checks the operands of a call with an empty input or weight too.
    unless = "" if call.conformance == "atlas-910" else " unless input or weight is empty too"
    for name in ("gradOutput", "weight"):
        if 0 in call.shape(name):
            raise call.refuse(name, list(call.shape(name)), f"no zero extent{unless}", "E29")
    wanted = {"gradInput": call.shape("input"), "gradWeight": call.shape("weight"),
              "gradBias": (call.shape("gradOutput")[1],)}
    for (name, shape), rule in zip(wanted.items(), ("E30", "E31", "E32"), strict=True):
        if call.has(name) and call.shape(name) != shape:
            raise call.refuse(name, list(call.shape(name)), f"shape {list(shape)}", rule)


def check_lengths(call: Call, count: int, rule: str = "") -> None:
    """Refuse lists without one entry per spatial axis (E33 to E36); 2-D paddings may have four."""
    for name, own_rule in LENGTHS:
        allowed = (2, 4) if count == 2 and name in ("padding", "outputPadding") else (count,)
        if call[name] is not None and len(call[name]) not in allowed:
            raise call.refuse(name, list(call[name]), f"{' or '.join(map(str, allowed))} entries", rule or own_rule)


def check_groups(call: Call, divides: str, equals: str) -> None:
    """Refuse channels that the weight's do not divide (E38), or into another number of groups (E39)."""
    large, _, weight = shapes_of(call)
    if not known(large[1], weight[1]):
        return
    name = names_of(call)[0]
    if weight[1] == 0 or large[1] % weight[1]:
        raise call.refuse(name, large[1], f"a multiple of the {weight[1]} channels per group of the weight", divides)
    if large[1] // weight[1] != call["groups"]:
        raise call.refuse("groups", call["groups"], f"{large[1] // weight[1]} = {large[1]} channels of {name} / "
                          f"{weight[1]} of the weight", equals)


def check_empty(call: Call, mask: tuple[bool, ...]) -> None:
    """Refuse empty tensors by E44 to E52."""
    data, weight = call.shape("input"), call.shape("weight")
    if mask[2]:
        check_bias(call, ("E44", "E45", "E46"))
    if mask[0] and known(*data[:2]) and 0 not in data[:2]:
        raise call.refuse("input", list(data), "batch or channels of 0, because gradInput is requested and a tensor is "
                          "empty", "E47")
    if call.conformance == "atlas-910":
        return
    check_lengths(call, len(data) - 2, "E48")
    large, transposed, groups = shapes_of(call).large, call["transposed"], call["groups"]
    if known(weight[0]) and weight[0] % groups:
        raise call.refuse("groups", groups, f"a divisor of the weight's first extent {weight[0]}", "E49")
    if not (transposed and (data[0] == 0 or not known(data[0]))) and (large[1] or weight[1]):
        check_groups(call, "E50", "E50")
    if transposed and (weight[0] == 0 or (known(weight[0], data[1]) and weight[0] != data[1])):
        raise call.refuse("weight", list(weight), f"a first extent of {data[1]}, as input has channels, not 0", "E51")
    if transposed:
        return
    for x, p, k, d in zip(data[2:], call["padding"], weight[2:], call["dilation"], strict=False):
        if known(x, k) and x + 2 * p < effective(k, d):  # with four paddings the interface still reads the first ones
            raise call.refuse("input", list(data), f"a padded extent of at least the kernel's {effective(k, d)}", "E52")


def check_bias(call: Call, rules: tuple[str, str, str]) -> None:
    """Refuse biasSizes that are missing, not one number, or not the number of bias elements."""
    sizes, length = call["biasSizes"], bias_length(call)
    if sizes is None:
        raise call.refuse("biasSizes", None, f"[{length}]", rules[0])
    if len(sizes) != 1:
        raise call.refuse("biasSizes", list(sizes), f"[{length}]", rules[1])
    if known(length) and sizes[0] != length:
        raise call.refuse("biasSizes", list(sizes), f"[{length}]", rules[2])


def pads_of(call: Call, count: int) -> tuple[tuple[int, int], ...]:
    """(begin, end) per axis; four numbers of a 2-D call are top, bottom, left, right."""
    padding = call["padding"]
    if len(padding) == 2 * count == 4:
        return padding[:2], padding[2:]
    return tuple((entry, entry) for entry in padding)


def backward(call: Call) -> Geometry | None:
    """Return the geometry of a call that passed the rows; check what the vendor's interface leaves to its kernels.

    It is None where an extent is not known.
    """
    shapes = shapes_of(call)
    transposed, groups, count = call["transposed"], call["groups"], len(shapes.large) - 2
    aten.check_fit(call, shapes, groups, names_of(call))
    extra = ints(call["outputPadding"], count, 0)
    if len(extra) != count:
        if any(extra):
            raise call.refuse("outputPadding", list(extra), "two entries, or four zeros: no document defines four "
                              "other numbers")
        extra = (0,) * count
    if transposed:
        check_output_padding(call, "geometry")
    pads = pads_of(call, count)
    aten.check_sizes(call, shapes, call["stride"], pads, call["dilation"], extra if transposed else None)
    if not is_product(call) and call["biasSizes"] is not None:
        check_bias(call, ("E44", "E45", "E46"))
    if not shapes.known:
        return None
    return aten.build(shapes, groups, call["stride"], tuple(begin for begin, _ in pads), call["dilation"]).checked(call)
