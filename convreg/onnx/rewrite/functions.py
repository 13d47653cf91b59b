"""Bodies of convreg nodes as model-local functions, which a runtime without kernels for the nodes can run."""

from __future__ import annotations

from dataclasses import replace

from onnx import FunctionProto, ModelProto, helper

from ...guard import guarded
from ...roles import Role
from ..model.files import Source, opened_flat
from .builder import Builder, Names
from .conversion import Conversion
from .lower import rewrite, write_standard
from .problem import Problem, scale_names

FUNCTIONS_IR, OVERLOADS_IR = 8, 10
"""The first IR versions with local functions, and with functions of one name that differ by `overload`."""


@guarded("convreg::onnx")
def attach_functions(source: Source) -> ModelProto:
    """Return the model with a function for every convreg node. The body of the function is the node's standard form.

    A runtime that has the operator uses its kernel; any other runtime uses the function. Plain onnxruntime runs the
    model unchanged, OpenVINO after ``onnx.inliner.inline_local_functions``.

    Parameters
    ----------
    source : onnx.ModelProto or path
        Existing local functions are inlined, so that their nodes have shapes.

    Returns
    -------
    onnx.ModelProto
        Nodes with the same attributes, types and shapes (except the batch) share a body. If an operator needs
        several bodies, ``overload`` tells them apart, which requires IR version 10.

    Raises
    ------
    GraphError
        As `lower`: a body is what `lower` writes for the node.
    """
    library = _Library()
    model = rewrite(opened_flat(source), library.write)
    ours = {(function.domain, function.name) for function in library.functions}
    others = [function for function in model.functions if (function.domain, function.name) not in ours]
    del model.functions[:]
    model.functions.extend([*others, *library.functions])
    standard = [entry for entry in model.opset_import if entry.domain == ""]
    for function in model.functions[len(others):]:
        function.opset_import.extend(standard)
        model.ir_version = max(model.ir_version, OVERLOADS_IR if function.overload else FUNCTIONS_IR)
    return model


class _Library:
    """The functions made so far."""

    def __init__(self) -> None:
        self.functions: list[FunctionProto] = []
        self._overloads: dict[bytes, str] = {}

    def write(self, problem: Problem | Conversion, builder: Builder) -> bool:
        """Keep the node, under the overload of a function that computes it."""
        function = function_of(problem)
        key = function.SerializeToString(deterministic=True)
        if key not in self._overloads:
            before = sum((other.domain, other.name) == (function.domain, function.name) for other in self.functions)
            function.overload = self._overloads[key] = str(before) if before else ""
            self.functions.append(function)
        problem.node.overload = self._overloads[key]
        return False


def function_of(problem: Problem | Conversion) -> FunctionProto:
    """Return a function whose body is a node's standard form. Its values have the names of the operator's ports."""
    node, spec = problem.node, problem.spec
    inputs = [port.name for port in spec.inputs][: len(node.input)]
    outputs = [port.name for port in spec.outputs][: len(node.output)]
    body = Builder(Names([*inputs, *outputs]), node.op_type)
    if isinstance(problem, Conversion):
        write_standard(problem.of_ports(), body)
    else:
        names: dict[Role, str] = {role: spec.roles[role] for role in problem.names}
        scales = scale_names(problem.plan, inputs)
        made = set(names.values())
        blank = tuple((index, name) for index, name in enumerate(outputs) if name not in made)
        write_standard(replace(problem, names=names, masked=blank, scales=scales), body)
    return helper.make_function(
        node.domain, node.op_type, inputs, outputs, body.nodes, [],
        attributes=[attribute.name for attribute in node.attribute], doc_string=spec.doc)
