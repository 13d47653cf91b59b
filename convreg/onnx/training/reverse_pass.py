"""The reverse pass: from one value back to others, one rule per node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from ... import registry
from ...errors import GraphError, near_misses, shorten
from ..graph import Declared, Scope, graphs_of, place, scope_of, used_names
from ..model.files import check_messages
from ..rewrite.builder import Names
from . import rule_registry, rules
from .batch_norm import is_training, use_batch_statistics
from .inference import typed
from .rounding import check_format
from .step import Array, Step
from .tidy import sort_nodes
from .value import Value, Writer

assert rules, "importing the package registers convreg's rules"

FLAT = {"Sign", "Floor", "Ceil", "Round", "RandomUniformLike", "RandomNormalLike", "Bernoulli", "EyeLike", "Hardmax"}
"""Operators whose floating-point results do not change with small changes of their inputs: gradients stop there."""


def add_gradients(
    model: ModelProto, y: str, wrt: Sequence[str], *, seed: str | None = None, format: str | None = None,
    known: Scope | None = None,
) -> tuple[ModelProto, dict[str, str]]:
    """Append the nodes that compute the gradients of one value.

    Parameters
    ----------
    model : onnx.ModelProto
        What `prepare` returns.
    y : str
        A floating-point value of the graph. Of one with several elements the sum is differentiated.
    wrt : sequence of str
        Inputs, initializers or other floating-point values of the graph.
    seed : str, optional
        A scalar value of the graph that all gradients are multiplied by.
    format : str, optional
        Number format to which the operands of the gradients of Conv, ConvTranspose, Gemm and MatMul are rounded.
    known : mapping, optional
        What inference finds of the values of the model; by default it is found here.

    Returns
    -------
    model : onnx.ModelProto
        A copy with further nodes. The gradients are no outputs of it yet. Convolution gradients are
        ``convreg.aten::convolution_backward`` nodes.
    gradients : dict
        For every name in `wrt` the name of its gradient, ``<name>_grad`` unless that is taken.

    Raises
    ------
    GraphError
        If a name is unknown or not floating point, y does not depend on it, or a node on the way has no rule.
    """
    whole = ModelProto()
    whole.CopyFrom(model)
    reverse = Reverse(whole, check_format("format", format), known)
    made = reverse.gradients(y, wrt, seed)
    graph = whole.graph
    nodes = reverse.writer.taken()
    for node in nodes:  # rules of others may write anything
        check_messages(node)
    graph.node.extend(nodes)
    graph.initializer.extend(reverse.writer.constants)
    sort_nodes(graph)
    unstated = {name for node in graph.node for name in node.output} - {
        value.name for value in (*graph.value_info, *graph.input, *graph.output)}
    for name in dict.fromkeys(reverse.typed):
        declared = reverse.writer.scope[name]
        if name in unstated and declared.dtype is not None and declared.shape is not None:
            graph.value_info.append(helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(declared.dtype), declared.shape))
    imports = {entry.domain for entry in whole.opset_import}
    ours = {spec.onnx_domain: spec.since_version for spec in registry.specs()}
    for domain in sorted({node.domain for node in graph.node} - imports):
        if domain in ours:
            whole.opset_import.add(domain=domain, version=ours[domain])
    return whole, made


def listed(wrt: Any) -> list[str]:
    """Return the names whose gradients are asked for.

    Raises
    ------
    GraphError
        If they are no sequence of names.
    """
    try:
        names = None if isinstance(wrt, str | bytes) else list(wrt)
    except TypeError:
        names = None
    if names is None:
        raise GraphError(f"wrt={shorten(wrt)} is refused; allowed: a sequence of names")
    for name in names:
        if not isinstance(name, str):
            raise GraphError(f"wrt={shorten(name)} is refused; allowed: names of values")
    return names


def dependent(model: ModelProto, y: str, known: Scope | None = None) -> list[str]:
    """Return the floating-point inputs and initializers of a prepared model on which a value depends, in their order.

    Gradients reach them: paths through comparisons, integers and operators such as Floor do not count. `known` is as in
    `add_gradients`.
    """
    reverse = Reverse(model, None, known)
    found = reverse.reached_from(y)
    return [name for name in reverse.sources if name in found and reverse.is_float(name)]


class Reverse:
    """A graph with what is known of its values, and the nodes that are appended to it."""

    def __init__(self, model: ModelProto, format: str | None, known: Scope | None) -> None:
        self.graph: GraphProto = model.graph
        self.format = format
        self.writer = Writer(Names.of(model), dict(scope_of(typed(model).graph) if known is None else known))
        self.sources = list(dict.fromkeys([*(value.name for value in self.graph.input),
                                           *(tensor.name for tensor in self.graph.initializer)]))
        self.imports = {entry.domain: entry.version for entry in model.opset_import}
        self.makers = {name: node for node in self.graph.node for name in node.output if name}
        self.typed: list[str] = []
        for node in self.graph.node:
            self.writer.remember(node)

    def is_float(self, name: str) -> bool:
        """Whether a value is floating point."""
        return is_float(name, self.writer.scope)

    def gradients(self, y: str, wrt: Sequence[str], seed: str | None) -> dict[str, str]:
        """Write the nodes and return the names of the gradients."""
        names = self._checked(y, wrt)
        need = self._need(names)
        if y not in need:
            raise GraphError(f"{y!r} depends on none of {shorten(list(names))} through operators that have gradients")
        constants = self._constants(names)
        contributions: dict[str, list[Value]] = {y: [self._seed(y, seed)]}
        found: dict[str, Value] = {}
        for node in reversed(self.graph.node):
            self.writer.prefix = f"{node.name or next(filter(None, node.output), node.op_type)}/gradient"
            grads = [self._total(name, contributions, found) if name else None for name in node.output]
            if any(grad is not None for grad in grads) and any(name in need for name in node.output):
                self._apply(node, grads, need, constants, contributions)
        for node in self.graph.node:
            if is_training(node):  # no gradient reached it
                self.writer.prefix = node.name or node.output[0]
                use_batch_statistics(node, self.writer)
        for name in names:
            self.writer.prefix = f"{name}/gradient"
            if self._total(name, contributions, found) is None:
                raise GraphError(f"{y!r} does not depend on {name!r} through operators that have gradients")
        return self._named({name: found[name] for name in names})

    def _checked(self, y: str, wrt: Sequence[str]) -> list[str]:
        names = list(dict.fromkeys(listed(wrt)))
        if not names:
            raise GraphError("wrt is empty; allowed: names of inputs, initializers or other values")
        known = {*self.sources, *self.makers}
        for argument, name in (("y", y), *(("wrt", name) for name in names)):
            if name not in known:
                raise GraphError(f"{argument}={shorten(name)} names no value of the graph{_hint(name, known)}")
            if not self.is_float(name):
                declared = self.writer.scope.get(name)
                kind = "of unknown element type" if declared is None or declared.dtype is None else declared.dtype
                raise GraphError(f"{argument}={name!r} is {kind}; allowed: floating-point values")
        return names

    def _need(self, names: Sequence[str]) -> set[str]:
        """Return the values that depend on some names through operators that have gradients."""
        need = set(names)
        for node in self.graph.node:
            if need.isdisjoint(self._varied(node)):
                continue
            need.update(name for name in node.output if name and self._passes(node, name))
        return need

    def _varied(self, node: NodeProto) -> list[str]:
        """The values that a node reads and that do not count as constants for its rule."""
        entry = rule_registry.find(node.domain, node.op_type)
        if entry is None or not entry.constants:
            return used_names(node)
        return [name for place_, name in enumerate(node.input) if place_ not in entry.constants]

    def _passes(self, node: NodeProto, name: str) -> bool:
        """Whether a gradient can pass from an output of a node to its inputs."""
        if node.op_type in FLAT and node.domain == "":
            return False
        entry = rule_registry.find(node.domain, node.op_type)
        if entry is not None and entry.outputs is not None and list(node.output).index(name) not in entry.outputs:
            return False
        return not self._is_integer(name) or (entry is not None and entry.through)

    def _is_integer(self, name: str) -> bool:
        """Whether a value is known not to be floating point."""
        declared = self.writer.scope.get(name)
        return declared is not None and declared.dtype is not None and not _is_floating(declared.dtype)

    def reached_from(self, y: str) -> set[str]:
        """Return the values that a value depends on through operators that have gradients."""
        found, waiting = {y}, [y]
        while waiting:
            node = self.makers.get(name := waiting.pop())
            if node is None or not self._passes(node, name):
                continue
            entry = rule_registry.find(node.domain, node.op_type)
            for place_, other in enumerate(used_names(node)):  # those of the node, then those that its subgraphs read
                gradual = entry is None or (place_ not in entry.constants and (
                    entry.inputs is None or place_ in entry.inputs))
                if gradual and other and other not in found:
                    found.add(other)
                    waiting.append(other)
        return found

    def _constants(self, names: Sequence[str]) -> dict[str, Array]:
        """The initializers that are neither inputs nor asked for."""
        varied = {*names, *(value.name for value in self.graph.input)}
        return {tensor.name: numpy_helper.to_array(tensor) for tensor in self.graph.initializer
                if tensor.name not in varied}

    def _seed(self, y: str, seed: str | None) -> Value:
        value = self.writer.value(y)
        self.writer.prefix = f"{y}/gradient"
        if seed is None:
            one = self.writer.scalar(1, value.dtype)
        elif seed not in self.writer.scope:
            raise GraphError(f"seed={shorten(seed)} names no value of the graph")
        else:
            one = self.writer.value(seed).cast(value.dtype)
        return one if value.shape == () == one.shape else one.expand(value.extents())

    def _total(self, name: str, contributions: dict[str, list[Value]], found: dict[str, Value]) -> Value | None:
        """The gradient of a value: the sum of what its uses contributed, always in one order."""
        if name in found:
            return found[name]
        parts = contributions.pop(name, [])
        if not parts:
            return None
        total = parts[0] if len(parts) == 1 else self.writer.add("Add" if len(parts) == 2 else "Sum", *parts)
        self._know(total, name)
        found[name] = total
        return total

    def _know(self, gradient: Value, primal: str) -> None:
        """A gradient has the type of its primal: inference cannot always tell."""
        declared = self.writer.scope.get(primal)
        known = declared is None or declared.shape is None or gradient.shape is not None
        if declared is not None and not known and gradient.name not in self.makers:
            self.writer.know(gradient.name, gradient.dtype, declared.shape)
            self.typed.append(gradient.name)

    def _apply(
        self, node: NodeProto, grads: Sequence[Value | None], need: set[str], constants: dict[str, Array],
        contributions: dict[str, list[Value]],
    ) -> None:
        """Let the rule of a node contribute to the gradients of its inputs."""
        if any(True for _ in graphs_of(node)):
            raise GraphError(f"{place(node)}: no gradient passes operators with subgraphs; allowed: a model exported "
                             "or simplified so that it has no If, Loop or Scan between the parameters and the result")
        entry = rule_registry.find(node.domain, node.op_type)
        if entry is None:
            known = ", ".join(other.name for other in rule_registry.entries())
            hint = ("" if registry.find_node(node.domain, node.op_type) is None else
                    "convreg.onnx.lower writes it in standard ONNX, which has; ")
            raise GraphError(f"{place(node)}: {node.op_type} of domain {node.domain or 'ai.onnx'!r} has no rule of a "
                             f"gradient; {hint}convreg.onnx.gradient_of registers one; known are {known}")
        wanted = [name in need and index not in entry.constants
                  and (entry.through or not self._is_integer(name) or self._is_code(name))
                  for index, name in enumerate(node.input)]
        for index, asked in enumerate(wanted):
            if asked and entry.inputs is not None and index not in entry.inputs:
                raise GraphError(f"{place(node)}: the rule of {node.op_type} has no gradient for input {index} "
                                 f"({node.input[index]!r}), which depends on the values asked for; allowed: inputs "
                                 f"{', '.join(map(str, entry.inputs))}")
        if not any(wanted):
            return
        version = self.imports.get(node.domain, 1)
        step = Step(node, self.writer, version, grads, wanted, constants, self.format)
        made: Any = entry.function(step)
        results = [made] if made is None or isinstance(made, Value) else list(made)
        for name, asked, gradient in zip(node.input, wanted, results, strict=False):
            if asked and gradient is not None:
                contributions.setdefault(name, []).append(gradient)

    def _is_code(self, name: str) -> bool:
        """Whether a value holds codes of a narrow format that a gradient passes."""
        maker = self.makers.get(name)
        entry = None if maker is None else rule_registry.find(maker.domain, maker.op_type)
        return entry is not None and entry.through

    def _named(self, found: dict[str, Value]) -> dict[str, str]:
        """Name the gradients after their values."""
        made: dict[str, str] = {}
        current: dict[str, Value] = {}
        for name, value in found.items():
            wish = self.writer.names.fresh(f"{name}_grad")
            declared: Declared = self.writer.scope[name]
            current[value.name] = self.writer.named(current.get(value.name, value), wish)
            made[name] = wish
            if declared.shape is not None:
                self.writer.know(wish, value.dtype, declared.shape)
                self.typed.append(wish)
        return made


def _hint(name: str, known: set[str]) -> str:
    similar = near_misses(name, sorted(known))
    return f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""


def is_float(name: str, scope: Scope) -> bool:
    """Whether a value is known to be floating point."""
    declared = scope.get(name)
    return declared is not None and declared.dtype is not None and _is_floating(declared.dtype)


def _is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of a type are floating point, ONNX's narrow ones included."""
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))
