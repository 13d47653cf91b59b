"""The files of `ops/kernels`: what the heads of included files promise, and what the README names."""

import re
from collections import defaultdict

import pytest
from convreg.ops.kernels import engine
from places import ROOT

KERNELS = ROOT / "ops" / "kernels"
MANY = 6
"""A head lists the names that it uses of a file, unless there are more."""

pytestmark = pytest.mark.skipif(not (KERNELS / "README.md").is_file(), reason="needs the source checkout")


def code_of(path):
    """Return a file without docstrings, strings, comments and attributes."""
    return re.sub(r'""".*?"""|"[^"\n]*"|#[^\n]*|\.\w+', "", path.read_text("utf-8"), flags=re.DOTALL)


def names_in(code):
    return set(re.findall(r"[A-Za-z_]\w*", code))


def defined_in(code):
    """Return the names of a file's types, functions, constants and variables."""
    constants = re.findall(r"^cdef enum:\n((?:    .*\n+)+)", code, re.MULTILINE)
    found = re.findall(r"^(?:cdef (?:inline )?(?:const )?\w+\** |ctypedef \w+ \(\*)(\w+)", code, re.MULTILINE)
    return (set(found) | set(re.findall(r"^    (\w+)", "\n".join(constants), re.MULTILINE))) - {"from"}


CODE = {path.relative_to(KERNELS).as_posix(): code_of(path) for path in sorted(KERNELS.rglob("*.pxi"))}
INCLUDED = {name: defined_in(code) for name, code in CODE.items()}
OWNERS = {name: file for file, names in INCLUDED.items() for name in names}
ENGINE = code_of(KERNELS / "engine" / "engine.pyx") if KERNELS.is_dir() else ""


def uses_of(file):
    """Return the names that a file uses of each other included file."""
    uses = defaultdict(set)
    for name in names_in(CODE[file]) - INCLUDED[file]:
        if name in OWNERS:
            uses[OWNERS[name]].add(name)
    return dict(uses)


def head_of(file):
    """Return what a head says: the names used of each file, or None for many; and the names given."""
    docstring = re.match(r'"""(.*?)"""', (KERNELS / file).read_text("utf-8"), re.DOTALL)[1]
    uses, gives = re.search(r"^uses:(.*?)^gives:(.*)", docstring, re.MULTILINE | re.DOTALL).groups()
    entries = re.findall(r"([\w/]+\.pxi)(?: \(([^)]*)\))?", " ".join(uses.split()))
    given = set() if gives.strip() == "nothing" else names_in(gives)
    return {other: set(names.split(", ")) if names else None for other, names in entries}, given


def test_every_name_has_one_owner():
    shared = [(name, file) for file, names in INCLUDED.items() for name in names if OWNERS[name] != file]
    assert not shared


@pytest.mark.parametrize("file", CODE)
def test_head_says_what_a_file_uses(file):
    expected = {other: None if len(names) > MANY else names for other, names in uses_of(file).items()}
    assert head_of(file)[0] == expected


@pytest.mark.parametrize("file", CODE)
def test_head_says_what_a_file_gives(file):
    elsewhere = names_in(ENGINE).union(*(names_in(code) for other, code in CODE.items() if other != file))
    assert head_of(file)[1] == INCLUDED[file] & elsewhere


def readme_algorithms():
    """Return the name and the file of every row of the README's table of algorithms."""
    readme = (KERNELS / "README.md").read_text("utf-8")
    table = readme.split("| algorithm | ")[1].split("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|.*\| `([^`|]+)` \|$", table, re.MULTILINE)


def test_readme_names_all_algorithms():
    assert [name for name, _ in readme_algorithms()] == engine.algorithm_names()


def test_readme_names_files_that_exist():
    readme = (KERNELS / "README.md").read_text("utf-8")
    files = {file for _, file in readme_algorithms()} | set(re.findall(r"`([\w/]+/\w+\.(?:pxi|pyx|pxd|h|c))`", readme))
    assert [file for file in sorted(files) if not (KERNELS / file).is_file()] == []
