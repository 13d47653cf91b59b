"""Imports of ``convreg.<vendor>`` for vendors of plug-ins, which are loaded for it: `pickle` imports functions so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class Vendors(MetaPathFinder, Loader):
    """Finds the modules of vendors after all other finders found nothing.

    Parameters
    ----------
    package : str
        The package that the modules lie in.
    find : callable
        Returns the module of a vendor, None where there is none.
    """

    def __init__(self, package: str, find: Callable[[str], ModuleType | None]) -> None:
        self._package, self._find = package, find

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a vendor's module is imported."""
        package, _, vendor = fullname.rpartition(".")
        found = package == self._package and self._find(vendor) is not None
        return ModuleSpec(fullname, self) if found else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module that holds the vendor's functions already."""
        return self._find(spec.name.rpartition(".")[2])

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is: without a spec, which tells it from convreg's own modules."""
        module.__spec__ = None
