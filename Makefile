# `make demo` and `make test` need Python 3.10 or newer, a C compiler and make; they install into .venv.
# PYTHON=/path/to/python names the interpreter, CC=clang the compiler, ARGS="-k onednn" goes to pytest or train.py.

VENV := .venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip install -qq --disable-pip-version-check
BUILD_INPUTS := pyproject.toml setup.py $(filter-out %.py %.so %/__pycache__,$(wildcard \
  ops/kernels/* ops/kernels/*/* ops/kernels/*/*/* convreg/calls/*.pyx convreg/hifloat8_type/* convreg/onnx/runtime_ort/*))

.NOTPARALLEL:
.PHONY: help demo test lint wheel wheels deep clean

help:
	@echo "make demo   train a network on handwritten digits in four number formats"
	@echo "make test   run the quick tests"
	@echo "make lint   ruff and mypy"
	@echo "make wheel  build a wheel for this machine into dist/"
	@echo "make wheels build wheels for other machines, x86-64 and aarch64, into dist/; MACHINES=x86_64 builds one kind"
	@echo "make deep   everything that takes longer; STAGE=clang runs one stage, without it all that have not passed"
	@echo "make clean  remove .venv and everything built"

# One thread: layers this small gain nothing from another, and on a busy machine threads that wait for each other cost.
demo: $(VENV)/extra-demo
	CONVREG_NUM_THREADS=$${CONVREG_NUM_THREADS:-1} $(BIN)/python examples/digits/train.py $(ARGS)

# Threads of several test processes share the processors: those that wait must not spin.
test: $(VENV)/extra-test
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -q -n auto --dist worksteal -m "not slow" $(ARGS)

lint: $(VENV)/extra-lint
	$(BIN)/ruff check .
	$(as_installed)
	cd build/types && ../../$(BIN)/mypy --config-file ../../pyproject.toml

wheel: $(BIN)/python
	@$(check_compiler)
	rm -rf build
	$(BIN)/python -m pip wheel -qq --disable-pip-version-check --no-deps --wheel-dir dist .

wheels: $(BIN)/python
	@$(check_compiler)
	PYTHON=$(CURDIR)/$(BIN)/python .ci/wheels $(MACHINES)

deep: $(BIN)/python
	PYTHON=$(CURDIR)/$(BIN)/python .ci/deep $(STAGE)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find convreg ops tools pytest_convreg tests examples -name __pycache__ -prune -exec rm -rf {} +
	find convreg ops -name '*.so' -exec rm -f {} +

# The editable install compiles; the extras then only add packages to it.
$(VENV)/extra-%: $(VENV)/installed
	@echo "installing what '$*' needs"
	@$(PIP) 'convreg[$*]'
	@touch $@

$(VENV)/installed: $(BUILD_INPUTS) | $(BIN)/python
	@$(check_compiler)
	@echo "compiling and installing convreg into $(VENV)"
	@$(PIP) --editable .
	@touch $@

# Candidates are run, not only found: a name on the path may be a stand-in for a version that is not there.
# PYTHON, where given, is the only candidate.
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11 python3.10 python

$(BIN)/python:
	@seen=; \
	for python in $(PYTHON); do \
	    version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then break; fi; \
	    seen="$$seen $$python is $$version;"; python=; \
	done; \
	if [ -z "$$version" ] || [ -z "$$python" ]; then \
	    echo "convreg needs Python 3.10 or newer;$${seen:- none of '$(strip $(PYTHON))' runs;} name one: make PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	$$python -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo "$$python has no venv module: install it (Debian and Ubuntu: the package python3-venv)" >&2; exit 1; }; \
	echo "creating $(VENV) with $$python ($$version)"; \
	$$python -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# Copies the Python files to the places where a wheel installs them: mypy finds a module by its folder.
define as_installed
rm -rf build/types && mkdir -p build/types
cp -r convreg pytest_convreg build/types && cp -r ops tools build/types/convreg
endef

# Compiles a file that includes Python.h with the compiler that the build will use.
define check_compiler
compiler=$${CC:-$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}; \
command -v $${compiler%% *} >/dev/null || { \
    echo "convreg needs a C compiler and '$${compiler%% *}' is not on the path: install GCC 10 or Clang 14 or newer, or name one: make CC=clang" >&2; exit 1; }; \
headers=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))'); \
printf '#include <Python.h>\n' | $$compiler -I$$headers -fsyntax-only -x c - 2>/dev/null || { \
    echo "$${compiler%% *} finds no Python.h in $$headers: install Python's headers (Debian and Ubuntu: the package python3-dev)" >&2; exit 1; }
endef
