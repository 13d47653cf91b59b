"""The result of every rule for the same attributes: pads, windows, sizes and verdicts, side by side.

A call is checked under each conformance of its operator. If an attribute names the padding mode (``auto_pad``), the
operators of other vendors read the same numbers as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from . import registry
from .calls.arguments import UNSET_SHAPE, shape_value, tensor_type, tensor_value
from .calls.binding import asking, check_conformance, make_call, plan_of
from .calls.signature import Arguments, reader_of, tensor_port
from .errors import Asking, OpError, UnknownOp, shorten
from .formats import FORMATS
from .geometry import Axis, Geometry, effective, ints
from .geometry.standard import Settings, check_window, conv_transpose_window
from .guard import guarded, thread_count
from .spec import Call, OpSpec, Shape, TensorType, by_conformance, snake_case


@dataclass(frozen=True)
class Reading:
    """One rule's reading of a call.

    Attributes
    ----------
    operator, conformance : str
        Whose rule.
    outputs : tuple
        `TensorType` of every result, None where one is not computed; empty if the call is refused.
    geometry : Geometry or None
        The integers; None if the call is refused or an empty tensor leaves only zeros.
    refusal : OpError or None
        What the rule raises.
    """

    operator: str
    conformance: str
    outputs: tuple[TensorType | None, ...] = ()
    geometry: Geometry | None = None
    refusal: OpError | None = None

    @property
    def accepted(self) -> bool:
        """Whether the rule accepts the call."""
        return self.refusal is None

    @property
    def rule(self) -> str | None:
        """The row of the vendor's table that refuses the call."""
        return None if self.refusal is None else self.refusal.rule

    @property
    def begin(self) -> tuple[int, ...]:
        """Per axis, the pad before the large side."""
        return tuple(axis.begin for axis in self.axes)

    @property
    def end(self) -> tuple[int, ...]:
        """Per axis, the pad after the large side; negative if no position reaches its last elements."""
        return tuple(axis.end for axis in self.axes)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The spatial axes; none if the call is refused."""
        return () if self.geometry is None else self.geometry.axes

    def cells(self) -> list[str]:
        """A row of the table."""
        name = f"{self.operator} {self.conformance}".strip()
        if self.refusal is not None:
            return [name, f"refused by {self.rule}"]
        shapes = [_list(made.extents) for made in self.outputs if made is not None]
        sides = [_list([getattr(axis, side) for axis in self.axes]) for side in ("large", "small", "taps")]
        return [name, "accepted", " ".join(shapes) or "nothing", _list(self.begin), _list(self.end), *sides]


@dataclass(frozen=True)
class Explanation:
    """Readings of one call; prints as a table, with the reasons of refusals below.

    Attributes
    ----------
    operator : str
    readings : tuple of Reading
        One for each conformance. "emulation" has one only where it says something else than the conformance that it
        extends.
    neighbours : tuple of Reading
        What the operators of other vendors make of the same attributes.
    """

    operator: str
    readings: tuple[Reading, ...]
    neighbours: tuple[Reading, ...] = ()

    def __getitem__(self, conformance: str) -> Reading:
        """Return the reading under a conformance of the operator.

        Where `readings` has none, because it says what that of the extended conformance says, it is the latter.
        """
        found = {reading.conformance: reading for reading in self.readings}
        spec = registry.get(self.operator).spec
        found |= {name: found[spec.base(name)] for name in spec.conformances if name not in found}
        if not isinstance(conformance, str) or conformance not in found:
            raise UnknownOp(shorten(conformance), found, what="reading")
        return found[conformance]

    def __str__(self) -> str:
        """The table."""
        header = ["rule", "verdict", "results", "pad before", "pad after", "large side", "small side", "kernel"]
        rows = [header, *(reading.cells() for reading in self.readings)]
        if self.neighbours:
            rows += [["neighbours:"], *(reading.cells() for reading in self.neighbours)]
        widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(len(header))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
                 for row in rows]
        reasons = dict.fromkeys(f"{reading.conformance or reading.operator}: {reading.refusal}"
                                for reading in (*self.readings, *self.neighbours) if reading.refusal is not None)
        return "\n".join([*lines, *([""] if reasons else []), *reasons])


def _list(values: Any) -> str:
    return ",".join(map(str, values)) or "-"


@guarded("convreg::explain")
def explain(name: str, *shapes: Any, dtypes: str | Mapping[str, str] = "float32", **arguments: Any) -> Explanation:
    """Return the result of every conformance for a call, and the reading of other vendors' operators.

    Parameters
    ----------
    name : str
        An operator's name, as `get` takes it.
    *shapes, **arguments
        The arguments of the operator's function, with a shape in place of each array. Arrays are accepted.
        `conformance` and `threads` are checked and change nothing: all conformances are shown.
    dtypes : str or mapping
        Number format of all tensors, or of each by its name in the vendor's spelling or in Python's. Those that a
        mapping does not name are float32. The name of another dtype of NumPy, such as ``"int8"``, is a format that
        operators refuse.

    Returns
    -------
    Explanation

    Raises
    ------
    OpTypeError
        If an argument or a name in `dtypes` is unknown, an argument is not a shape, or ``out`` is given.
    OpError
        If a format or the conformance is unknown.
    UnknownOp
        If there is no such operator.

    Examples
    --------
    >>> import convreg
    >>> told = convreg.explain("onednn::ConvolutionBackwardData", (1, 2, 6), (2, 3, 4), (1, 3, 6), strides=[1],
    ...                        pads_begin=[0], pads_end=[0], dilations=[1], auto_pad="SAME_UPPER", data_format="NCX",
    ...                        weights_format="OIX")
    >>> told["document"].begin, told["library"].begin
    ((2,), (1,))
    """
    spec = registry.resolve(name).spec
    given = reader_of(spec)(shapes, dict(arguments))
    _check_options(spec, given)
    formats = _formats(spec, dtypes)
    tensors = tuple(_tensor(spec, index, value, formats) for index, value in enumerate(given.tensors))
    return Explanation(spec.qualified_name, tuple(_readings(spec, tensors, given)),
                       tuple(_neighbours(spec, tensors, given)))


def _check_options(spec: OpSpec, given: Arguments) -> None:
    """Refuse options of a call that no call could have; none of them changes what is explained."""
    ask = asking(spec, spec.conformances[0])
    if given.conformance is not None:
        check_conformance(spec, given.conformance)
    thread_count(ask, given.threads)
    if given.out is not None:
        raise ask.refuse("out", "given", "None: nothing is computed", "arguments", wrong_type=True)


def _readings(spec: OpSpec, tensors: tuple[TensorType | None, ...], given: Arguments) -> Iterator[Reading]:
    """Read a call under every conformance; one that extends another only where it says something else."""
    readings = {name: _reading(spec, name, tensors, given) for name in spec.conformances}
    for name, reading in readings.items():
        base = readings[spec.base(name)]
        if reading is base or reading.accepted != base.accepted or reading.outputs != base.outputs:
            yield reading


def _formats(spec: OpSpec, dtypes: str | Mapping[str, str]) -> dict[str, str]:
    """Return the format of every input by the vendor's name."""
    ask = asking(spec, spec.conformances[0])
    given = dtypes if isinstance(dtypes, Mapping) else {}
    for format in given.values() if isinstance(dtypes, Mapping) else (dtypes,):
        if not isinstance(format, str):
            raise ask.refuse("dtypes", dtypes, "the name of a format, or a mapping from ports to names", "arguments",
                             wrong_type=True)
        if format not in _dtypes():
            raise ask.refuse("dtypes", format, " or ".join(FORMATS), "arguments")
    formats: dict[str, str] = {}
    for name, format in given.items():
        port = tensor_port(spec, name)
        if port is None:
            known = ", ".join(snake_case(port.name) for port in spec.inputs if not port.shape)
            raise ask.refuse("dtypes", dtypes, f"a mapping from names of {known}", "arguments", wrong_type=True)
        if port.name in formats:
            raise ask.refuse("dtypes", dtypes, f"one format for {snake_case(port.name)}", "arguments", wrong_type=True)
        formats[port.name] = format
    return dict.fromkeys(spec.input_names, dtypes if isinstance(dtypes, str) else "float32") | formats


@lru_cache(maxsize=1)
def _dtypes() -> frozenset[str]:
    """Return the names that the format of a tensor can have: ours, and the dtypes of arrays that operators refuse."""
    kinds = (*np.sctypeDict.values(), *vars(ml_dtypes).values())
    return frozenset({*FORMATS, *(np.dtype(kind).name for kind in kinds
                                  if isinstance(kind, type) and issubclass(kind, np.generic))})


def _tensor(spec: OpSpec, index: int, value: Any, formats: Mapping[str, str]) -> TensorType | None:
    """Return the type that a shape or array stands for."""
    port = spec.inputs[index]
    if value is None or port.shape:
        return None
    before, rules = asking(spec, spec.conformances[0]), spec.rules_under(spec.conformances[0])
    if hasattr(type(value), "__array__"):
        return tensor_type(tensor_value(before, rules, port, value))
    extents = shape_value(before, rules, port, value)
    if any(extent < 0 for extent in extents):
        raise before.refuse(port.name, list(extents), "the shape of a tensor, without an extent below 0", "arguments")
    return TensorType(extents, formats[port.name])


def _reading(
    spec: OpSpec, conformance: str, tensors: tuple[TensorType | None, ...], given: Arguments
) -> Reading:
    try:
        call = _call(spec, conformance, tensors, given)
        plan = plan_of(call)
    except OpError as error:
        return Reading(spec.qualified_name, conformance, refusal=error)
    return Reading(spec.qualified_name, conformance, plan.outputs, plan.geometry)


def _call(spec: OpSpec, conformance: str, tensors: tuple[TensorType | None, ...], given: Arguments) -> Call:
    before, rules = asking(spec, conformance), spec.rules_under(conformance)
    stated: dict[str, Shape | None] = {}
    for port, tensor, value in zip(spec.inputs, tensors, given.tensors, strict=True):
        if port.shape:
            extents = None if value is None else shape_value(before, rules, port, value)
            stated[port.name] = None if extents == UNSET_SHAPE else extents
        elif tensor is None and not port.optional:
            raise before.refuse(port.name, None, "a tensor", rules.missing_input, wrong_type=True)
    return make_call(spec, conformance, tensors, stated, given.attributes)


class _Window(NamedTuple):
    """A data gradient's numbers in no dialect: shapes channel-first, weights small side first, `large` if stated."""

    small: tuple[int, ...]
    weights: tuple[int, ...]
    large: tuple[int, ...] | None
    groups: int
    lists: dict[str, tuple[int, ...]]
    mode: str
    extra: tuple[int, ...]


WINDOW = {"strides", "dilations", "pads_begin", "pads_end", "output_padding", "auto_pad"}
"""The attributes that hold a window's numbers."""

SPELLINGS = {  # mode: oneDNN, OpenVINO, ONNX
    "none": ("None", "explicit", "NOTSET"), "valid": ("VALID", "valid", "VALID"),
    "same_upper": ("SAME_UPPER", "same_upper", "SAME_UPPER"), "same_lower": ("SAME_LOWER", "same_lower", "SAME_LOWER"),
}


def _neighbours(spec: OpSpec, tensors: tuple[TensorType | None, ...], given: Arguments) -> Iterator[Reading]:
    """Read the attributes of a data gradient as the other dialects do that write pads the same way."""
    window = _window(spec, tensors, given)
    if window is None:
        return
    format = next(tensor.format for tensor in tensors if tensor is not None)
    for name, shapes, stated, attributes in _spelled(window):
        other = registry.get(name).spec
        if name == spec.qualified_name or None in shapes:
            continue
        types = [None if shape is None else TensorType(shape, format) for shape in shapes]
        types += [None] * (len(other.inputs) - len(types))
        asked = reader_of(other)((), {**stated, **attributes})
        yield from _readings(other, tuple(types), asked)
    yield _conv_transpose(window, format)


def _spelled(window: _Window) -> Iterator[tuple[str, list[Any], dict[str, Any], dict[str, Any]]]:
    """Operator, tensors, stated shape and attributes of the same gradient in each dialect."""
    onednn, openvino, standard = SPELLINGS[window.mode]
    lists, large = window.lists, window.large
    if large is not None:
        yield "onednn::ConvolutionBackwardData", [window.small, window.weights], {"dst_shape": large}, {
            **lists, "auto_pad": onednn, "groups": window.groups, "data_format": "NCX", "weights_format": "OIX"}
    stated = {} if large is None else {"output_shape": large[2:]}
    yield "openvino::ConvolutionBackpropData", [window.small, window.weights], stated, {
        **lists, "auto_pad": openvino, "groups": window.groups, "data_format": "NCX", "filter_format": "OIX",
        "output_padding": window.extra}
    pads = [*lists["pads_begin"], *lists["pads_end"]] if window.mode == "none" else None
    yield "microsoft::ConvGrad", [window.small, large, window.weights], {}, {
        "auto_pad": standard, "group": window.groups, "strides": lists["strides"], "dilations": lists["dilations"],
        "pads": pads}


def _conv_transpose(window: _Window, format: str) -> Reading:
    """What ONNX's own ConvTranspose does: with output_shape it derives the pads whatever the mode."""
    lists, mode, large = window.lists, SPELLINGS[window.mode][2], None if window.large is None else window.large[2:]
    pads = (*lists["pads_begin"], *lists["pads_end"]) if mode == "NOTSET" and large is None else None
    given = Settings(lists["strides"], lists["dilations"],
                     tuple(map(effective, window.weights[2:], lists["dilations"])), pads)
    placed = conv_transpose_window(mode, window.small[2:], given.kernel, given.stride, pads, window.extra, large)
    name, rule = "onnx::ConvTranspose", "without output_shape" if large is None else "with output_shape"
    ask, formats = Asking(name), by_conformance(registry.get("microsoft::ConvGrad").spec.types["T"], "*")
    try:
        if format not in formats:  # ConvGrad takes the formats of ONNX's own convolutions
            raise ask.refuse("X", format, " or ".join(formats), wrong_type=True)
        check_window(ask, given, placed, window.extra, window.small)
    except OpError as error:
        return Reading(name, rule, refusal=error)
    channels = window.weights[1] * window.groups
    axes = tuple(Axis(extent, y, k, s, d, begin) for (begin, extent), y, k, s, d in zip(
        placed, window.small[2:], window.weights[2:], given.stride, given.dilation, strict=True))
    shape = (window.small[0], channels, *(axis.large for axis in axes))
    geometry = Geometry(window.small[0], window.groups, window.weights[1], window.small[1] // window.groups, axes)
    return Reading(name, rule, (TensorType(shape, format),), geometry)


def _window(spec: OpSpec, tensors: tuple[TensorType | None, ...], given: Arguments) -> _Window | None:
    """Return a data gradient's numbers; None for other operators and for what no conformance accepts."""
    if not _reads_window(spec):
        return None
    for conformance in spec.conformances:
        try:
            call = _call(spec, conformance, tensors, given)
            plan = plan_of(call)
        except OpError:
            continue
        geometry, mode = plan.geometry, call["auto_pad"]
        if geometry is None or mode not in SPELLINGS:
            return None
        stated = any(call[port.name] is not None for port in spec.shape_ports)
        sides = [(geometry.batch, geometry.groups * channels, *extents) for channels, extents in (
            (geometry.small_channels, [axis.small for axis in geometry.axes]),
            (geometry.large_channels, [axis.large for axis in geometry.axes]))]
        weights = (sides[0][1], geometry.large_channels, *(axis.taps for axis in geometry.axes))
        neutral = {"strides": 1, "dilations": 1, "pads_begin": 0, "pads_end": 0}
        lists = {name: ints(call[name] or None, len(geometry.axes), value) for name, value in neutral.items()}
        if any(len(values) != len(geometry.axes) for values in lists.values()):
            return None  # pads that the mode leaves unread
        extra = ints(call["output_padding"], len(geometry.axes), 0)
        return _Window(sides[0], weights, sides[1] if stated else None, geometry.groups, lists, mode, extra)
    return None


def _reads_window(spec: OpSpec) -> bool:
    """Whether an operator is a data gradient whose attributes have the names of a window's numbers."""
    arranged = spec.convolution
    return (spec.convolves and not arranged.forward and arranged.transposed is False and "data" not in spec.roles
            and WINDOW.issubset(attribute.name for attribute in spec.attributes if not attribute.only))
