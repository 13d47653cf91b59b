"""Our operators inside onnxruntime: what its records say of each, and what a node does for given input shapes.

`_ort` is the library that onnxruntime loads; it asks here once per node and set of shapes, and repeats the answer by
itself. A call is written down by running the operator with kernels that note what they are given instead of computing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from onnx import helper

from ... import registry
from ...calls.arguments import attribute_values
from ...calls.binding import Bound, asking, bind, judged
from ...calls.outputs import allocate
from ...calls.recording import Recorder
from ...errors import OpError
from ...formats import FORMATS, format_of
from ...guard import guarded
from ...memory import Array
from ...ops import kernels
from ...spec import Call, OpSpec, Plan, Port, Shape, TensorType, by_conformance
from ..payload import element_of
from ..standard import STANDARD
from ..team import team

Tensor = tuple[int, int, Shape]
"""Address, element type and shape of a tensor in onnxruntime's memory."""

OPTIONAL = 1
INVALID_ARGUMENT, FAIL = 2, 1
ANY_TYPE = 0

ELSEWHERE = "inside onnxruntime, which cannot express it; convreg.onnx.run(...) takes it"

last_error = threading.local()
"""`error`: the exception behind this thread's last failed node, which onnxruntime reduces to its text."""


@guarded("convreg::onnx")
def ort_library() -> str:
    """Return the path of the library that adds convreg's operators to onnxruntime.

    Returns
    -------
    str
        For ``session_options.register_custom_ops_library(path)`` in this process; it may be registered any number of
        times.

    Examples
    --------
    >>> import onnxruntime, convreg.onnx
    >>> options = onnxruntime.SessionOptions()
    >>> options.register_custom_ops_library(convreg.onnx.ort_library())
    """
    from . import _ort

    _ort.install(records, explain, _run)
    path = _ort.__file__
    assert path is not None
    return path


def _run(kernel: Callable[..., None], operands: tuple[Any, ...], threads: int, settings: dict[str, Any]) -> None:
    """Call a kernel on the threads that the caller of the session asked for."""
    kernels.run(kernel, operands, threads or team(), settings)


def explain(error: BaseException) -> tuple[int, str]:
    """Return onnxruntime's code for an exception and our text; remember the exception for `last_error`."""
    last_error.error = error
    text = " ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", [])])
    return (INVALID_ARGUMENT, text) if isinstance(error, OpError) else (FAIL, f"{type(error).__name__}: {text}")


# ---------------------------------------------------------------------------------------------------------------------
# Records: one per operator and combination of element types


class Record(NamedTuple):
    """One signature of an operator: (element type, option, whether it states a shape) of inputs, (type, option) of
    outputs."""

    domain: str
    name: str
    since: int
    inputs: tuple[tuple[int, int, bool], ...]
    outputs: tuple[tuple[int, int], ...]
    operator: Operator


class Operator(NamedTuple):
    """An operator as nodes of a record ask for it: the names of the attributes to read, the formats of the inputs' type
    variables, and the maker of nodes."""

    spec: OpSpec
    attributes: tuple[str, ...]
    formats: dict[str, str]

    def node(self, attributes: dict[str, Any], wanted: tuple[bool, ...], elements: tuple[int, ...]) -> Node:
        """Return the node with these attributes, named outputs and element types of the outputs."""
        return Node(self.spec, attributes, wanted, elements, self.formats)


def records() -> tuple[Record, ...]:
    """Return the records of the newest version of every operator and of the standard ones that our kernels compute.

    It is the same object while these do not change.
    """
    return _records((*(operator.spec for operator in registry.registered()), *STANDARD.values()))


@lru_cache(maxsize=8)
def _records(specs: tuple[OpSpec, ...]) -> tuple[Record, ...]:
    return tuple(record for spec in specs for record in records_of(spec))


@lru_cache
def records_of(spec: OpSpec) -> tuple[Record, ...]:
    """Return one record for each combination of element types that some conformance takes.

    onnxruntime fixes the types of the outputs by those of the inputs, before it knows any attribute.
    """
    names = [attribute.name for attribute in spec.attributes]
    names += [port.name for port in spec.shape_ports if port.attribute]
    if len(spec.conformances) > 1:
        names.append("conformance")
    found: dict[tuple[int, ...], Record] = {}
    for conformance in spec.conformances:
        for formats in signatures(spec, conformance):
            inputs = tuple((ANY_TYPE if port.shape else element_of(formats[port.type]), option(port), port.shape)
                           for port in spec.inputs)
            outputs = tuple((element_of(name), option(port)) for port, name in
                            zip(spec.outputs, default_formats(spec, conformance, formats), strict=True))
            found.setdefault(tuple(entry[0] for entry in inputs), Record(
                ort_domain(spec), spec.name, spec.since_version, inputs, outputs,
                Operator(spec, tuple(names), formats)))
    return tuple(found.values())


def ort_domain(spec: OpSpec) -> str:
    """Return the domain inside onnxruntime: always one of ours.

    A library that adds to ``com.microsoft`` hides all that onnxruntime has there, and its own fusions then fail.
    """
    return f"convreg.{spec.vendor}"


def option(port: Port) -> int:
    """Return onnxruntime's number for whether a tensor may be absent."""
    return OPTIONAL if port.optional else 0


def signatures(spec: OpSpec, conformance: str) -> Iterator[dict[str, str]]:
    """Yield the formats of the inputs' type variables, every combination that `Call.check_formats` lets pass."""
    variables = list(dict.fromkeys(port.type for port in spec.inputs if not port.shape))
    operands = {port.type for port in spec.inputs if not port.shape and not port.scales}
    for chosen in product(*(by_conformance(spec.types[name], conformance) for name in variables)):
        formats = dict(zip(variables, chosen, strict=True))
        kinds = {formats[name] for name in operands}
        if len(kinds) == 1 or not (conformance in spec.uniform or "float64" in kinds):
            yield formats


def default_formats(spec: OpSpec, conformance: str, formats: dict[str, str]) -> list[str]:
    """Return the outputs' formats as far as the inputs' decide them: by variable, by `like`, or by the operator."""
    variables = {port.name: port.type for port in spec.inputs}
    if all(port.type in formats or port.like for port in spec.outputs):
        return [formats[port.type if port.type in formats else variables[port.like]] for port in spec.outputs]
    tensors = tuple(None if port.shape else TensorType(None, formats[port.type]) for port in spec.inputs)
    defaults = tuple((attribute.name, None if attribute.required else attribute.default)
                     for attribute in spec.attributes)
    nothing = (None,) * len(spec.outputs)
    call = Call(spec, conformance, tensors, defaults, nothing, (True,) * len(spec.outputs))
    made = spec.infer(call)
    return [formats[port.type] if port.type in formats else output.format if output else next(iter(formats.values()))
            for port, output in zip(spec.outputs, made, strict=True)]


@lru_cache
def dtype_of(element: int) -> np.dtype[Any]:
    """Return the dtype of tensors with an element type: the format's that travels so, else NumPy's."""
    carried = next((name for name in FORMATS if element_of(name) == element), None)
    return FORMATS[carried].dtype if carried else helper.tensor_dtype_to_np_dtype(element)


# ---------------------------------------------------------------------------------------------------------------------
# Nodes


class Node:
    """A node of a graph in onnxruntime.

    Parameters
    ----------
    spec : OpSpec
    attributes : dict
        Those that the node states, as read.
    wanted : tuple of bool
        Which outputs have a name.
    elements : tuple of int
        Element types that onnxruntime gives the outputs.
    formats : dict
        Formats of the inputs by type variable.

    Raises
    ------
    OpError
        If an attribute is refused whatever the inputs, or is a list of strings, which onnxruntime shows to nobody, or
        if the conformance refuses the formats.
    """

    def __init__(
        self, spec: OpSpec, attributes: dict[str, Any], wanted: tuple[bool, ...], elements: tuple[int, ...],
        formats: dict[str, str],
    ) -> None:
        self.spec, self.wanted, self.elements = spec, wanted, elements
        self.conformance = attributes.pop("conformance", None) if len(spec.conformances) > 1 else None
        self.attributes = attributes
        for attribute in spec.attributes:
            if attribute.kind == "strings" and attribute.name in attributes:
                raise asking(spec, spec.conformances[0]).refuse(
                    attribute.name, "given", f"no such attribute {ELSEWHERE}", "arguments")
        needed = tuple(None if port.optional or port.shape else TensorType(None, formats[port.type])
                       for port in spec.inputs)

        def check(chosen: str) -> None:
            before = asking(spec, chosen)
            attribute_values(before, spec.rules_under(chosen), attributes)
            if not spec.ordered_checks:
                replace(before, inputs=needed).check_formats()

        judged(spec, self.conformance, check)

    def program(self, tensors: Sequence[Tensor | None]) -> Program:
        """Return what to do for these inputs and all like them.

        Raises
        ------
        OpError
            What the call itself would raise.
        """
        inputs = self.arrays(tensors)
        bound = bind(self.spec, inputs, self.attributes, conformance=self.conformance, wanted=self.wanted)
        scratch = allocate(bound.call, bound.plan, bound.outputs)  # checks sizes; the memory is never touched
        self.check_types(bound)
        for array in scratch:
            if array is not None:
                array.flags.writeable = False
        shapes = tuple((0,) if array is None else array.shape for array in scratch)
        return Program(self, bound.plan, shapes, written_down(self.spec, bound, scratch))

    def arrays(self, tensors: Iterable[Tensor | None]) -> list[Array | None]:
        """Return the inputs as arrays over onnxruntime's memory."""
        return [None if tensor is None else array_at(*tensor)
                for port, tensor in zip(self.spec.inputs, tensors, strict=True)]

    def check_types(self, bound: Bound) -> None:
        """Refuse an output whose format is another one than onnxruntime holds the output in."""
        for port, output, element, named in zip(self.spec.outputs, bound.plan.outputs, self.elements, self.wanted,
                                                strict=True):
            if named and output is not None and element_of(output.format) != element:
                own = format_of(dtype_of(element))
                assert own is not None
                raise bound.call.refuse(port.name, output.format, f"{own.name} {ELSEWHERE}", "arguments",
                                        wrong_type=True)


class Program(NamedTuple):
    """What a node does for one set of input shapes: shapes of the outputs, and the kernel calls, None where the
    operator does more than calling kernels on its tensors."""

    node: Node
    plan: Plan
    shapes: tuple[Shape, ...]
    written: Steps | None

    def run(self, tensors: Sequence[Tensor | None], outputs: Sequence[int]) -> None:
        """Run the operator on tensors at these addresses."""
        spec, plan = self.node.spec, self.plan
        arrays = [None if port.shape else array
                  for port, array in zip(spec.inputs, self.node.arrays(tensors), strict=True)]
        made = tuple(
            None if output is None else array_at(address, element, output.extents, writable=True)
            for output, address, element in zip(plan.outputs, outputs, self.node.elements, strict=True))
        spec.run(plan, arrays, made, kernels, team())


def array_at(address: int, element: int, shape: Shape, *, writable: bool = False) -> Array:
    """Return memory of onnxruntime's as an array."""
    from . import _ort

    dtype = dtype_of(element)
    count = int(np.prod(shape, dtype=object))
    if not count:
        return np.empty(shape, dtype)
    return np.frombuffer(_ort.bytes_at(address, count * dtype.itemsize, writable), dtype).reshape(shape)


# ---------------------------------------------------------------------------------------------------------------------
# Writing a call down

Place = tuple[int, int, tuple[int, ...], tuple[int, ...], int]
"""An operand: number of the tensor (inputs, then outputs; -1 = none of them), offset or address in bytes, shape,
strides in bytes, bytes per element."""

Step = tuple[Callable[..., None], dict[str, Any], tuple[Place, ...]]
"""A kernel, its settings, and its operands: two read, one written, perhaps a bias."""


class Steps(NamedTuple):
    """The kernel calls, and the arrays that some operands lie in."""

    steps: tuple[Step, ...]
    constants: tuple[Array, ...]


class _Elsewhere(Exception):
    """An operand is no view of the node's tensors: the operator prepares its operands, so there is more to repeat."""


class _Program(Recorder):
    """Notes the calls of a node's run and where their operands lie."""

    def __init__(self, tensors: Iterable[Array | None]) -> None:
        self.tensors = list(tensors)
        self.steps: list[Step] = []
        self.constants: list[Array] = []
        self.written: list[int] = []

    def note_ones(self, ones: Array) -> None:
        """Keep the operand of a bias gradient that is no tensor of the node."""
        self.constants.append(ones)

    def note(self, kernel: str, operands: tuple[Array, Array, Array], settings: dict[str, Any]) -> None:
        """Write down the compiled function, its settings and the places of its operands."""
        settings = {key: setting for key, setting in settings.items() if key != "threads"}
        bias = settings.pop("bias", None)
        places = [self._place(array) for array in (*operands, *([] if bias is None else [bias]))]
        self.written.append(places[2][0])
        self.steps.append((kernels.implementation(kernel, settings["formats"]), settings, tuple(places)))

    def _place(self, array: Array) -> Place:
        address = array.__array_interface__["data"][0]
        shape, strides = array.shape, array.strides
        if not array.size or any(array is constant for constant in self.constants):
            return -1, address, shape, strides, array.itemsize
        for number, tensor in enumerate(self.tensors):
            if tensor is not None:
                offset = address - tensor.__array_interface__["data"][0]
                if 0 <= offset < tensor.nbytes:
                    return number, offset, shape, strides, array.itemsize
        raise _Elsewhere


def written_down(spec: OpSpec, bound: Bound, outputs: Sequence[Array | None]) -> Steps | None:
    """Return the kernel calls of a call, or None where repeating them would not be all.

    `outputs` are read-only, so that an operator which writes them other than through kernels is found out.
    """
    recorder = _Program([*bound.inputs, *outputs])
    try:
        spec.run(bound.plan, bound.inputs, tuple(outputs), recorder, 0)
    except (_Elsewhere, ValueError):  # NumPy refuses to write read-only arrays by a ValueError
        return None
    filled = [len(bound.inputs) + number for number, array in enumerate(outputs) if array is not None and array.size]
    if sorted(number for number in recorder.written if number >= 0) != filled:
        return None
    return Steps(tuple(recorder.steps), tuple(recorder.constants))
