"""onnx's backend tests of nodes, and the same nodes under older versions of the standard operators."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, checker, defs, helper, numpy_helper
from onnx.backend.test.case import node as node_tests
from onnx.backend.test.case.utils import import_recursive

RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
KINDS: dict[int, type] = {AttributeProto.FLOAT: float, AttributeProto.INT: int, AttributeProto.FLOATS: float,
                          AttributeProto.INTS: int}


class Case(NamedTuple):
    """A model, what to feed it, and the results that onnx states, if the model is one of its own."""

    name: str
    model: ModelProto
    feeds: dict[str, Any]
    expected: list[Any] | None


def own_cases(modules: Sequence[str] = ()) -> Iterator[Case]:
    """Yield every backend test of nodes whose results do not depend on chance; of `modules` only, if any are named."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx's tests divide by zero while they are made
        for module in modules:
            import_module(f"{node_tests.__name__}.{module}")  # which adds its tests to the list
        if not modules:
            import_recursive(node_tests)
    for test in list(node_tests._NodeTestCases):
        model = test.model
        if model is None or any(node.op_type in RANDOM for node in model.graph.node):
            continue
        names = [value.name for value in model.graph.input]
        for inputs, outputs in test.data_sets:
            feeds = dict(zip(names, map(_array, inputs), strict=False))
            yield Case(test.name, model, feeds, [_array(output) for output in outputs])


def _array(value: Any) -> Any:
    """Return what a test states as a tensor of the file format, as those of narrow types, as an array."""
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def older_cases(case: Case) -> Iterator[Case]:
    """Yield a test of one standard node under the first and the last version that each older schema holds for."""
    nodes, now = case.model.graph.node, opset(case.model)
    if len(nodes) != 1 or nodes[0].domain:
        return
    history = sorted({schema.since_version for schema in defs.get_all_schemas_with_history()
                      if schema.name == nodes[0].op_type and schema.domain == ""})
    for first, following in zip(history, [*history[1:], now + 1], strict=True):
        for version in {first, following - 1}:
            older = restamped(case, version) if version < now else None
            if older is not None:
                yield older


def opset(model: ModelProto) -> int:
    """Return the version of the standard operators that a model imports."""
    return next((entry.version for entry in model.opset_import if entry.domain == ""), 0)


def restamped(case: Case, version: int) -> Case | None:
    """Return a test under an older version, inputs written as attributes where they were, None if it cannot be."""
    model, feeds = ModelProto(), dict(case.feeds)
    model.CopyFrom(case.model)
    node = model.graph.node[0]
    old, new = defs.get_schema(node.op_type, version, ""), defs.get_schema(node.op_type, opset(case.model), "")
    if old.deprecated:
        return None
    for entry in model.opset_import:
        entry.version = version if entry.domain == "" else entry.version
    variadic = defs.OpSchema.FormalParameterOption.Variadic
    if not (old.inputs and old.inputs[-1].option == variadic):
        kept = []
        for index, name in enumerate(node.input):
            formal = new.inputs[index].name if index < len(new.inputs) else ""
            if index < len(old.inputs) and formal not in old.attributes:
                kept.append(name)
            elif name:
                if formal not in old.attributes or name not in feeds:
                    return None
                kind = int(old.attributes[formal].type.value)
                if kind not in KINDS:
                    return None
                numbers = [KINDS[kind](number) for number in np.asarray(feeds.pop(name)).ravel().tolist()]
                if kind in (AttributeProto.FLOAT, AttributeProto.INT) and len(numbers) != 1:
                    return None
                stated = numbers if kind in (AttributeProto.FLOATS, AttributeProto.INTS) else numbers[0]
                node.attribute.append(helper.make_attribute(formal, stated, attr_type=kind))
                declared = next(value for value in model.graph.input if value.name == name)
                model.graph.input.remove(declared)
        while kept and not kept[-1]:
            kept.pop()
        del node.input[:]
        node.input.extend(kept)
    for attribute in [*node.attribute]:
        if attribute.name not in old.attributes:
            default = new.attributes[attribute.name].default_value if attribute.name in new.attributes else None
            if default is None or not default.name or (
                    helper.get_attribute_value(default) != helper.get_attribute_value(attribute)):
                return None
            node.attribute.remove(attribute)
    try:
        checker.check_model(model, full_check=True)
    except Exception:  # a type or a shape that the older version does not have
        return None
    return Case(f"{case.name} at {version}", model, feeds, None)


def difference(found: Any, expected: Any) -> str | None:
    """Return how two results differ beyond rounding, or None."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            return "another sequence"
        return next((text for pair in zip(found, expected, strict=True) if (text := difference(*pair))), None)
    if expected is None or found is None:
        return None if found is expected else "no value"
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return f"shape {found.shape} instead of {expected.shape}"
    if expected.dtype.kind in "OSU":
        return None if found.astype(str).tolist() == expected.astype(str).tolist() else "other strings"
    if found.dtype != expected.dtype:
        return f"{found.dtype} instead of {expected.dtype}"
    if expected.dtype.kind in "biu":
        return None if np.array_equal(found, expected) else "other integers"
    loose = expected.dtype.kind == "V" or expected.dtype.itemsize < 4
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    rtol, atol = (2e-2, 1e-3) if loose else (1e-3, 1e-5)
    found, expected = found.astype(wide), expected.astype(wide)
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=1)  # sums with terms that cancel
    same = np.allclose(found, expected, rtol=rtol, atol=atol * largest, equal_nan=True)
    return None if same else "other numbers"
