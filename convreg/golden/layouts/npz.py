"""One .npz file per case, as `Golden.save` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import archive
from ..manifest import Entry
from .base import Arrays, Files, Layout

if TYPE_CHECKING:
    from ..record import Golden


class Npz(Layout):
    """``NAME.npz``."""

    name = "npz"

    def write(self, golden: Golden, name: str, root: Path) -> Files:
        """Write the file."""
        file = f"{name}.npz"
        archive.save(golden, root / file)
        return Files([file], dict.fromkeys(golden.inputs, file), dict.fromkeys(golden.outputs, file), [])

    def read(self, root: Path, case: Entry) -> Arrays:
        """Return the arrays of the file."""
        held = archive.read(root / case.paths[0])
        return Arrays(held.inputs, held.outputs)

    def results(self, golden: Golden, name: str, output: str) -> list[str]:
        """``OUTPUT.npy``, as `convreg run` writes them."""
        return [f"{output}.npy"]

    def results_of_many(self, golden: Golden, name: str, output: str) -> list[str]:
        """``NAME.npy`` of the only output, or ``NAME/OUTPUT.npy``."""
        return [*([f"{name}.npy"] if len(golden.outputs) == 1 else []), *super().results_of_many(golden, name, output)]
