"""Operators by name: `builtin` registers those of `convreg.ops`, and plug-ins register when a name is not found.

They also register before names are listed, and before a vendor's module is looked up or imported.

A plug-in is an entry point of group ``convreg.ops`` that names an `OpSpec`, an iterable of them, or a module that
calls `register` when imported.
"""

from __future__ import annotations

import operator as arithmetic
import sys
import threading
import warnings
from collections.abc import Iterable
from functools import lru_cache
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple

from ..calls.function import function_of
from ..calls.signature import Operator
from ..errors import Asking, UnknownOp, shorten
from ..guard import guarded
from ..spec import OpSpec
from .declaration import check_declaration
from .imports import Vendors
from .parts import ASKING

PACKAGE = __name__.rpartition(".")[0]
GROUP = "convreg.ops"

_lock = threading.RLock()
_operators: dict[str, dict[int, Operator]] = {}
_registrations = 0
"""How often something was registered."""
_broken: dict[str, str] = {}
_plugins_loaded = False


class _Nodes(NamedTuple):
    """The operators by the domain and the name of their nodes, as of some registrations."""

    operators: dict[str, dict[int, Operator]]
    registrations: int
    found: dict[tuple[str, str], dict[int, Operator]]


_nodes = _Nodes(_operators, 0, {})


@guarded("convreg::register")
def register(spec: OpSpec, *, replace: bool = False) -> Operator:
    """Add an operator and return its Python function, which also appears in ``convreg.<vendor>``.

    Parameters
    ----------
    spec : OpSpec
        The declaration.
    replace : bool
        Whether it may replace an operator with the same name and version.

    Returns
    -------
    Operator
        The function derived from the declaration.

    Raises
    ------
    OpError, OpTypeError
        If the name and version are taken and `replace` is false, or the declaration is wrong. Nothing is added
        then.
    """
    if not isinstance(replace, bool):
        raise ASKING.refuse("replace", replace, "True or False", wrong_type=True)
    global _registrations
    with _lock:
        check_declaration(spec, _parts())
        if spec.since_version in _operators.get(spec.qualified_name, {}) and not replace:
            raise ASKING.refuse(
                "spec", f"{spec.qualified_name} version {spec.since_version}",
                "a name and version that are not registered yet, or replace=True")
        _check_free(spec)
        operator = function_of(spec)
        versions = _operators.get(spec.qualified_name, {})
        versions[spec.since_version] = operator
        _operators[spec.qualified_name] = versions  # other threads find no name without a version
        _registrations += 1
        if max(versions) == spec.since_version:
            setattr(namespace(spec.vendor), spec.function_name, operator)
        return operator


def _check_free(spec: OpSpec) -> None:
    """Refuse an operator whose function or whose node is that of another one."""
    for qualified, versions in _operators.items():
        for version, held in versions.items():
            other = held.spec
            if qualified == spec.qualified_name:
                if version != spec.since_version and other.onnx_domain != spec.onnx_domain:
                    raise ASKING.refuse("domain", spec.onnx_domain, f"{other.onnx_domain}, the domain of version "
                                        f"{version}")
            elif (other.vendor, other.function_name) == (spec.vendor, spec.function_name):
                raise ASKING.refuse("name", spec.name, f"a name whose function is not {spec.function_name}: that is "
                                    f"the function of {qualified}")
            elif (other.onnx_domain, other.name) == (spec.onnx_domain, spec.name):
                raise ASKING.refuse("domain", spec.onnx_domain, f"another domain: its node {spec.name} is {qualified}")


def _parts() -> set[str]:
    """Names of convreg's own modules and functions, which no vendor may have."""
    package = sys.modules[PACKAGE]
    other = {name for name, value in vars(package).items()
             if not isinstance(value, ModuleType) or value.__spec__ is not None}
    return other | _modules()


@lru_cache(maxsize=1)
def _modules() -> frozenset[str]:
    return frozenset(module.name for module in iter_modules(sys.modules[PACKAGE].__path__))


def namespace(vendor: str) -> ModuleType:
    """Return the module ``convreg.<vendor>`` that holds the vendor's functions, made on first use."""
    if not isinstance(vendor, str):
        raise Asking("convreg::namespace").refuse("vendor", vendor, "the name of a vendor", wrong_type=True)
    name = f"{PACKAGE}.{vendor}"
    if name not in sys.modules:
        module = sys.modules[name] = ModuleType(name, f"Operators as {vendor} defines them.")
        setattr(sys.modules[PACKAGE], vendor, module)
    return sys.modules[name]


def vendor_module(vendor: str) -> ModuleType | None:
    """Return the module ``convreg.<vendor>`` of a vendor of operators, None if no plug-in has that vendor either."""
    _load_plugins()
    found = sys.modules.get(f"{PACKAGE}.{vendor}")
    return found if found is not None and found.__spec__ is None else None


sys.meta_path.append(Vendors(PACKAGE, vendor_module))


@guarded("convreg::names")
def names() -> list[str]:
    """Return the qualified names of all operators, sorted, those of plug-ins included.

    Returns
    -------
    list of str
        Such as ``"onednn::ConvolutionBackwardData"``; each is an argument of `get`.
    """
    _load_plugins()
    return sorted(_operators)


@guarded("convreg::operators")
def operators() -> list[Operator]:
    """Return the newest version of every operator, in the order of `names`.

    Returns
    -------
    list of Operator
    """
    _load_plugins()
    return registered()


def registered() -> list[Operator]:
    """Return the newest version of every operator that is registered already; no plug-in is loaded."""
    return [_newest(_operators[name], None) for name in sorted(_operators)]  # type: ignore[misc]


def specs() -> list[OpSpec]:
    """Return the declarations of all operators that are registered already, every version, in the order of `names`."""
    return [_operators[name][version].spec for name in sorted(_operators) for version in sorted(_operators[name])]


@guarded("convreg::get")
def get(name: str, version: int | None = None) -> Operator:
    """Return an operator by name.

    Parameters
    ----------
    name : str
        ``"vendor::Name"``, ``"onnx.domain::Name"``, or ``"Name"`` if only one vendor has it.
    version : int, optional
        Version of the ONNX domain. The newest operator up to this version is returned; by default the newest of all.

    Returns
    -------
    Operator
        The same callable as the function in ``convreg.<vendor>``.

    Raises
    ------
    UnknownOp
        If neither convreg nor a plug-in has registered that name and version. The message lists similar names.
    OpTypeError
        If the version is not an integer.

    Examples
    --------
    >>> import convreg
    >>> convreg.get("ConvTransposeBackwardData") is convreg.onednn.conv_transpose_backward_data
    True
    """
    if not isinstance(name, str):
        raise UnknownOp(shorten(name), names())
    if version is not None:
        version = _checked_version(version)
    found = _find(name, version)
    if found is None:
        _load_plugins()
        found = _find(name, version)
    if found is not None:
        return found
    note = "; ".join(f"plug-in {plugin!r} failed to load: {reason}" for plugin, reason in _broken.items())
    candidates = _candidates(name)
    if len(candidates) > 1:
        raise UnknownOp(name, candidates, note="the bare name is ambiguous")
    if candidates:
        note = f"version {version} predates it" + (f"; {note}" if note else "")
    raise UnknownOp(name, names(), note=note)


def resolve(operator: Any) -> Operator:
    """Return an operator given as itself or by its name.

    Raises
    ------
    UnknownOp
        If it is neither.
    """
    try:
        known = isinstance(operator.spec, OpSpec)
    except Exception:  # attributes of foreign objects may raise anything
        known = False
    return operator if known else get(operator)


def _checked_version(version: Any) -> int:
    try:
        if not isinstance(version, bool):
            return arithmetic.index(version)
    except Exception:  # __index__ of foreign objects may raise anything
        pass
    raise Asking("convreg::get").refuse("version", version, "an integer or None", wrong_type=True)


def find_node(domain: str, op_type: str, version: int | None = None) -> Operator | None:
    """Return the operator behind an ONNX node, or None."""
    version = None if version is None else _checked_version(version)
    if not isinstance(domain, str) or not isinstance(op_type, str):
        return None
    versions = _by_node().get((domain, op_type))
    return None if versions is None else _newest(versions, version)


def _by_node() -> dict[tuple[str, str], dict[int, Operator]]:
    """Return the versions of every operator by domain and name: graphs ask several times for each of their nodes."""
    global _nodes
    nodes, operators, registrations = _nodes, _operators, _registrations
    if nodes.operators is not operators or nodes.registrations != registrations:
        found = {}
        for versions in list(operators.values()):
            spec = next(iter(versions.values())).spec
            found[spec.onnx_domain, spec.name] = versions
        nodes = _nodes = _Nodes(operators, registrations, found)
    return nodes.found


def _candidates(name: str) -> list[str]:
    qualifier, _, bare = name.rpartition("::")
    found = []
    for qualified, versions in _operators.items():
        spec = next(iter(versions.values())).spec
        if spec.name == bare and qualifier in ("", spec.vendor, spec.onnx_domain):
            found.append(qualified)
    return sorted(found)


def _find(name: str, version: int | None) -> Operator | None:
    candidates = _candidates(name)
    return _newest(_operators[candidates[0]], version) if len(candidates) == 1 else None


def _newest(versions: dict[int, Operator], version: int | None) -> Operator | None:
    usable = [since for since in versions if version is None or since <= version]
    return versions[max(usable)] if usable else None


def _load_plugins() -> None:
    from importlib.metadata import entry_points  # a quarter of the time that `import convreg` would take with it

    global _plugins_loaded
    with _lock:
        if _plugins_loaded:
            return
        _plugins_loaded = True
        for point in entry_points(group=GROUP):
            try:
                loaded = point.load()
                if isinstance(loaded, OpSpec):
                    register(loaded)
                elif isinstance(loaded, Iterable):
                    for spec in loaded:
                        register(spec)
                elif not isinstance(loaded, ModuleType) and not hasattr(loaded, "spec"):  # `register` returned it
                    raise ASKING.refuse(point.value, loaded, "an OpSpec, an iterable of them, or a module that calls "
                                        "convreg.register", wrong_type=True)
            except Exception as error:  # a plug-in may fail in any way; it must not take the others down
                _broken[point.name] = f"{type(error).__name__}: {error}"
                warnings.warn(f"convreg plug-in {point.name!r} is skipped: {_broken[point.name]}", RuntimeWarning,
                              stacklevel=3)
