"""Registry, declarations and what is derived from them."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import re
import sys
import types
import warnings
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from places import ROOT

import convreg
from convreg import registry
from convreg.calls import text
from convreg.registry import builtin
from convreg.spec import snake_case

OPERATORS = convreg.operators()
SOURCES = Path(convreg.__file__).parent


@pytest.fixture
def spare(monkeypatch):
    """A registry whose changes are forgotten, and a declaration to add."""
    monkeypatch.setattr(registry, "_operators", {name: dict(v) for name, v in registry._operators.items()})
    monkeypatch.setattr(registry, "_plugins_loaded", False)
    monkeypatch.setattr(registry, "_broken", {})
    yield replace(convreg.onednn.convolution.spec, vendor="acme", name="Spare")
    for name in [name for name in sys.modules if name == "convreg.acme" or name.startswith("plugin_")]:
        del sys.modules[name]
    vars(convreg).pop("acme", None)


def test_names_are_qualified_sorted_and_complete():
    assert convreg.names() == sorted(convreg.names())
    assert {
        "onednn::ConvolutionBackwardData", "onednn::ConvolutionBackwardWeights", "onednn::ConvTransposeBackwardData",
        "onednn::ConvTransposeBackwardWeights", "onednn::Convolution", "onednn::ConvTranspose",
        "openvino::ConvolutionBackpropData", "openvino::GroupConvolutionBackpropData", "ascend::ConvolutionBackward",
        "aten::convolution_backward", "microsoft::ConvGrad", "nodes::Quantize", "nodes::Dequantize",
    } == set(convreg.names())


def test_nodes_are_found_as_soon_as_they_are_registered(spare):
    assert registry.find_node("convreg.acme", "Spare") is None
    first = convreg.register(spare)
    assert registry.find_node("convreg.acme", "Spare") is first
    second = convreg.register(replace(spare, since_version=3))
    assert registry.find_node("convreg.acme", "Spare") is second
    assert registry.find_node("convreg.acme", "Spare", 2) is first
    third = convreg.register(replace(spare, since_version=3), replace=True)
    assert registry.find_node("convreg.acme", "Spare", 3) is third is not second
    assert registry.find_node("", "Spare") is registry.find_node("convreg.acme", "Conv") is None


def test_nodes_of_a_forgotten_registry_are_not_found():
    assert registry.find_node("convreg.acme", "Spare") is None


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.spec.qualified_name)
def test_get_finds_every_spelling_of_a_name(operator):
    spec = operator.spec
    assert convreg.get(spec.name) is operator
    assert convreg.get(spec.qualified_name) is operator
    assert convreg.get(f"{spec.onnx_domain}::{spec.name}") is operator
    assert getattr(getattr(convreg, spec.vendor), spec.function_name) is operator
    assert registry.find_node(spec.onnx_domain, spec.name) is operator


def test_every_operator_module_registers_exactly_one_operator():
    import convreg.ops

    modules = [m.name for m in pkgutil.iter_modules(convreg.ops.__path__)
               if not m.name.startswith("_") and m.name != "kernels"]
    files = {inspect.getmodule(operator.spec.plan).__name__ for operator in OPERATORS}
    assert len(modules) == len(OPERATORS)
    assert all(name.startswith("convreg.ops.") for name in files)


def test_unknown_names_list_near_misses():
    with pytest.raises(convreg.UnknownOp) as missing:
        convreg.get("ConvolutionBackwardDat")
    assert "onednn::ConvolutionBackwardData" in str(missing.value)
    assert isinstance(missing.value, KeyError)
    with pytest.raises(convreg.UnknownOp, match=r"known: .*ascend::ConvolutionBackward"):
        convreg.get("zzzz")
    with pytest.raises(convreg.UnknownOp):
        convreg.get(3)


def test_ambiguous_bare_names_list_the_candidates(spare):
    registry.register(replace(spare, name="Convolution"))
    with pytest.raises(convreg.UnknownOp, match=r"acme::Convolution.*onednn::Convolution.*|ambiguous"):
        convreg.get("Convolution")
    assert convreg.get("acme::Convolution").spec.vendor == "acme"


def test_versions(spare):
    first = registry.register(spare)
    third = registry.register(replace(spare, since_version=3))
    assert convreg.get("Spare") is third
    assert convreg.get("Spare", version=2) is first
    assert convreg.acme.spare is third
    with pytest.raises(convreg.UnknownOp, match="version 0 predates it"):
        convreg.get("Spare", version=0)
    with pytest.raises(ValueError, match="not registered yet"):
        registry.register(spare)
    assert registry.register(spare, replace=True) is convreg.get("Spare", version=1)


def entry(name: str, loaded) -> EntryPoint:
    """An entry point that loads to `loaded`, or raises it."""
    module = types.ModuleType(f"plugin_{name}")
    if isinstance(loaded, Exception):
        def fail(_):
            raise loaded
        module.__getattr__ = fail
    else:
        module.thing = loaded
    sys.modules[module.__name__] = module
    return EntryPoint(name, f"{module.__name__}:thing", registry.GROUP)


def test_plugins_load_on_a_miss_and_a_broken_one_is_named(spare, monkeypatch):
    asked = []

    def points(group):
        asked.append(group)
        return [entry("broken", RuntimeError("no such card")), entry("good", spare),
                entry("many", [replace(spare, name="Many")])]

    monkeypatch.setattr("importlib.metadata.entry_points", points)
    convreg.get("Convolution")
    assert asked == []
    with pytest.warns(RuntimeWarning, match="plug-in 'broken' is skipped: RuntimeError: no such card"):
        assert convreg.get("acme::Spare").spec is spare
    assert convreg.get("Many").spec.vendor == "acme"
    with warnings.catch_warnings(), pytest.raises(convreg.UnknownOp, match="'broken' failed to load"):
        convreg.get("acme::Nothing")
    assert asked == ["convreg.ops"]


@pytest.mark.parametrize("first", ["convreg.names()", "[o.spec.qualified_name for o in convreg.operators()]",
                                   "convreg.acme.spare.spec.qualified_name",
                                   "__import__('convreg.acme').acme.spare.spec.qualified_name"])
def test_plugins_load_before_they_are_listed_looked_up_or_imported(spare, monkeypatch, first):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry("good", spare)])
    assert "acme::Spare" in eval(first)
    assert importlib.import_module("convreg.acme").__spec__ is None
    registry.register(replace(spare, name="Other"))  # the vendor is still no part of convreg
    assert pickle.loads(pickle.dumps(convreg.acme.spare)) is convreg.get("acme::Spare")
    assert spare not in [operator.spec for operator in builtin.OPERATORS]


def test_a_function_pickles_for_a_process_that_has_not_loaded_the_plugin(spare, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry("good", spare)])
    text = b"cconvreg.acme\nspare\n."  # what pickle writes of a function
    assert pickle.loads(text).spec is spare


def test_an_entry_point_that_names_no_declaration_is_named(spare, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry("maker", lambda: spare)])
    with pytest.warns(RuntimeWarning, match="plug-in 'maker' is skipped: OpTypeError: .*an OpSpec, an iterable of"):
        assert "acme::Spare" not in convreg.names()


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.spec.qualified_name)
def test_functions_show_the_declaration(operator):
    spec, parameters = operator.spec, inspect.signature(operator).parameters
    for port in spec.inputs:
        assert ("scales" if port.scales else snake_case(port.name)) in parameters
        assert port.doc.split()[0] in operator.__doc__
    for attribute in spec.attributes:
        parameter = parameters[snake_case(attribute.name)]
        assert (parameter.default is inspect.Parameter.empty) == (attribute.required or (
            spec.positional_attributes and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            and attribute.name != spec.attributes[-1].name))
    assert ("conformance" in parameters) == (len(spec.conformances) > 1)
    assert parameters["out"].default is parameters["threads"].default is None
    for section in ("Parameters", "Returns", "Raises", "Notes"):
        assert f"\n{section}\n{'-' * len(section)}\n" in operator.__doc__
    assert spec.source.split()[0] in operator.__doc__
    above, _, notes = operator.__doc__.partition("\nNotes\n-----\n")
    listed = [name for names in re.findall(r"^([A-Z]\w*(?:, [A-Z]\w*)*): ", notes, re.MULTILINE) for name in
              names.split(", ") if name in spec.types]
    assert sorted(listed) == sorted(set(re.findall(r" : array of (\w+)", above)))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.spec.qualified_name)
def test_references_show_their_arguments(operator):
    parameters = dict(inspect.signature(operator).parameters)
    del parameters["out"]  # a reference returns new arrays
    assert dict(inspect.signature(operator.reference).parameters) == parameters
    assert operator.reference.__name__ == "reference"
    for section in ("Parameters", "Returns", "Raises"):
        assert f"\n{section}\n{'-' * len(section)}\n" in inspect.getdoc(operator.reference)


def test_docs_page_is_up_to_date():
    page = ROOT / "docs" / "operators.md"
    if not page.exists():
        pytest.skip("only in a checkout")
    assert page.read_text() == text.docs_page(builtin.OPERATORS)


def test_no_second_statement_of_ports_attributes_and_defaults():
    """Attribute names appear as parameters of no hand-written function: signatures only come from declarations."""
    declared = {snake_case(a.name) for operator in OPERATORS for a in operator.spec.attributes}
    allowed = {"groups", "stride", "dilation", "transposed"}  # parameters of geometry helpers, in integers
    allowed |= {"rounding", "saturate", "seed"}  # of convreg.quantize, in whose terms operators round
    ops = Path(sys.modules["convreg.ops"].__file__).parent
    for path in [*SOURCES.glob("*.py"), *(SOURCES / "calls").glob("*.py"), *ops.glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                names = {a.arg for a in [*node.args.args, *node.args.kwonlyargs]}
                assert len(names & (declared - allowed)) < 2, (path.name, node.name, names & declared)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Attribute":
                assert path.parent == ops, f"{path.name} declares an attribute outside ops/"


def test_layers_point_one_way():
    """What an operator and its calls are knows neither onnx nor the command line."""
    forbidden = ("onnx", "convreg.onnx", "convreg.tools")
    ops = Path(sys.modules["convreg.ops"].__file__).parent
    rooms = [*SOURCES.glob("*.py"), *ops.glob("*.py")]
    for folder in ("calls", "geometry", "numerics", "registry"):
        rooms += (SOURCES / folder).glob("*.py")
    for path in rooms:
        for node in ast.parse(path.read_text()).body:
            modules = ([alias.name for alias in node.names] if isinstance(node, ast.Import)
                       else [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else [])
            assert not any(m == f or m.startswith(f + ".") for m in modules for f in forbidden), (path.name, modules)


def test_public_names():
    assert set(convreg.__all__) <= set(dir(convreg))
    described = set(re.findall(r"``convreg\.(\w+)``", convreg.__doc__))
    assert {"onednn", "onnx", "distributed"} < described
    assert described - {"torch"} <= set(convreg.__all__), "convreg.torch needs an import of its own"
    for name in convreg.__all__:
        assert getattr(convreg, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = convreg.nothing
    have = convreg.capabilities()
    assert have.keys() == {"isa", "reason", "usable", "compiled", "rates", "trials", "threads", "openmp",
                           "version"}
    assert have["isa"] in have["usable"]
    assert set(have["usable"]) <= set(have["compiled"])
