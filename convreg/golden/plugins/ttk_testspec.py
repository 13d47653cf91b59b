"""Golden vectors and verdicts of convreg for the Ascend operator test kit (TTK).

    python3 -m ttk aclnn -i cases.csv --plugin PATH_OF_THIS_FILE

This file needs Python 3.8 and NumPy alone. Where convreg cannot be imported, CONVREG_PYTHON names an interpreter that
can; the data goes there and back in .npz files. CONVREG_CONFORMANCE chooses the rules: ascend950, atlas-a2, atlas-910.
The comparison replaces the kit's standards: a result is right if rounding can explain it, element by element.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np

__spec__ = {
    "aclnnConvolutionBackward": "ConvolutionBackwardTestSpec",
    "conv3d_backprop_input_v2": "Conv3DBackpropInputV2TestSpec",
    "conv3d_backprop_filter_v2": "Conv3DBackpropFilterV2TestSpec",
}

PRODUCTS = {"ascend950": "ascend950", "ascend910b": "atlas-a2", "ascend910_93": "atlas-a2", "ascend910": "atlas-910"}
LAYOUTS = {3: "NCL", 4: "NCHW", 5: "NCDHW"}
_seen = {}  # the product of a case by its name: the comparison is not told


def _content(tensor):
    """Return a tensor's bytes, and its shape and number format."""
    if hasattr(tensor, "detach"):  # of torch, which is not imported here
        torch = sys.modules["torch"]
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        held = {"shape": list(tensor.shape), "format": str(tensor.dtype).rpartition(".")[2],
                "itemsize": flat.element_size()}
        return flat.view(torch.uint8).numpy(), held
    array = np.asarray(tensor)
    held = {"shape": list(array.shape), "format": array.dtype.name, "itemsize": array.dtype.itemsize}
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8), held


def _array(content, held):
    """Return an array in its format; formats that NumPy lacks come from ml_dtypes and en_dtypes."""
    if held["format"] in ("float32", "float16", "float64"):
        return content.view(held["format"]).reshape(held["shape"])
    if held["format"] == "hifloat8":
        from en_dtypes import hifloat8

        return content.view(hifloat8).reshape(held["shape"])
    import ml_dtypes

    return content.view(getattr(ml_dtypes, held["format"])).reshape(held["shape"])


def _ask(message, arrays):
    """Return convreg's reply."""
    python = os.environ.get("CONVREG_PYTHON")
    if python:
        reply, made = _ask_other(python, message, arrays)
    else:
        try:
            from convreg.golden.plugins.exchange import answer
        except ImportError as error:
            raise RuntimeError(f"convreg cannot be imported ({error}); needed: convreg here, or CONVREG_PYTHON, the "
                               "path of an interpreter that has it") from None
        reply, made = answer(message, arrays)
    if "error" in reply:
        raise ValueError(reply["error"])
    return reply, made


def _ask_other(python, message, arrays):
    with tempfile.TemporaryDirectory() as folder:
        question, answered = (os.path.join(folder, name) for name in ("request.npz", "reply.npz"))
        text = np.frombuffer(json.dumps(message).encode(), np.uint8)
        np.savez(question, message=text, **{f"array_{index}": array for index, array in enumerate(arrays)})
        command = [python, "-m", "convreg.golden.plugins.exchange", question, answered]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            raise RuntimeError(f"CONVREG_PYTHON={python!r} cannot be run ({error}); needed: an interpreter that has "
                               "convreg") from None
        if done.returncode:
            last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"CONVREG_PYTHON={python!r} ended with status {done.returncode} ({last}); needed: an "
                               "interpreter that has convreg")
        with np.load(answered, allow_pickle=False) as held:
            made = [held[f"array_{index}"] for index in range(len(held.files) - 1)]
            return json.loads(held["message"].tobytes().decode()), made


def _named(contents, names):
    """Replace the formats of tensors by the table's names, which tell 8-bit formats apart."""
    for (_, held), name in zip(contents, names or ()):
        if isinstance(name, str):
            held["format"] = name


def _conformance(testcase, product=None):
    if product:
        _seen[testcase] = next((PRODUCTS[known] for known in sorted(PRODUCTS, key=len, reverse=True)
                                if str(product).lower().startswith(known)), None)
    return os.environ.get("CONVREG_CONFORMANCE") or _seen.get(testcase)


def _interface_cells(name, contents, attributes, dtypes):
    """Return the cells of a row of the interface."""
    shapes = [tuple(held["shape"]) for _, held in contents]
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in attributes.items()}
    formats = [held["format"] for _, held in contents]
    outputs = list(dtypes or ())[3:6]
    outputs = [stated if isinstance(stated, str) else own for stated, own in
               zip(outputs or [None] * 3, (formats[1], formats[2], formats[0]))]
    shapes += [shapes[1], shapes[2], (shapes[0][1],)]
    return {"testcase_name": str(name), "api_name": "aclnnConvolutionBackward", "attributes": repr(given),
            "tensor_view_shapes": repr(tuple(shapes)), "tensor_dtypes": repr((*formats, *outputs)),
            "tensor_formats": repr((*[LAYOUTS.get(len(shapes[0]), "ND")] * 5, "ND"))}


def _kernel_cells(name, kernel, contents, attributes, result, formats):
    """Return the cells of a row of a kernel."""
    stated = 0 if "input" in kernel else 1
    key = "input_size" if stated == 0 else "filter_size"
    size = tuple(int(extent) for extent in contents[stated][0].view(contents[stated][1]["format"]))
    inputs = formats or ("NCDHW",) * 3
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in attributes.items()}
    return {"testcase_name": str(name), "op_name": kernel, "attributes": repr({**given, key: list(size)}),
            "input_shapes": repr(tuple(tuple(held["shape"]) for _, held in contents)),
            "input_dtypes": repr(tuple(held["format"] for _, held in contents)), "output_shapes": repr((size,)),
            "output_dtypes": repr((result,)), "input_formats": repr(tuple(inputs[:3])),
            "output_formats": repr(tuple((*inputs, "NCDHW")[3:4]))}


def _golden(cells, contents, conformance):
    message = {"do": "golden", "cells": cells, "arrays": [held for _, held in contents], "conformance": conformance}
    reply, made = _ask(message, [content for content, _ in contents])
    made = iter(made)
    return [None if held is None else _array(next(made), held) for held in reply["arrays"]]


def _compare(cells, contents, results, conformance):
    """Return the verdicts of the outputs that there are."""
    places = [place for place, result in enumerate(results) if result is not None]
    judged = [_content(results[place]) for place in places]
    both = [*contents, *judged]
    message = {"do": "compare", "cells": cells, "arrays": [held for _, held in both], "results": len(judged),
               "places": places, "conformance": conformance}
    reply, _ = _ask(message, [content for content, _ in both])
    return reply["verdicts"]


def _split(outputs):
    """Return outputs and goldens, which come in one row."""
    half = len(outputs) // 2
    return outputs[:half], outputs[half:]


class ConvolutionBackwardTestSpec:
    """The interface aclnnConvolutionBackward."""

    def golden(gradOutput, input, weight, biasSizes=None, stride=None, padding=None, dilation=None, transposed=False,
               outputPadding=None, groups=1, outputMask=(True, True, True), cubeMathType=0, gradInput=None,
               gradWeight=None, gradBias=None, **kwargs):
        """Return the three gradients, None where outputMask leaves one out."""
        attributes = {"biasSizes": biasSizes, "stride": stride, "padding": padding, "dilation": dilation,
                      "transposed": transposed, "outputPadding": outputPadding, "groups": groups,
                      "outputMask": outputMask, "cubeMathType": cubeMathType}
        contents = [_content(tensor) for tensor in (gradOutput, input, weight)]
        dtypes = kwargs.get("tensor_dtypes")
        _named(contents, dtypes)
        name = kwargs.get("testcase_name", "")
        cells = _interface_cells(name, contents, attributes, dtypes)
        return _golden(cells, contents, _conformance(name, kwargs.get("short_soc_version")))

    def compare(*outputs, compare_context, **kwargs):
        """Judge the gradients by the error that rounding can make."""
        results, goldens = _split(outputs)
        contents = [_content(tensor) for tensor in list(compare_context.input_tensors)[:3]]
        own = [None if golden is None else np.asarray(golden).dtype.name for golden in goldens]
        mask = compare_context.attributes.get("outputMask", (True, True, True))
        dtypes = _dtypes(compare_context, 6)
        _named(contents, dtypes)
        cells = _interface_cells(compare_context.testcase_name, contents, dict(compare_context.attributes),
                                 dtypes or [None] * 3 + own)
        results = [result if asked else None for result, asked in zip(results, mask)]
        return _compare(cells, contents, results, _conformance(compare_context.testcase_name))


def _dtypes(context, count):
    """Return the number formats that the table states, None where it has none for every tensor."""
    stated = context.csv_fields.get("tensor_dtypes" if count == 6 else "output_dtypes")
    if isinstance(stated, str):
        import ast

        try:
            stated = ast.literal_eval(stated)
        except (SyntaxError, ValueError):
            return None
    stated = list(stated or ())
    return stated * count if len(stated) == 1 else stated if len(stated) == count else None


def _kernel_golden(kernel, contents, attributes, kwargs):
    result = (kwargs.get("output_dtypes") or [contents[2][1]["format"] if "input" in kernel else "float32"])[0]
    _named(contents, kwargs.get("input_dtypes"))
    formats = kwargs.get("input_formats")
    formats = tuple(formats) + tuple(kwargs.get("output_formats") or ()) if formats else None
    name = kwargs.get("testcase_name", "")
    cells = _kernel_cells(name, kernel, contents, attributes, result, formats)
    return _golden(cells, contents, _conformance(name, kwargs.get("short_soc_version")))


def _kernel_compare(kernel, outputs, context):
    results, goldens = _split(outputs)
    contents = [_content(tensor) for tensor in list(context.input_tensors)[:3]]
    result = (_dtypes(context, 1) or [np.asarray(goldens[0]).dtype.name])[0]
    attributes = {name: value for name, value in dict(context.attributes).items()
                  if name not in ("input_size", "filter_size")}
    formats = None
    if isinstance(context.csv_fields.get("input_formats"), (tuple, list)):
        formats = (*context.csv_fields["input_formats"], *(context.csv_fields.get("output_formats") or ()))
    cells = _kernel_cells(context.testcase_name, kernel, contents, attributes, result, formats)
    return _compare(cells, contents, results, _conformance(context.testcase_name))


KERNEL_ATTRIBUTES = ("strides", "pads", "dilations", "groups", "data_format", "enable_hf32", "padding")


def _attributes(kwargs):
    return {name: value for name, value in kwargs.items()
            if (name in KERNEL_ATTRIBUTES or name.endswith("_op_impl_mode_enum")) and value is not None}


class Conv3DBackpropInputV2TestSpec:
    """The kernel of the data gradient."""

    def golden(input_size, filter, out_backprop, **kwargs):
        """Return y."""
        contents = [_content(tensor) for tensor in (input_size, filter, out_backprop)]
        return _kernel_golden("conv3d_backprop_input_v2", contents, _attributes(kwargs), kwargs)

    def compare(*outputs, compare_context, **kwargs):
        """Judge y by the error that rounding can make."""
        return _kernel_compare("conv3d_backprop_input_v2", outputs, compare_context)


class Conv3DBackpropFilterV2TestSpec:
    """The kernel of the weights gradient."""

    def golden(x, filter_size, out_backprop, **kwargs):
        """Return y, which is float32."""
        contents = [_content(tensor) for tensor in (x, filter_size, out_backprop)]
        return _kernel_golden("conv3d_backprop_filter_v2", contents, _attributes(kwargs), kwargs)

    def compare(*outputs, compare_context, **kwargs):
        """Judge y by the error that rounding can make."""
        return _kernel_compare("conv3d_backprop_filter_v2", outputs, compare_context)
