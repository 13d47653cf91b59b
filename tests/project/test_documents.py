"""The documents: every link leads somewhere, every page is linked, and the prose keeps to the project's style."""

import ast
import re
from importlib import import_module

import pytest
from places import ROOT

DERIVED = ROOT / "docs" / "operators.md"
"""Its text comes from docstrings, whose lines are wrapped when the page is written."""
FOLDERS = ("docs", "examples", "ops")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
LONGEST_LINE = 120
METAPHORS = re.compile(r"\b(houses?|rooms?|rides?|rode|walks?|walked|walking)\b", re.IGNORECASE)

JOINED_LINES = re.compile(r"[^\s|]( \* |  +\S)")
"""What lines that were joined leave behind: the mark of a list item, or its indentation, inside a line."""

checkout = pytest.mark.skipif(not (ROOT / "setup.py").is_file(), reason="needs the source checkout")


def named(page):
    return page.relative_to(ROOT).as_posix()


def prose_of(text):
    """Return the numbered lines that are neither code nor rows of tables."""
    lines, in_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith("|"):
            lines.append((number, line))
    return lines


def code_of(text):
    """Return the numbered lines of code blocks other than printed output."""
    lines, language = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            language = "" if language else line[3:] or "text"
        elif language not in ("", "text", "console"):
            lines.append((number, line))
    return lines


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def links_of(text):
    """Return the relative targets of a page's links and images."""
    prose = re.sub(r"`[^`\n]*`", "", without_code(text))
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if not re.match(r"[a-z]+:", target)]


def anchors_of(text):
    """Return the names that a hosting site gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_helpers_see_what_they_should():
    text = "# A: b `c`\nsee [x](y.md#z) and `[no](no)`\n| a [t](u.md) |\n```sh\n[no](no)\n```\n```text\nlong\n```\n[w](https://w)\n"
    assert links_of(text) == ["y.md#z", "u.md"]
    assert anchors_of(text) == {"a-b-c"}
    assert [number for number, _ in prose_of(text)] == [1, 2, 10]
    assert [number for number, _ in code_of(text)] == [5]
    assert JOINED_LINES.search("are slow. * `x` is fast")
    assert JOINED_LINES.search("the clock   moves")
    assert not JOINED_LINES.search("  * an item")
    assert not JOINED_LINES.search("it is **so**")
    assert METAPHORS.search("Rules of the house")
    assert not METAPHORS.search("strides override")


@checkout
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    text = page.read_text("utf-8")
    for target in links_of(text):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors_of(found.read_text("utf-8")), target


def test_every_page_is_linked_from_the_readme():
    targets = links_of((ROOT / "README.md").read_text("utf-8"))
    linked = {(ROOT / target.partition("#")[0]).resolve() for target in targets}
    assert {page for page in (ROOT / "docs").glob("*.md") if page.resolve() not in linked} == set()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_lines_are_short(page):
    text = page.read_text("utf-8")
    lines = prose_of(text) + ([] if page == DERIVED else code_of(text))
    assert [number for number, line in lines if len(line) > LONGEST_LINE] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_paragraph_has_swallowed_a_list(page):
    prose = [re.sub(r"`[^`]*`", "``", line) for _, line in prose_of(page.read_text("utf-8"))]
    assert [line for line in prose if JOINED_LINES.search(line)] == []


@checkout
def test_the_architecture_names_every_module():
    """The rules of gradients and of geometry are named by their folders."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    words = {name.rpartition("/")[2] for name in re.findall(r"`([^`\n]+)`", text)}
    modules = [module for top in ("convreg", "tools") for module in (ROOT / top).rglob("*.py")
               if not module.name.startswith("__") and module.parent.name not in ("geometry", "rules")]
    assert len(modules) > 100
    assert [named(module) for module in modules if not words & {module.name, module.stem}] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_there_are_no_metaphors(page):
    lines = enumerate(page.read_text("utf-8").splitlines(), 1)
    assert [(number, found.group()) for number, line in lines if (found := METAPHORS.search(line))] == []


@pytest.mark.parametrize("package", ["convreg", "convreg.distributed", "convreg.golden", "convreg.golden.layouts",
                                     "convreg.numerics", "convreg.onnx", "convreg.tools.onnx_io", "convreg.torch"])
def test_pages_name_everything_that_is_public(package):
    """The pages about the inside of the project, its history and what docstrings say already do not count."""
    if package == "convreg.torch":
        pytest.importorskip("torch")
    others = ("architecture.md", "performance-log.md", "operators.md")
    text = "\n".join(page.read_text("utf-8") for page in PAGES if page.name not in (*others, "CHANGELOG.md"))
    words = set(re.findall(r"\w+", text))
    assert [name for name in import_module(package).__all__ if name not in words] == []


def rules_of(*paths):
    """Return the names of rules that modules state: texts such as R20, E34 and 15."""
    trees = [ast.parse(path.read_text("utf-8")) for path in paths]
    texts = {node.value for tree in trees for node in ast.walk(tree)
             if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in texts if re.fullmatch(r"R\d{1,2}|E\d\d|[1-9]\d?", text)}


@checkout
def test_the_page_of_rules_has_the_rows_of_all_tables():
    page = (ROOT / "docs" / "rules.md").read_text("utf-8")
    listed = {name for row in re.findall(r"^\| ([^|`]*\d) \|", page, re.MULTILINE) for name in row.split(", ")}
    stated = rules_of(*(ROOT / "convreg" / "geometry").glob("*.py"), *(ROOT / "ops").glob("*.py"))
    assert len(stated) > 100
    assert listed == stated


@checkout
def test_the_page_of_rules_has_the_rules_of_every_operator():
    page = (ROOT / "docs" / "rules.md").read_text("utf-8").partition("## Rules R1")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == {
        "arguments", "geometry", "max_bytes", "memory", "cluster"}
