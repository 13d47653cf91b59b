"""An operator's declaration, a call of it and the plan of that call. Everything else about an operator is derived.

An `OpSpec` names the ports, attributes, types and conformances of one operator and carries two functions:
`plan`, the vendor's rule in integers (a `Call` without arrays becomes a `Plan`), and `run`, the kernel calls.
This module imports neither onnx nor a compiled module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .errors import OpError, OpTypeError
from .geometry import Geometry
from .once import once
from .roles import Convolution, Precision, Role
from .spec_parts import REQUIRED, Attribute, ByConformance, Kind, Port, Rules, Spellings, by_conformance, spellings

__all__ = [
    "REQUIRED", "Attribute", "ByConformance", "Call", "Dim", "Kind", "OpSpec", "Plan", "Port", "Rules", "Shape",
    "Spellings", "TensorType", "by_conformance", "snake_case", "spellings",
]

Dim = Any
"""An extent: an int. In shape inference it may be a symbol (str) or unknown (None); `plan` gets ints only."""
Shape = tuple[Dim, ...]


class TensorType(NamedTuple):
    """Shape (None = unknown rank, in shape inference only) and number format of a tensor."""

    shape: Shape | None
    format: str

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape where it is known."""
        assert self.shape is not None
        return self.shape


@dataclass(frozen=True, eq=False)
class OpSpec:
    """Declaration of one operator.

    Parameters
    ----------
    vendor, name : str
        ``vendor::name`` is the qualified name.
    since_version : int
        Version of the operator in its domain.
    doc : str
        One sentence; the formula follows after ": ".
    source : str
        Document and section that the semantics come from.
    inputs, outputs : tuple of Port
    attributes : tuple of Attribute
    types : mapping
        Type variable -> names of number formats.
    conformances : tuple of str
        The rules to choose from, the default first. An operator with one rule has no argument `conformance`.
    extends : mapping
        Conformance -> the conformance that it adds number formats to; that one's rules hold for everything else.
    uniform : tuple of str
        Conformances under which all tensors have one format, whatever their type variables.
    plan : callable
        ``plan(call) -> Plan``; raises `OpError` through ``call.refuse``.
    run : callable
        ``run(plan, inputs, outputs, kernels, threads)`` fills the output arrays through `kernels`, the module of
        the four kernels or an object in its place, which may record the calls.
    infer : callable, optional
        ``infer(call) -> tuple of TensorType or None`` for calls with unknown extents.
    domain : str, optional
        ONNX domain, by default ``convreg.<vendor>``.
    rules : Rules
    positional_attributes : bool
        Whether Python also accepts the attributes by position.
    ordered_checks : bool
        Whether `plan` calls ``call.check_bounds`` itself, because the vendor fixes the order of the checks.
    statuses : mapping
        Conformance -> {rule: the vendor's status number}.
    convolution : Convolution
        What the roles of the ports leave open; it has no meaning where they have none.
    """

    vendor: str
    name: str
    since_version: int
    doc: str
    source: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    attributes: tuple[Attribute, ...]
    types: Mapping[str, ByConformance[tuple[str, ...]]]
    conformances: tuple[str, ...]
    plan: Callable[[Call], Plan]
    run: Callable[..., None]
    infer: Callable[[Call], tuple[TensorType | None, ...]]
    domain: str = ""
    rules: ByConformance[Rules] = field(default_factory=Rules)
    extends: Mapping[str, str] = field(default_factory=dict)
    uniform: tuple[str, ...] = ()
    positional_attributes: bool = False
    ordered_checks: bool = False
    statuses: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    convolution: Convolution = field(default_factory=Convolution)

    @property
    def qualified_name(self) -> str:
        """``vendor::name``."""
        return f"{self.vendor}::{self.name}"

    @property
    def onnx_domain(self) -> str:
        """Domain of the ONNX nodes."""
        return self.domain or f"convreg.{self.vendor}"

    @property
    def function_name(self) -> str:
        """Name of the Python function in ``convreg.<vendor>``."""
        return snake_case(self.name)

    @once
    def input_names(self) -> tuple[str, ...]:
        """All inputs, in order."""
        return tuple(port.name for port in self.inputs)

    @once
    def tensor_names(self) -> frozenset[str]:
        """The inputs that are tensors and state no shape."""
        return frozenset(port.name for port in self.inputs if not port.shape)

    @property
    def shape_ports(self) -> tuple[Port, ...]:
        """The inputs that state a shape."""
        return tuple(port for port in self.inputs if port.shape)

    @property
    def scale_ports(self) -> tuple[Port, ...]:
        """The inputs that scale others, the last ones."""
        return tuple(port for port in self.inputs if port.scales)

    @property
    def vendor_inputs(self) -> tuple[Port, ...]:
        """The inputs of the vendor's operator: all except those that scale others."""
        return tuple(port for port in self.inputs if not port.scales)

    @once
    def roles(self) -> Mapping[Role, str]:
        """Names of the ports by role, empty where they have none."""
        return {port.role: port.name for port in self.inputs + self.outputs if port.role}

    @property
    def convolves(self) -> bool:
        """Whether the roles say how it is a gradient of a convolution."""
        return "grad_output" in self.roles

    def base(self, conformance: str) -> str:
        """Return the conformance whose rules hold for everything except number formats."""
        return self.extends.get(conformance, conformance)

    def rules_under(self, conformance: str) -> Rules:
        """Return the rows of the rule table in force."""
        return by_conformance(self.rules, self.base(conformance))

    def attribute(self, name: str) -> Attribute:
        """Return the attribute called `name`."""
        return next(attribute for attribute in self.attributes if attribute.name == name)


@dataclass(frozen=True)
class Call:
    """One call without its arrays, as a vendor's rule sees it.

    `attributes` has the bound values by the vendor's names, shape ports included (None = not given). `outputs` has the
    tensors given as ``out=``. `wanted` says which outputs are named. `given` has the attributes that the caller stated.
    """

    spec: OpSpec
    conformance: str
    inputs: tuple[TensorType | None, ...]
    attributes: tuple[tuple[str, Any], ...]
    outputs: tuple[TensorType | None, ...]
    wanted: tuple[bool, ...]
    given: frozenset[str] = frozenset()

    @once
    def _values(self) -> dict[str, Any]:
        return dict(self.attributes)

    @once
    def _tensors(self) -> dict[str, TensorType | None]:
        ports = self.spec.inputs + self.spec.outputs
        return {port.name: tensor for port, tensor in zip(ports, self.inputs + self.outputs, strict=True)}

    def __getitem__(self, name: str) -> Any:
        """Value of an attribute or shape port."""
        return self._values[name]

    @property
    def base(self) -> str:
        """The conformance whose rules hold for everything except number formats."""
        return self.spec.base(self.conformance)

    def declares(self, name: str) -> bool:
        """Whether the operator has that attribute under this conformance."""
        return name in self._values

    def tensor(self, port: str) -> TensorType:
        """Shape and format of a port that is present."""
        tensor = self._tensors[port]
        assert tensor is not None, port
        return tensor

    def shape(self, port: str) -> tuple[int, ...]:
        """Shape of a present port whose extents are all known."""
        return self.tensor(port).extents

    def has(self, port: str) -> bool:
        """Whether the port is present (for an output: given as ``out=``)."""
        return self._tensors[port] is not None

    def refuse(
        self, argument: str, value: Any, allowed: str, rule: str = "geometry", *, wrong_type: bool = False
    ) -> OpError:
        """Return the exception for a value that the rules refuse, with the vendor's status where it has one."""
        kind = OpTypeError if wrong_type else OpError
        status = self.spec.statuses.get(self.conformance, {}).get(rule)
        return kind(self.spec.qualified_name, argument, value, allowed, rule=rule, status=status)

    def formats(self, type_variable: str) -> tuple[str, ...]:
        """Number formats that a type variable allows under this conformance."""
        return by_conformance(self.spec.types[type_variable], self.conformance)

    def check_formats(self) -> None:
        """Refuse number formats that are not declared, and different formats of ports that must agree.

        Ports must agree if they share a type variable, under uniform conformances, and if an operand is float64.
        """
        rules = self.spec.rules_under(self.conformance)
        uniform = self.conformance in self.spec.uniform
        operands = zip(self.spec.inputs, self.inputs, strict=True)
        wide = any(tensor is not None and tensor.format == "float64" for port, tensor in operands if not port.scales)
        bound: dict[str, tuple[str, str]] = {}
        ports = self.spec.inputs + self.spec.outputs
        for index, (port, tensor) in enumerate(zip(ports, self.inputs + self.outputs, strict=True)):
            if tensor is None or port.shape:
                continue
            is_output = index >= len(self.spec.inputs)
            allowed = self.formats(port.type)
            if tensor.format not in allowed:
                row = rules.output_format if is_output else rules.named_formats.get(tensor.format, rules.format)
                raise self.refuse(port.name, tensor.format, " or ".join(allowed), row, wrong_type=True)
            alike = uniform or (wide and not is_output and not port.scales)
            first, name = bound.setdefault("" if alike else port.type, (tensor.format, port.name))
            if tensor.format != first:
                raise self.refuse(port.name, tensor.format, f"{first}, as {name} is",
                                  rules.output_format if is_output else rules.mixed_formats, wrong_type=True)

    def check_bounds(self, *names: str) -> None:
        """Refuse entries of the named attributes that lie outside the declared bounds."""
        for name in names:
            attribute, value = self.spec.attribute(name), self._values.get(name)
            low, high = by_conformance(attribute.minimum, self.base), attribute.maximum
            if value is None or (low is None and high is None):
                continue
            entries = value if isinstance(value, tuple) else (value,)
            for entry in entries:
                if (low is None or entry >= low) and (high is None or entry <= high):
                    continue
                rule = by_conformance(attribute.rule, self.base)
                if entry < 0:
                    rule = by_conformance(attribute.rule_negative, self.base) or rule
                bound = f"at least {low}" if high is None else f"{low} to {high}"
                shown = list(value) if isinstance(value, tuple) else value
                raise self.refuse(name, shown, f"{'entries' if shown is not value else 'an integer'} {bound}", rule)


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of planning a call: the type of every output (None = not computed) and the data that `run` needs.

    `emulation` says how operands are scaled and results rounded; it is None if the caller cannot choose that.
    `geometry` is None where an empty tensor leaves nothing but zeros, and for operators without a convolution.
    `divided_small` says that the groups divide the small side of weights, and not the large side.
    """

    outputs: tuple[TensorType | None, ...]
    work: Any = None
    emulation: Any = None
    geometry: Geometry | None = None
    divided_small: bool = False
    precision: Precision = field(default_factory=Precision)

    @property
    def integers(self) -> Geometry:
        """The geometry where there is one."""
        assert self.geometry is not None
        return self.geometry


def snake_case(name: str) -> str:
    """Return a vendor's CamelCase or camelCase name as Python spells it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
