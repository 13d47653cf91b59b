"""The functions that packages make public state their arguments and their result in numpydoc's sections."""

import inspect
from doctest import NORMALIZE_WHITESPACE, DocTestFinder, DocTestRunner
from importlib import import_module
from importlib.util import find_spec

import pytest

PACKAGES = ("convreg", "convreg.distributed", "convreg.golden", "convreg.golden.layouts", "convreg.numerics",
            "convreg.onnx", "convreg.tools.onnx_io")
FUNCTIONS = [getattr(package, name) for package in map(import_module, PACKAGES) for name in package.__all__
             if inspect.isfunction(getattr(package, name))]


def test_functions_are_found():
    names = {function.__name__ for function in FUNCTIONS}
    assert {"quantize", "apply", "compare", "best_exponent", "translate", "export_ir", "ulp_distance"} <= names


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: f"{function.__module__}.{function.__name__}")
def test_sections_name_arguments_and_results(function):
    text, signature = inspect.getdoc(function), inspect.signature(function)
    if signature.parameters:
        names = text.split("Parameters\n----------\n")[1]
        assert all(parameter.lstrip("*") in names for parameter in signature.parameters)
    if signature.return_annotation not in ("None", "Iterator[None]"):
        assert "\nReturns\n-------\n" in text


OPTIONAL = {"convreg.distributed.apply": "dask"}
"""What examples import that need not be installed."""


def examples_of(package):
    """Return the examples in the docstrings of what a package makes public, if what they need is installed."""
    names = {"convreg": import_module("convreg"), "np": import_module("numpy"), package.__name__: package}
    if package.__name__ == "convreg.torch":
        names["torch"] = import_module("torch")
    finder = DocTestFinder(recurse=False)
    public = [(name, getattr(package, name)) for name in package.__all__]
    return [example for name, value in public if callable(value)
            for example in finder.find(value, f"{package.__name__}.{name}", module=False, globs=names)
            if example.examples and (example.name not in OPTIONAL or find_spec(OPTIONAL[example.name]))]


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize("name", [*PACKAGES, "convreg.torch"])
def test_examples_print_what_they_show(name, capsys):
    if name == "convreg.torch":
        pytest.importorskip("torch")
    examples = examples_of(import_module(name))
    assert examples or name in ("convreg.golden.layouts", "convreg.tools.onnx_io")
    runner = DocTestRunner(optionflags=NORMALIZE_WHITESPACE)
    for example in examples:
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out
