"""The verbs about operators and about this build: ``list``, ``show``, ``docs`` and ``capabilities``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import convreg
from convreg import GraphError
from convreg.calls.signature import signature_of
from convreg.calls.text import docs_page, table
from convreg.files import read_bytes, reason, write_atomically
from convreg.registry.builtin import OPERATORS

Action = Callable[[argparse.Namespace], None]
TABLE_START, TABLE_END = "<!-- operators:begin -->", "<!-- operators:end -->"


def list_(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg list``; return the action."""

    def act(args: argparse.Namespace) -> None:
        for operator in convreg.operators():
            spec = operator.spec
            choice = f"  conformance {', '.join(spec.conformances)}" if len(spec.conformances) > 1 else ""
            print(f"{spec.qualified_name:42} convreg.{spec.vendor}.{spec.function_name}{choice}")

    return act


def show(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg show``; return the action."""
    parser.add_argument("name", metavar="NAME", help="vendor::Name, or only Name if one vendor has it")

    def act(args: argparse.Namespace) -> None:
        operator = convreg.get(args.name)
        spec = operator.spec
        print(f"convreg.{spec.vendor}.{spec.function_name}{signature_of(spec)}\n\n{operator.__doc__}")

    return act


def docs(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg docs``; return the action."""
    parser.add_argument("--root", metavar="DIR", default=".", help="the checkout (default: the current directory)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")

    def act(args: argparse.Namespace) -> None:
        root = Path(args.root)
        readme = root / "README.md"
        wanted = {root / "docs" / "operators.md": docs_page(OPERATORS),
                  readme: _with_table(readme, table(OPERATORS))}
        stale = [path for path, text in wanted.items() if not path.is_file() or _text(path) != text]
        if stale and args.check:
            paths = " and ".join(map(str, stale))
            raise GraphError(f"{paths} differ from the declarations; run `convreg docs`")
        for path in stale:
            content = wanted[path].encode("utf-8")
            write_atomically(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
            print(f"{path}: written")

    return act


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise GraphError(f"{path}: not text in UTF-8: {reason(error)}") from None


def _with_table(path: Path, rows: str) -> str:
    """Return the file's text with the rows between the markers replaced."""
    text = _text(path)
    before, start, rest = text.partition(TABLE_START)
    _, end, after = rest.partition(TABLE_END)
    if not start or not end:
        raise GraphError(f"{path} lacks the lines {TABLE_START!r} and {TABLE_END!r}, which enclose the table")
    return f"{before}{start}\n{rows.strip()}\n{end}{after}"


def capabilities(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg capabilities``; return the action."""

    def act(args: argparse.Namespace) -> None:
        for name, value in convreg.capabilities().items():
            if isinstance(value, dict):
                value = [f"{key} {number:.4g}" for key, number in value.items()]
            print(f"{name}: {', '.join(value) if isinstance(value, list) else value}")

    return act
