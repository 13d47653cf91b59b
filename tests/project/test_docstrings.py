"""The functions that packages make public state their arguments and their result in numpydoc's sections."""

import inspect
from importlib import import_module

import pytest

PACKAGES = ("convreg", "convreg.distributed", "convreg.golden", "convreg.numerics", "convreg.onnx",
            "convreg.tools.onnx_io")
FUNCTIONS = [vars(package)[name] for package in map(import_module, PACKAGES) for name in package.__all__
             if inspect.isfunction(vars(package).get(name))]


def test_functions_are_found():
    names = {function.__name__ for function in FUNCTIONS}
    assert {"quantize", "apply", "compare", "best_exponent", "translate", "export_ir"} <= names


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: f"{function.__module__}.{function.__name__}")
def test_sections_name_arguments_and_results(function):
    text, signature = inspect.getdoc(function), inspect.signature(function)
    if signature.parameters:
        names = text.split("Parameters\n----------\n")[1]
        assert all(parameter.lstrip("*") in names for parameter in signature.parameters)
    if signature.return_annotation not in ("None", "Iterator[None]"):
        assert "\nReturns\n-------\n" in text
