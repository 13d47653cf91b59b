"""The modules import each other without circles, imports inside functions included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import convreg

OTHERS = ("convreg.onnx", "convreg.tools")
"""Packages above all others, which are not looked at."""


def sources() -> dict[str, Path]:
    """The modules of convreg by name. A checkout has ops/ beside the package, an installation has it inside."""
    found = {}
    for package in ("convreg", "convreg.ops"):
        folder = Path(sys.modules[package].__file__).parent
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return {name: path for name, path in found.items()
            if name != "convreg" and not (name + ".").startswith(tuple(f"{other}." for other in OTHERS))}


def imported(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """What a module imports of convreg. To import a module is to import the packages around it, except one's own."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in executed(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[:len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            targets = [f"{module}.{alias.name}" if f"{module}.{alias.name}" in known else module
                       for alias in node.names]
        else:
            continue
        for target in targets:
            parts = target.split(".")
            around = [".".join(parts[:count]) for count in range(2, len(parts))]
            yield from (one for one in [target, *around] if one == target or not f"{name}.".startswith(f"{one}."))


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module except what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        yield node
        yield from executed(node)


def circles(graph: Mapping[str, set[str]]) -> set[str]:
    """The nodes that remain after all those without ways out are taken away, again and again."""
    left = {name: set(ways) for name, ways in graph.items()}
    while True:
        ends = {name for name, ways in left.items() if not ways & left.keys()}
        if not ends:
            return set(left)
        for name in ends:
            del left[name]


def graph() -> dict[str, set[str]]:
    known = sources()
    return {name: {one for one in imported(name, path, known) if one != name} for name, path in known.items()}


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}) == set()
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == {"a", "b", "c"}


def test_modules_import_each_other_without_circles():
    found = graph()
    assert {"convreg.calls.binding", "convreg.geometry.onednn", "convreg.ops.kernels.plain"} <= found.keys()
    assert "convreg.conversion" in found["convreg.calls.execution"]
    assert "convreg.ops.kernels" in found["convreg.formats"]  # inside a function
    assert circles(found) == set()


def test_packages_import_each_other_without_circles():
    """convreg/calls as a whole, and so on; of ops/, the kernels are a package of their own."""
    def package(name: str) -> str:
        return "convreg.ops.kernels" if name.startswith("convreg.ops.kernels") else ".".join(name.split(".")[:2])

    found: dict[str, set[str]] = {}
    for name, ways in graph().items():
        others = {package(one) for one in ways if one != "convreg.ops"}  # it holds nothing by itself
        found.setdefault(package(name), set()).update(others - {package(name)})
    assert circles(found) == set()


def test_public_modules_stay_where_they_are():
    for name in ("conversion", "errors", "explain", "formats", "geometry", "guard", "numerics", "presentation",
                 "registry", "spec"):
        assert getattr(convreg, name) is not None
