"""Golden vectors and verdicts for a program that may run under another interpreter.

``python -m convreg.golden.plugins.exchange REQUEST.npz REPLY.npz`` answers one request. Both files hold ``message``, a
JSON text in bytes, and ``array_0``, ``array_1`` ..., the bytes of arrays; any NumPy reads them. A request names what to
`do`, "golden" or "compare"; it has the cells of a row as `golden.sources.ttk` reads them (`cells`), and of every array
the shape and the number format (`arrays`). The reply has `error`, or the same of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import GraphError, OpError, UnknownOp, shorten
from ...files import write_atomically
from ...formats import FORMATS
from ...memory import Array
from ..data import INTEGERS, format_name
from ..make import make
from ..record import Golden
from ..sources.kernels import arguments_of
from ..sources.ttk import API, of_cells
from ..verdict import compare

OUTPUTS = {"aclnnConvolutionBackward": 3}
"""Outputs of an interface by its name; a kernel has one."""
BY_OUTPUT = ("gradInput", "gradWeight", "gradBias")


def answer(message: Mapping[str, Any], arrays: Sequence[Array]) -> tuple[dict[str, Any], list[Array]]:
    """Return the reply to a request, with the bytes of its arrays.

    Parameters
    ----------
    message : mapping
        The request.
    arrays : sequence of ndarray
        Its arrays as bytes, the inputs before the results that are to be judged.

    Returns
    -------
    (dict, list of ndarray)
        For "golden", `arrays` describes one output each, None where it is masked off. For "compare", `verdicts` has a
        dictionary per output. `error` is one sentence about what was wrong.
    """
    try:
        name, case = of_cells(message["cells"])
        operands = [_array(held, content) for held, content in zip(message["arrays"], arrays, strict=True)]
        count = len(operands) - message.get("results", 0)
        inputs = arguments_of(case, name, operands[:count])
        conformance = case.conformance or message.get("conformance")
        if case.conformance == "emulation" and name == API:  # a product may let the row choose formats of results
            conformance = message.get("conformance") or case.conformance
        if case.op.startswith("onednn::"):
            conformance = case.conformance
        golden = make(case.op, inputs, conformance=conformance, name=case.name, **case.attributes)
        ports = BY_OUTPUT[:OUTPUTS.get(name, 0)] or tuple(golden.outputs)
        if message["do"] == "golden":
            return _vectors(golden, ports)
        return {"verdicts": _verdicts(golden, ports, message["places"], operands[count:])}, []
    except (GraphError, OpError, UnknownOp) as error:
        return {"error": str(error)}, []


def _array(held: Mapping[str, Any], content: Array) -> Array:
    """Return an array of bytes in its shape and format; a dtype without a format, such as V1, as unsigned codes."""
    known = FORMATS.get(held["format"])
    shape = tuple(held["shape"])
    if known is not None:
        dtype = known.dtype
    elif held["format"] in INTEGERS:
        dtype = INTEGERS[held["format"]]
    else:
        dtype = np.dtype(f"u{held['itemsize']}") if held["itemsize"] in (1, 2, 4, 8) else np.dtype(np.uint8)
    if content.size != dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
        raise GraphError(f"an array of {held['format']} and shape {list(shape)} came with {content.size} bytes; "
                         f"needed: {dtype.itemsize} per element")
    return content.view(dtype).reshape(shape)


def _vectors(golden: Golden, ports: Sequence[str]) -> tuple[dict[str, Any], list[Array]]:
    described: list[dict[str, Any] | None] = []
    contents = []
    for port in ports:
        array = golden.outputs.get(port)
        described.append(None if array is None else {"shape": list(array.shape), "format": format_name(array)})
        if array is not None:
            contents.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return {"arrays": described}, contents


def _verdicts(
    golden: Golden, ports: Sequence[str], places: Sequence[int], results: Sequence[Array]
) -> list[dict[str, Any]]:
    """Return one dictionary per output as TTK wants it; `places` are the outputs that the results are."""
    given = {ports[place]: array for place, array in zip(places, results, strict=True)}
    wanted = {port: given[port] for port in ports if port in given and port in golden.outputs}
    report = compare(golden, wanted)
    verdicts = []
    for port in ports:
        found = report.outputs.get(port)
        if found is None:
            verdicts.append({"pass": True, "precision": "masked off"})
            continue
        right = 100 * (1 - found.wrong / found.elements) if found.elements else 100.0
        verdicts.append({"pass": found.passed, "precision": right,
                         "error_info": "" if found.passed else "\n".join(found.lines())})
    return verdicts


def pack(message: Mapping[str, Any], arrays: Sequence[Array]) -> dict[str, Array]:
    """Return what a file of the exchange holds."""
    text = np.frombuffer(json.dumps(message).encode(), np.uint8)
    return {"message": text, **{f"array_{index}": array for index, array in enumerate(arrays)}}


def main(arguments: Sequence[str]) -> int:
    """Answer the request of a file with another file; the exit status is 2 where that is no request."""
    if len(arguments) != 2:
        print(f"two files are needed, the request and the reply, not {shorten(list(arguments))}", file=sys.stderr)
        return 2
    try:
        with np.load(arguments[0], allow_pickle=False) as held:
            message = json.loads(held["message"].tobytes())
            arrays = [held[f"array_{index}"] for index in range(len(held.files) - 1)]
    except Exception as error:  # a damaged file raises whatever its reader does
        print(f"{arguments[0]}: no request ({type(error).__name__}); needed: a file of convreg's plug-in",
              file=sys.stderr)
        return 2
    reply = pack(*answer(message, arrays))
    write_atomically(arguments[1], lambda file: np.savez(file, **reply))  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
