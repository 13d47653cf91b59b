"""Imports among convreg's modules form no circle, those inside functions included."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import convreg

Imports = dict[str, set[str]]
"""The modules that each module imports."""

def sources() -> dict[str, Path]:
    """The files of the package by the name of their module; a checkout has ops and tools beside the package."""
    package, *beside = map(Path, convreg.__path__)
    trees = [(package, package), *((folder, folder / top) for folder in beside for top in ("ops", "tools"))]
    files = {}
    for root, tree in trees:
        for path in tree.rglob("*.py"):
            parts = ["convreg", *path.relative_to(root).with_suffix("").parts]
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imported(name: str, path: Path, text: str, modules: Iterable[str]) -> Iterator[str]:
    """The modules among `modules` that the source of a module imports, wherever the statement stands.

    ``from package import name`` is an import of ``package.name`` where that is a module, else of the package itself.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for statement in executed(ast.parse(text)):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names if alias.name in modules)
        elif isinstance(statement, ast.ImportFrom):
            parts = package.split(".")
            origin = parts[:len(parts) - statement.level + 1] if statement.level else []
            source = ".".join([*origin, *([statement.module] if statement.module else [])])
            for alias in statement.names:
                inner = f"{source}.{alias.name}"
                yield from (found for found in [inner if inner in modules else source] if found in modules)


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module except what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"):
            yield node
            yield from executed(node)


def imports() -> Imports:
    files = sources()
    return {name: set(imported(name, path, path.read_text(encoding="utf-8"), files)) for name, path in files.items()}


def circles(graph: Imports) -> list[frozenset[str]]:
    """The largest sets of modules that import each other, directly or through others (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    found = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        open_.append(module)
        for other in sorted(graph[module]):
            if other not in order:
                visit(other)
            if other in open_:
                low[module] = min(low[module], low[other])
        if low[module] == order[module]:
            members = frozenset(open_[open_.index(module):])
            del open_[open_.index(module):]
            if len(members) > 1 or module in graph[module]:
                found.append(members)

    for module in sorted(graph):
        if module not in order:
            visit(module)
    return found


@pytest.fixture(scope="module")
def graph() -> Imports:
    return imports()


def test_graph_is_found(graph):
    """Statements at the top, inside functions and of packages' names are all seen."""
    assert "convreg.onnx.graph" in graph["convreg.onnx.rewrite.lower"]
    assert "convreg.registry" in graph["convreg.onnx.graph"]
    assert "convreg.onnx.execution.partition" in graph["convreg.onnx.execution.engines"]
    assert "convreg.geometry.onednn" in graph["convreg.ops.onednn_convolution"]
    assert {"convreg.tools.cli", "convreg.ops.kernels", "convreg"} <= graph.keys()


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e"}}) == [{"b", "c"}, {"e"}]


def test_packages_of_onnx_point_one_way(graph):
    """Between the folders of convreg.onnx there is no circle either; its own modules stand below or above them all."""
    def folder(name: str) -> str:
        return ".".join(name.split(".")[:3])

    above: Imports = {}
    for name, others in graph.items():
        if name.startswith("convreg.onnx."):
            inside = {folder(other) for other in others if other.startswith("convreg.onnx.")}
            above.setdefault(folder(name), set()).update(inside - {folder(name)})
    assert circles(above) == []


def test_modules_have_no_circle(graph):
    assert circles(graph) == []


def test_packages_have_no_circle(graph):
    """convreg/calls as a whole, and so on; the kernels of ops/ and each module of geometry/ stand by themselves."""
    def package(name: str) -> str:
        deep = ("convreg.ops.kernels", "convreg.geometry.")
        return ".".join(name.split(".")[:3 if name.startswith(deep) else 2])

    above: Imports = {}
    for name, others in graph.items():
        inside = {package(other) for other in others} - {package(name), "convreg", "convreg.ops"}
        above.setdefault(package(name), set()).update(inside)
    del above["convreg"]  # gives all public names
    assert circles(above) == []


def test_public_modules_stay_where_they_are():
    for name in ("conversion", "errors", "explain", "formats", "geometry", "guard", "numerics", "presentation",
                 "registry", "spec"):
        assert getattr(convreg, name) is not None


def test_what_import_convreg_leaves_for_later():
    """Optional packages, packages that one module needs, and what takes long in the standard library."""
    later = {"dask", "importlib.metadata", "matplotlib", "onnx", "onnxruntime", "torch"}
    code = (f"import sys, numpy, ml_dtypes; known = set(sys.modules); import convreg; "
            f"print(*({later!r} & set(sys.modules) - known)); convreg.__version__")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    assert {"__version__", "onnx", "quantize"} <= {*dir(convreg)}


@pytest.mark.parametrize(("arguments", "needed"), [
    (["--help"], set()), (["--version"], set()), (["capabilities"], set()), (["list"], set()),
    (["show", "ConvGrad"], set()), (["explain", "ConvGrad"], set()), (["run", "--help"], set()),
    (["golden", "--help"], {"convreg.golden"}), (["numerics", "--help"], {"convreg.numerics", "convreg.tools.bench"}),
    (["train", "--help"], {"convreg.onnx", "onnx"})])
def test_a_verb_imports_what_it_needs(arguments, needed):
    later = {"convreg.golden", "convreg.numerics", "convreg.onnx", "convreg.tools.bench", "dask", "matplotlib", "onnx",
             "onnxruntime", "torch"}
    code = ("import atexit, sys, numpy, ml_dtypes; known = set(sys.modules); from convreg.tools.cli import main; "
            f"atexit.register(lambda: print('imported:', *({later!r} & set(sys.modules) - known))); "
            f"main({arguments!r})")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()[-1].split()[1:]) == needed
