"""benchdnn's problem descriptors."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import GraphError
from .geometry import Axis, effective, reach
from .layers import Layer, divided

SPATIAL = "dhw"
_KEY = re.compile(r"(g|mb|[io]c|[iokspd][dhw])(\d+)_*")
_FORM = "gXmbX_icXidXihXiwX_ocXodXohXowX_kdXkhXkwX_sdXshXswX_pdXphXpwX_ddXdhXdwX_nNAME"


def parse_descriptor(text: str, *, transposed: bool = False) -> Layer:
    """Return the layer that a benchdnn problem descriptor such as ``mb8_ic64ih56oc64oh56kh3ph1`` describes.

    Parameters
    ----------
    text : str
        ``g`` groups, ``mb`` batch (2), ``ic``, ``oc`` channels in all, and per axis d, h, w: input ``i``, output ``o``,
        kernel ``k``, stride ``s`` (1), padding ``p`` and dilation ``d`` counted from 0; ``n`` and a name end it. A
        smaller axis that is left out equals the larger one (``ih56`` is square); an output that is left out is
        computed with padding 0 by default; a padding that is left out beside an output is the symmetric one.
    transposed : bool
        Whether it stands for a deconvolution, as after benchdnn's ``--deconv``.

    Raises
    ------
    GraphError
        If it does not follow this form, or its sizes contradict each other.
    """
    where = f"descriptor {text!r}"
    values, name = _fields(text, where)
    missing = [key for key in ("ic", "oc") if not values.get(key)]
    present = [letter for letter in SPATIAL if any(_names_axis(values, key + letter) for key in "iokspd")]
    if missing or not present:
        raise GraphError(f"{where} gives no {' and no '.join(missing) or 'spatial axis'}; the form is {_FORM}")
    last = SPATIAL.index(present[-1])
    if present != list(SPATIAL[last + 1 - len(present): last + 1]):
        raise GraphError(f"{where} leaves out an axis between {present[0]!r} and {present[-1]!r}")
    axes = [_axis(values, letter, transposed, where) for letter in present]
    axes += [axes[-1]] * (2 - last)
    if any(not value for key, value in values.items() if key in ("g", "mb") or key[0] == "s"):
        raise GraphError(f"{where} has a zero among g, mb and the strides")
    geometry = divided(values.get("mb", 2), values["ic"], values["oc"], values.get("g", 1), tuple(axes), transposed,
                       where)
    return Layer(name or text, geometry, transposed)


def _fields(text: str, where: str) -> tuple[dict[str, int], str]:
    values: dict[str, int] = {}
    position = 0
    while position < len(text):
        if text[position] == "n":
            name = text[position + 1:]
            quoted = len(name) > 1 and name[0] == name[-1] == '"'
            return values, name[1:-1] if quoted else name
        match = _KEY.match(text, position)
        if match is None:
            raise GraphError(f"{where} is not understood from {text[position:]!r} on; the form is {_FORM}")
        if match[1] in values:
            raise GraphError(f"{where} gives {match[1]!r} twice")
        if len(match[2]) > 9:
            raise GraphError(f"{where} has {match[1]!r} above 999999999")
        values[match[1]] = int(match[2])
        position = match.end()
    return values, ""


def _names_axis(values: Mapping[str, int], key: str) -> bool:
    """Whether a key requires its axis: a missing axis allows only 0 and a stride of 1."""
    return values.get(key, 0) > (key[0] == "s")


def _axis(values: Mapping[str, int], letter: str, transposed: bool, where: str) -> Axis:
    extent, result, taps, stride, padding, dilation = (values.get(key + letter) for key in "iokspd")
    if not extent or not taps:
        lacking = [key + letter for key in "ik" if not values.get(key + letter)]
        named = next(key + letter for key in "iokspd" if _names_axis(values, key + letter))
        raise GraphError(f"{where} gives no {' and no '.join(lacking)}, or 0; {named} names the axis {letter}, so "
                         f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} needed too")
    stride, dilation = 1 if stride is None else max(stride, 1), (dilation or 0) + 1
    if not result:
        kernel, padding = effective(taps, dilation), padding or 0
        result = reach(extent, kernel, stride) - 2 * padding if transposed else (
            extent + 2 * padding - kernel) // stride + 1
        if result < 1:
            raise GraphError(f"{where} gives no o{letter}, and the other numbers make it {result}")
    large, small = (result, extent) if transposed else (extent, result)
    axis = Axis(large, small, taps, stride, dilation, padding or 0)
    if padding is None:
        axis = axis._replace(begin=max(axis.end // 2, 0))
    if -axis.end >= stride:
        raise GraphError(f"{where}: i{letter}, o{letter}, k{letter} and the others contradict each other")
    return axis
