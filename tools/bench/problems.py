"""The timed layers of networks, read from a JSON file of shapes or from benchdnn's problem descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from convreg import GraphError
from convreg.descriptors import parse_descriptor
from convreg.errors import near_misses
from convreg.files import PathLike, json_of, read_bytes
from convreg.geometry import Axis
from convreg.layers import Layer, divided

KEYS = ("name", "N", "C_in", "C_out", "spatial_in", "spatial_out", "kernel", "stride", "dilation", "pad_begin",
        "pad_end", "groups", "transposed", "output_padding")
"""The keys of an object in a shapes file that describe the layer."""
REMARKS = ("network", "origin", "note", "gflop_per_pass")
"""Those that are for the reader of the file alone."""


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
class Problem(Layer):
    """A layer to time.

    `directions` and `dtype` are those that its source asks for; None leaves the choice to the caller. `node` is the
    one that it stands for, where it comes from a model.
    """

    directions: tuple[str, ...] | None = None
    dtype: str | None = None
    node: Node | None = None


def problem_of(text: str, *, transposed: bool = False) -> Problem:
    """Return the layer that a benchdnn problem descriptor describes, as `convreg.descriptors.parse_descriptor` does."""
    layer = parse_descriptor(text, transposed=transposed)
    return Problem(layer.name, layer.geometry, layer.transposed)


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
    return Problem(name, divided(batch, channels_in, channels_out, groups, axes, transposed, where), transposed)


def _value(entry: Mapping[str, Any], key: str, where: str, default: Any) -> Any:
    if key not in entry and default is None:
        raise GraphError(f"{where}: key {key!r} is missing")
    return entry.get(key, default)


def _integer(entry: Mapping[str, Any], key: str, where: str, default: int | None) -> int:
    value = _value(entry, key, where, default)
    if type(value) is not int or not 1 <= value < 2**31:
        raise GraphError(f"{where}: {key!r} is {value!r}; allowed: a positive integer")
    return value


def _integers(entry: Mapping[str, Any], key: str, where: str, default: tuple[int, ...] | None, low: int) -> list[int]:
    value = _value(entry, key, where, default)
    if not isinstance(value, list | tuple) or not value or any(
            type(number) is not int or not low <= number < 2**31 for number in value):
        raise GraphError(f"{where}: {key!r} is {value!r}; allowed: a list of integers, at least {low}")
    return list(value)
