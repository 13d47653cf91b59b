"""Graphs on onnxruntime with our library in it; nodes it has no kernel for, such as Conv in bfloat16, run on ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from ... import registry
from ...errors import GraphError
from ...spec import OpSpec
from .. import payload
from ..graph import nodes_of, place, sentence, used_names
from ..model.tensor_data import array_of
from ..runtime_ort.nodes import records_of
from ..runtime_ort.session import OnOrt, onnxruntime
from ..schema.whole_inference import inferred
from .evaluator import Evaluator, Runner

NEWEST_IR = 10
"""Of the models handed over: what a graph says does not depend on it, and each onnxruntime refuses newer ones."""

NO_KERNEL = ("NOT_IMPLEMENTED", "Type Error")
"""What onnxruntime says of an operator that it does not compute, or not in these types."""

SMALL = 1024
"""Bytes of a constant that an attempt to run one node may depend on, such as a shape or a list of axes."""


class Partition:
    """A graph cut into as few parts as possible that alternate between onnxruntime and our own executor.

    Parameters
    ----------
    model : onnx.ModelProto
        Without local functions that are executed by us.

    Attributes
    ----------
    parts : list
        In order of execution; a single one where onnxruntime takes the whole graph.
    elsewhere : Counter
        How often our own executor runs a node of an op type, with what onnxruntime says against it: nothing where it
        has no kernel.

    Raises
    ------
    GraphError
        If onnxruntime is not installed or does not support these operator sets.
    """

    def __init__(self, model: ModelProto) -> None:
        self._runtime = onnxruntime()
        self._model = ModelProto()
        self._model.CopyFrom(model)
        self._model.ir_version = min(model.ir_version, NEWEST_IR)
        for node in nodes_of(self._model):
            while node.input and not node.input[-1]:  # onnxruntime 1.32 crashes on a blank bias of LayerNormalization
                node.input.pop()
        self._outputs = [value.name for value in model.graph.output]
        self._values = declarations(self._model)
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._refusals: dict[bytes, str | None] = {}
        self._check_order()
        self.parts: list[Part] = []
        self.elsewhere: Counter[tuple[str, str]] = Counter()
        if all(map(self._expressible, self._model.graph.node)):
            try:
                self.parts = [Part(self._model, OnOrt(self._model, self._runtime))]
            except Exception:  # whatever it has no kernel for, or refuses; found out node by node
                self._check_taken()
        self.parts = self.parts or self._cut()

    def run(self, output_names: Any, feeds: dict[str, Any]) -> list[Any]:
        """Run part after part and return the outputs in the order of the graph."""
        if len(self.parts) == 1 and self.parts[0].outputs == self._outputs:
            return self.parts[0].runner.run(output_names, feeds)
        values = dict(feeds)
        for part in self.parts:
            given = {name: values[name] for name in part.inputs if name in values}
            values.update(zip(part.outputs, part.runner.run(None, given), strict=True))
        return [values[name] if name in values else array_of(self._constants[name])
                for name in output_names or self._outputs]

    def _check_order(self) -> None:
        """Refuse nodes that read what no earlier node makes: onnxruntime would put them in order."""
        graph = self._model.graph
        known = {"", *self._constants, *(value.name for value in graph.input),
                 *(tensor.values.name for tensor in graph.sparse_initializer)}
        for node in graph.node:
            for name in node.input:
                if name not in known:
                    raise GraphError(f"{place(node)}: no earlier node makes its input {name!r}")
            known.update(node.output)

    def _expressible(self, node: NodeProto) -> bool:
        """Whether onnxruntime shows a node's attributes to it and gives its outputs the types that it computes."""
        operator = registry.find_node(node.domain, node.op_type)
        if operator is None:
            return True
        known = {name for record in records_of(operator.spec) for name in record.operator.attributes}
        if payload.may_carry(operator.spec):
            known.add(payload.ATTRIBUTE)
            if not self._carries_what_it_says(node):
                return False
        if any(attribute.name not in known for attribute in node.attribute):
            return False  # our executor refuses it
        fixed = fixed_types(operator.spec, [self._element(name) if name else None for name in node.input])
        return fixed is None or all(
            not name or self._element(name) in (0, element)
            for name, element in zip(node.output, fixed, strict=False))

    def _carries_what_it_says(self, node: NodeProto) -> bool:
        """Whether exactly the bytes among a node's inputs are said to be HiFloat8: inside onnxruntime all bytes are."""
        stated = next(([text.decode("utf-8", "replace") for text in attribute.strings]
                       for attribute in node.attribute if attribute.name == payload.ATTRIBUTE), [])
        while stated and not stated[-1] and len(stated) > len(node.input):
            stated.pop()  # of an optional input that the node does not have
        if len(stated) > len(node.input):
            return False
        said = [*stated, *[""] * (len(node.input) - len(stated))]
        return all(text == ("hifloat8" if self._element(name) == TensorProto.UINT8 else "")
                   for name, text in zip(node.input, said, strict=True) if name or text)

    def _element(self, name: str) -> int:
        if name in self._constants:
            return self._constants[name].data_type
        return self._values[name].type.tensor_type.elem_type if name in self._values else 0

    def _check_taken(self) -> None:
        """Refuse a model whose operator sets onnxruntime does not take, whatever the nodes."""
        empty = self._submodel([], [], [])
        empty.graph.node.append(helper.make_node("Identity", ["x"], ["y"]))
        empty.graph.input.append(helper.make_tensor_value_info("x", 1, [1]))
        empty.graph.output.append(helper.make_tensor_value_info("y", 1, [1]))
        if not any(entry.domain == "" for entry in empty.opset_import):
            return
        try:
            OnOrt(empty, self._runtime)
        except Exception as error:
            raise GraphError(f"onnxruntime {self._runtime.__version__}: {sentence(error)}") from error

    def _cut(self) -> list[Part]:
        """Give every node a stage, even ones onnxruntime's, odd ones ours, none before what it reads."""
        stages: dict[int, list[NodeProto]] = {}
        elsewhere: dict[int, list[tuple[str, str]]] = {}
        made: dict[str, int] = {}
        for node in self._model.graph.node:
            refusal = self._refusal(node)
            stage = max((made[name] for name in used_names(node) if name in made), default=0)
            stage += stage % 2 != (refusal is not None)
            stages.setdefault(stage, []).append(node)
            if refusal is not None:
                elsewhere.setdefault(stage, []).append((node.op_type, refusal))
            made.update({name: stage for name in node.output if name})
        self.elsewhere.update(kind for _, kinds in sorted(elsewhere.items()) for kind in kinds)
        parts = []
        for stage, members in sorted(stages.items()):
            later = [node for other, others in stages.items() if other != stage for node in others]
            wanted = {name for node in later for name in used_names(node)} | {*self._outputs}
            outputs = [name for node in members for name in node.output if name and name in wanted]
            inside = {name for node in members for name in node.output}
            read = dict.fromkeys(name for node in members for name in used_names(node) if name and name not in inside)
            model = self._submodel(members, [name for name in read if self._is_value(name)], outputs)
            parts.append(Part(model, Evaluator(model) if stage % 2 else OnOrt(model, self._runtime)))
        return parts

    def _is_value(self, name: str) -> bool:
        """Whether something outside subgraphs has that name."""
        return name in self._values or name in self._constants

    def _refusal(self, node: NodeProto) -> str | None:
        """Return what onnxruntime says against a node when it is given a graph of nothing else.

        It is None for a node that onnxruntime runs, and empty for one that it has no kernel for.
        """
        if not self._expressible(node):
            return ""
        read = [name for name in dict.fromkeys(used_names(node)) if name and self._is_value(name)]
        if not all(self._element(name) or name in self._constants for name in read):
            return ""
        model = self._submodel([node], read, [name for name in node.output if name], small=True)
        key = model.SerializeToString(deterministic=True)
        if key not in self._refusals:
            try:
                OnOrt(model, self._runtime)
                self._refusals[key] = None
            except Exception as error:
                lacking = any(words in str(error) for words in NO_KERNEL)
                self._refusals[key] = "" if lacking else sentence(error)
        return self._refusals[key]

    def _submodel(
        self, nodes: Sequence[NodeProto], inputs: Iterable[str], outputs: Iterable[str], *, small: bool = False
    ) -> ModelProto:
        """Return a model of some nodes; constants come along, large ones as inputs where `small`."""
        overridable = {value.name for value in self._model.graph.input}
        graph = GraphProto(name=self._model.graph.name or "part", node=nodes)
        for name in inputs:
            constant = self._constants.get(name)
            if constant is None:
                graph.input.append(self._values[name])
            elif small and constant.ByteSize() > SMALL:
                graph.input.append(helper.make_tensor_value_info(name, constant.data_type, constant.dims))
            else:
                graph.initializer.append(constant)
                if name in overridable:
                    graph.input.append(self._values[name])
        graph.output.extend(self._values.get(name, ValueInfoProto(name=name)) for name in outputs)
        return helper.make_model(graph, ir_version=self._model.ir_version, opset_imports=self._model.opset_import,
                                 functions=self._model.functions)


class Part:
    """A part of a graph and what runs it."""

    def __init__(self, model: ModelProto, runner: Runner) -> None:
        self.runner = runner
        self.inputs = [value.name for value in model.graph.input]
        self.outputs = [value.name for value in model.graph.output]


def declarations(model: ModelProto) -> dict[str, ValueInfoProto]:
    """Return what is known of a graph's values before it runs."""
    try:
        model = inferred(model, strict=False)
    except GraphError:  # onnxruntime would end the process, for its inference is the same
        raise
    except Exception:  # a node that its rules refuse says so itself when it runs
        pass
    graph = model.graph
    return {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)
            if value.type.HasField("tensor_type")}


def fixed_types(spec: OpSpec, elements: Sequence[int | None]) -> Sequence[int] | None:
    """Return the element types that onnxruntime gives an operator's outputs, None where it takes no such inputs.

    `elements` are those of the inputs, None for absent ones.
    """
    for record in records_of(spec):
        if all(element is None or entry[0] in (0, element)
               for entry, element in zip(record.inputs, elements, strict=False)):
            return [entry[0] for entry in record.outputs]
    return None
