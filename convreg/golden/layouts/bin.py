"""Raw bytes, one file per array: ``NAME/input_X.bin`` and ``NAME/output_Y.bin``.

Types and shapes are in the manifest.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .base import Files, Layout, write_array

if TYPE_CHECKING:
    from ..record import Golden


class Bin(Layout):
    """C order, little endian, formats that NumPy lacks as their codes."""

    name = "bin"
    raw = True

    def write(self, golden: Golden, name: str, root: Path) -> Files:
        """Write the arrays."""
        inputs = {key: f"{name}/input_{key}.bin" for key in golden.inputs}
        outputs = {key: f"{name}/output_{key}.bin" for key in golden.outputs}
        for held, files in ((golden.inputs, inputs), (golden.outputs, outputs)):
            for key, array in held.items():
                write_array(array, root / files[key])
        return Files([name], inputs, outputs, [])

    def results(self, golden: Golden, name: str, output: str) -> list[str]:
        """``output_Y.bin`` or ``Y.bin``, or ``.npy`` in place of ``.bin``."""
        return [f"{stem}{suffix}" for stem in (f"output_{output}", output) for suffix in (".bin", ".npy")]
