"""What is shipped, what an unbuilt checkout says, and what make says of a missing tool."""

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from places import ROOT

import convreg

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGES = Path(np.__file__).parents[1]
"""Where the dependencies are; as an entry of PYTHONPATH it brings them without any editable install."""

checkout = pytest.mark.skipif(not (ROOT / "setup.py").is_file(), reason="needs the source checkout")


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def python(*arguments, path=(), cwd):
    """Run a Python that sees `path` and the dependencies, but nothing else that is installed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*path, PACKAGES]))}
    environment.pop("PYTHONSAFEPATH", None)
    return subprocess.run([sys.executable, "-S", *arguments], cwd=cwd, env=environment, capture_output=True, text=True)


TOP_LEVEL = {"convreg": "convreg", "ops": "convreg.ops", "tools": "convreg.tools", "pytest_convreg": "pytest_convreg"}
"""Top-level folder -> the package it installs as."""


def shipped_data(root):
    """Return the installed paths of the files that are no Python code."""
    settings = project()["tool"]["setuptools"]
    found = set()
    for package, patterns in settings["package-data"].items():
        source = root / settings["package-dir"][package]
        found |= {(Path(package.replace(".", "/")) / path.relative_to(source)).as_posix()
                  for pattern in patterns for path in source.glob(pattern)}
    return found


def shipped(root):
    """Return the installed paths of all Python files that belong to the package."""
    return {
        (Path(installed.replace(".", "/")) / path.relative_to(root / top)).as_posix()
        for top, installed in TOP_LEVEL.items() for path in (root / top).rglob("*.py")
    }


@checkout
def test_package_map_names_every_package():
    packages = project()["tool"]["setuptools"]["packages"]
    assert {f"{name.replace('.', '/')}/__init__.py" for name in packages} == {
        path for path in shipped(ROOT) if path.endswith("/__init__.py")}


@checkout
def test_stated_pythons_and_packages():
    """The classifiers, the linters and the builder of wheels name what `requires-python` allows."""
    stated = project()
    declared = stated["project"]
    oldest = declared["requires-python"].removeprefix(">=")
    pythons = [name.rpartition(" ")[2] for name in declared["classifiers"] if ":: Python :: 3." in name]
    assert pythons == [f"3.{minor}" for minor in range(10, 15)]
    assert oldest == pythons[0] == stated["tool"]["mypy"]["python_version"]
    assert stated["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    built = {name.partition("-")[0] for name in stated["tool"]["cibuildwheel"]["build"]}
    assert built == {"cp310", "cp311"}  # the oldest, and the stable ABI
    required = dict(line.split(">=") for line in declared["dependencies"])
    assert required == {"numpy": "1.26", "ml_dtypes": "0.5", "onnx": "1.21"}
    page = (ROOT / "README.md").read_text("utf-8")
    assert f"| Python | {pythons[0]} to {pythons[-1]} |" in page
    for name, version in required.items():
        assert f"{name} {version} or newer".lower() in page.lower()


@checkout
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_wheel_needs_the_compiler_of_its_machine():
    done = subprocess.run([".ci/wheels", "pdp11"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "no wheel for pdp11: its compiler pdp11-linux-gnu-gcc is not installed\n"


@checkout
def test_version_is_the_declared_one():
    assert convreg.__version__ in (project()["project"]["version"], "0+checkout")


def copied_sources(folder):
    for top in TOP_LEVEL:
        shutil.copytree(ROOT / top, folder / top, ignore=shutil.ignore_patterns("*.so", "__pycache__"))


@checkout
def test_unbuilt_checkout_says_what_to_do(tmp_path):
    copied_sources(tmp_path)
    done = python("-c", "import convreg", cwd=tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: convreg's compiled kernels are missing")
    assert "pip install -e ." in last
    assert "During handling" not in done.stderr


@checkout
@pytest.mark.skipif(not any((ROOT / "ops" / "kernels").glob("engine*.so")), reason="needs modules compiled in place")
@pytest.mark.parametrize("package", ["tools", "convreg.tools"])
def test_checkout_compiled_in_place_runs_as_it_lies(package):
    done = python("-m", package, "--help", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    files = "import convreg.ops, convreg.tools; print(convreg.ops.__file__, convreg.tools.__file__)"
    where = python("-c", files, cwd=ROOT)
    assert where.stdout.split() == [str(ROOT / "ops" / "__init__.py"), str(ROOT / "tools" / "__init__.py")]


class Built(NamedTuple):
    source: Path
    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A copy of the checkout, its sdist, and the wheel built from that."""
    source, folder = tmp_path_factory.mktemp("source") / "convreg", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(
        ".git", ".venv", "build", "dist", "*.egg-info", "*.so", "__pycache__", ".*_cache", ".hypothesis"))
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(source)], check=True,
                   capture_output=True)
    return Built(source, next(folder.glob("*.tar.gz")), next(folder.glob("*.whl")))


@checkout
@pytest.mark.slow
def test_wheel_holds_the_modules_and_nothing_else(built):
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata, entries, licence = (
            wheel.read(next(name for name in wheel.namelist() if name.endswith(end))).decode()
            for end in (".dist-info/METADATA", ".dist-info/entry_points.txt", "/LICENSE"))
    assert built.wheel.stat().st_size < 4_000_000
    compiled = {name for name in names if name.endswith(".so")}
    assert names - compiled == shipped(built.source) | shipped_data(built.source)
    assert "convreg/py.typed" in names
    modules = {f"convreg/ops/kernels/{path.stem}" for path in (built.source / "ops" / "kernels").rglob("*.pyx")}
    modules |= {path.relative_to(built.source).with_suffix("").as_posix()
                for path in (built.source / "convreg").rglob("*.pyx")}
    assert {name.partition(".")[0] for name in compiled} == modules | {"convreg/_cyutility", "convreg/_hifloat8"}
    if sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert "-cp311-abi3-" in built.wheel.name
    headers = email.message_from_string(metadata)
    assert headers["Requires-Python"] == ">=3.10"
    required = [line for line in headers.get_all("Requires-Dist") if "extra ==" not in line]
    assert {re.match(r"[\w-]+", line).group().replace("-", "_") for line in required} == {"ml_dtypes", "numpy", "onnx"}
    assert "convreg = convreg.tools.cli:main" in entries
    assert "Apache License" in licence


@checkout
@pytest.mark.slow
def test_sdist_holds_every_source_and_nothing_built(built):
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    sources = {str(path.relative_to(built.source))
               for top in (*TOP_LEVEL, "tests", "examples", "docs") for path in (built.source / top).rglob("*")
               if path.is_file()}
    assert sources <= names
    pages = {f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")}
    assert pages | {"LICENSE", "Makefile", "setup.py", "pyproject.toml"} <= names
    assert not [name for name in names if name.startswith("build/") or name.endswith((".so", ".pyc"))]


@checkout
@pytest.mark.slow
def test_wheel_works_elsewhere(built, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(built.wheel) as wheel:
        wheel.extractall(site)
    done = python("-c", "import convreg; print(convreg.__file__, len(convreg.names()), convreg.onnx.__name__)",
                  path=[site], cwd=tmp_path)
    assert done.stdout.split() == [str(site / "convreg" / "__init__.py"), str(len(convreg.names())), "convreg.onnx"]
    assert python("-m", "convreg.tools", "--help", path=[site], cwd=tmp_path).returncode == 0


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def make(folder, *arguments):
    chosen = ("MAKEFLAGS", "MAKELEVEL", "CC", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    done = subprocess.run(["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    return [line for line in done.stderr.splitlines() if not line.startswith("make")]


@pytest.fixture
def makefile(tmp_path):
    if not (ROOT / "Makefile").is_file() or shutil.which("make") is None:
        pytest.skip("needs the Makefile and make")
    for name in ("Makefile", "setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_make_names_an_old_python(makefile):
    script(makefile / "old", 'case "$2" in *print*) echo 3.9;; *) exit 1;; esac')
    for goal in ("test", "demo"):
        message, = make(makefile, goal, "PYTHON=./old")
        assert message.startswith("convreg needs Python 3.10 or newer; ./old is 3.9;")
    assert not (makefile / ".venv").exists()


def test_make_names_a_missing_python(makefile):
    message, = make(makefile, "test", "PYTHON=no-such-python")
    assert message.startswith("convreg needs Python 3.10 or newer; none of 'no-such-python' runs;")


def test_make_names_a_missing_venv_module(makefile):
    script(makefile / "bare", f'case "$2" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"')
    message, = make(makefile, "test", "PYTHON=./bare")
    assert message.startswith("./bare has no venv module")


def test_make_names_a_missing_compiler_and_missing_headers(makefile):
    script(makefile / ".venv" / "bin" / "python", f'exec {sys.executable} "$@"')
    for goal in ("test", "wheel"):
        message, = make(makefile, goal, "CC=no-such-compiler")
        assert message.startswith("convreg needs a C compiler and 'no-such-compiler' is not on the path")
    script(makefile / "no-headers", "exit 1")
    message, = make(makefile, "test", "CC=./no-headers")
    assert message.startswith("./no-headers finds no Python.h in ")
