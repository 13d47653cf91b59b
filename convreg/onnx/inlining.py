"""Local functions of a model put in place of their calls."""

from __future__ import annotations

from onnx import ModelProto, inliner

from .. import registry
from .execution import STANDARD
from .schemas import nodes_of


def flattened(model: ModelProto) -> ModelProto:
    """Inline local functions: the evaluator wants them in order and with every input, attribute and import of its own.

    A function that we execute ourselves stays a node, and defaults of attributes, which the inliner forgets, are
    written into the calls first.
    """
    if not model.functions:
        return model
    whole = ModelProto()
    whole.CopyFrom(model)
    functions = {(function.domain, function.name, function.overload): function for function in whole.functions}
    for node in nodes_of(whole):
        function = functions.get((node.domain, node.op_type, node.overload))
        stated = {attribute.name for attribute in node.attribute}
        for default in function.attribute_proto if function is not None else ():
            if default.name not in stated:
                node.attribute.append(default)
    ours = {*STANDARD, *((spec.onnx_domain, spec.name) for spec in registry.specs())}
    try:
        return inliner.inline_selected_functions(whole, [key[:2] for key in functions if key[:2] not in ours])
    except RuntimeError:  # a function imports another version of a domain: it keeps an evaluator of its own
        return whole
