"""The timed layers of networks, read from a JSON file of shapes or from benchdnn's problem descriptors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from convreg import GraphError
from convreg.errors import near_misses
from convreg.files import PathLike, json_of, read_bytes
from convreg.geometry import Axis, Geometry, effective, reach

DIRECTIONS = ("data", "weights", "forward")
KEYS = ("name", "N", "C_in", "C_out", "spatial_in", "spatial_out", "kernel", "stride", "dilation", "pad_begin",
        "pad_end", "groups", "transposed", "output_padding")
"""The keys of an object in a shapes file that describe the layer."""
REMARKS = ("network", "origin", "note", "gflop_per_pass")
"""Those that are for the reader of the file alone."""


class Shapes(NamedTuple):
    """Shapes of the three tensors with channels before space: (N, C, X), (N, M, Y) and (M, C/groups, K)."""

    large: tuple[int, ...]
    small: tuple[int, ...]
    taps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """The properties of a model's node besides its geometry.

    `operands` are the number formats that its kernel multiplies, equal ones once, `result` the one that it writes, in
    the names of the records; `layouts` the orders of data and weights; `extras` what it does that no kernel does.
    """

    operands: tuple[str, ...]
    result: str
    layouts: tuple[str, str]
    extras: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """A layer: a convolution from the large to the small side, or, `transposed`, from the small to the large one.

    `directions` and `dtype` are those that its source asks for; None leaves the choice to the caller. `node` is the
    one that it stands for, where it comes from a model.
    """

    name: str
    geometry: Geometry
    transposed: bool = False
    directions: tuple[str, ...] | None = None
    dtype: str | None = None
    node: Node | None = None

    @property
    def shapes(self) -> Shapes:
        """Shapes of the large side, the small side and the weights."""
        g = self.geometry
        large, small = g.groups * g.large_channels, g.groups * g.small_channels
        return Shapes((g.batch, large, *(axis.large for axis in g.axes)),
                      (g.batch, small, *(axis.small for axis in g.axes)),
                      (small, g.large_channels, *(axis.taps for axis in g.axes)))

    @property
    def gflop(self) -> float:
        """Floating-point operations of one direction as networks count them, taps in the padding included."""
        return self._gflop([axis.small * axis.taps for axis in self.geometry.axes])

    @property
    def gflop_inside(self) -> float:
        """The same without the taps that fall into the padding: what has to be computed."""
        return self._gflop([sum(len(inside(axis, tap)) for tap in range(axis.taps)) for axis in self.geometry.axes])

    def _gflop(self, pairs: Sequence[int]) -> float:
        g = self.geometry
        return 2e-9 * g.batch * g.groups * g.large_channels * g.small_channels * prod(pairs)

    def kernel(self, direction: str) -> str:
        """Name of the kernel that a direction of this layer is."""
        if direction == "weights":
            return "backward_weights"
        return "forward" if (direction == "forward") != self.transposed else "backward_data"

    def __str__(self) -> str:
        """The layer in a few words."""
        large, small, taps = self.shapes
        axes = self.geometry.axes
        first, second = (small, large) if self.transposed else (large, small)
        words = ["x".join(map(str, first)), "to", "x".join(map(str, second[1:])), "by", "x".join(map(str, taps[2:]))]
        for label, values, neutral in (("stride", [axis.stride for axis in axes], 1),
                                       ("dilation", [axis.dilation for axis in axes], 1),
                                       ("groups", [self.geometry.groups], 1)):
            if any(value != neutral for value in values):
                words.append(f"{label} {'x'.join(map(str, dict.fromkeys(values)))}")
        return " ".join(words)


def inside(axis: Axis, tap: int) -> range:
    """Positions of the small side whose window has this tap inside the large side."""
    shift = axis.begin - tap * axis.dilation
    first = max(0, -(-shift // axis.stride))
    return range(first, max(first, min(axis.small, (axis.large - 1 + shift) // axis.stride + 1)))


# ---------------------------------------------------------------------------------------------------------------------
# Shape files


def shipped_shapes() -> list[Problem]:
    """Return the 38 layers that come with convreg."""
    return _problems(files("convreg.tools").joinpath("data/bench_shapes.json").read_bytes(), "bench_shapes.json")


def read_shapes(path: PathLike) -> list[Problem]:
    """Return the layers of a JSON file, a list of objects with the keys of the shipped file.

    Raises
    ------
    GraphError
        If the file cannot be read, or an entry is incomplete or contradicts itself.
    """
    return _problems(read_bytes(path), Path(path).name)


def _problems(content: bytes, where: str) -> list[Problem]:
    try:
        entries = json_of(content)
    except ValueError as error:
        raise GraphError(f"{where}: not a JSON file ({error})") from None
    if not isinstance(entries, list) or not entries:
        raise GraphError(f"{where}: not a list of one or more shapes")
    return [_entry(entry, f"{where}: shape {number}") for number, entry in enumerate(entries)]


def _entry(entry: Any, where: str) -> Problem:
    if not isinstance(entry, dict):
        raise GraphError(f"{where} is not an object")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise GraphError(f"{where} has no name")
    where = f"{where} ({name})"
    for key in entry:
        if key not in (*KEYS, *REMARKS):
            near = near_misses(key, KEYS)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise GraphError(f"{where}: key {key!r} is refused; allowed: {', '.join((*KEYS, *REMARKS))}{hint}")
    transposed = entry.get("transposed", False)
    if not isinstance(transposed, bool):
        raise GraphError(f"{where}: 'transposed' is not true or false")
    batch, channels_in, channels_out, groups = (
        _integer(entry, key, where, default) for key, default in
        (("N", None), ("C_in", None), ("C_out", None), ("groups", 1)))
    kernel = _integers(entry, "kernel", where, None, 1)
    count = len(kernel)
    if count > 3:
        raise GraphError(f"{where}: {count} spatial axes; allowed: 1 to 3")
    lists = {key: _integers(entry, key, where, (default,) * count, low)
             for key, default, low in (("stride", 1, 1), ("dilation", 1, 1), ("pad_begin", 0, 0), ("pad_end", 0, 0),
                                       ("output_padding", 0, 0))}
    lists |= {key: _integers(entry, key, where, None, 1) for key in ("spatial_in", "spatial_out")}
    for key, values in lists.items():
        if len(values) != count:
            raise GraphError(f"{where}: {key!r} has {len(values)} entries, 'kernel' {count}")
    large, small = ("spatial_out", "spatial_in") if transposed else ("spatial_in", "spatial_out")
    axes = tuple(map(Axis, lists[large], lists[small], kernel, lists["stride"], lists["dilation"], lists["pad_begin"]))
    for index, axis in enumerate(axes):
        room = lists["pad_end"][index] - axis.end
        if room != lists["output_padding"][index] if transposed else not 0 <= room < axis.stride:
            raise GraphError(f"{where}: 'spatial_in' and 'spatial_out' contradict each other on axis {index}")
    return Problem(name, _geometry(batch, channels_in, channels_out, groups, axes, transposed, where), transposed)


def _geometry(batch: int, channels_in: int, channels_out: int, groups: int, axes: tuple[Axis, ...], transposed: bool,
              where: str) -> Geometry:
    if channels_in % groups or channels_out % groups:
        raise GraphError(f"{where}: {groups} groups do not divide {channels_in} and {channels_out} channels")
    large, small = (channels_out, channels_in) if transposed else (channels_in, channels_out)
    return Geometry(batch, groups, large // groups, small // groups, axes)


def _integer(entry: Mapping[str, Any], key: str, where: str, default: int | None) -> int:
    value = entry.get(key, default)
    if type(value) is not int or not 1 <= value < 2**31:
        raise GraphError(f"{where}: {key!r} is {value!r}; allowed: a positive integer")
    return value


def _integers(entry: Mapping[str, Any], key: str, where: str, default: tuple[int, ...] | None, low: int) -> list[int]:
    value = entry.get(key, default)
    if not isinstance(value, list | tuple) or not value or any(
            type(number) is not int or not low <= number < 2**31 for number in value):
        raise GraphError(f"{where}: {key!r} is {value!r}; allowed: a list of integers, at least {low}")
    return list(value)


# ---------------------------------------------------------------------------------------------------------------------
# benchdnn's problem descriptors

SPATIAL = "dhw"
_KEY = re.compile(r"(g|mb|[io]c|[iokspd][dhw])(\d+)_*")
_FORM = "gXmbX_icXidXihXiwX_ocXodXohXowX_kdXkhXkwX_sdXshXswX_pdXphXpwX_ddXdhXdwX_nNAME"


def parse_descriptor(text: str, *, transposed: bool = False) -> Problem:
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
    geometry = _geometry(values.get("mb", 2), values["ic"], values["oc"], values.get("g", 1), tuple(axes), transposed,
                         where)
    return Problem(name or text, geometry, transposed)


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
