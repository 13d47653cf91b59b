"""OpenVINO's own reader, if its package is installed: it rewrites a model to a form that convreg's reader accepts.

It maps the operation sets of older files, folds constant subgraphs (a computed output_shape among them) and infers
shapes. Our reader comes first, so that a file gives the same model whether the package is there or not.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from convreg import GraphError
from convreg.files import PathLike, reason


def is_installed() -> bool:
    """Whether the package can be imported."""
    return find_spec("openvino") is not None


def rewritten(xml_path: PathLike, bin_path: PathLike | None, folder: Path) -> Path:
    """Return the path of the model as the package reads it, constants folded, written into `folder`.

    Raises
    ------
    GraphError
        If the package is not installed or refuses the file.
    """
    if not is_installed():
        raise GraphError("OpenVINO's own reader needs its package: pip install openvino")
    import openvino
    from openvino.passes import ConstantFolding, Manager

    target = folder / "model.xml"
    try:
        model = openvino.Core().read_model(str(xml_path), *([] if bin_path is None else [str(bin_path)]))
        passes = Manager()
        passes.register_pass(ConstantFolding())
        passes.run_passes(model)
        openvino.save_model(model, str(target), compress_to_fp16=False)
    except Exception as error:  # the package raises classes of its own
        raise GraphError(f"OpenVINO's reader: {reason(error)}") from error
    return target
