"""The model of a value's gradients."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto, helper

from ...errors import GraphError, shorten
from ...guard import guarded
from ..graph import Declared
from ..model.files import Source, opened
from .batch_norm import Mode
from .inference import check_typed, typed
from .prepare import prepare
from .reverse_pass import add_gradients, listed
from .tidy import tidy


@guarded("convreg::onnx::gradient")
def gradient(
    model: Source, y: str, wrt: Sequence[str], *, batch_norm: Mode = "as_exported", format: str | None = None,
    forward_format: str | None = None,
) -> ModelProto:
    """Return the forward model with the gradients of one value as further outputs.

    Parameters
    ----------
    model : onnx.ModelProto or path
        A forward model, of any exporter.
    y : str
        A floating-point value of the graph, such as the loss. If it has several elements, their sum is differentiated.
    wrt : sequence of str
        Names of floating-point initializers, inputs or inner values.
    batch_norm : {"as_exported", "train", "frozen"}
        "train" lets batch normalisations use the statistics of the batch, "frozen" the running ones. "as_exported"
        keeps the mode of each node.
    format : str, optional
        Number format to which convreg's Quantize rounds the operands of the gradients of Conv, ConvTranspose, Gemm
        and MatMul, such as ``"hifloat8"``. Everything else stays float32.
    forward_format : str, optional
        Number format to which the operands of these nodes are rounded in the forward pass.

    Returns
    -------
    onnx.ModelProto
        Inputs, outputs and initializers keep their names. The gradient of ``P`` is the output ``P_grad``, of the
        element type and shape of ``P``. Gradients of convolutions are ``convreg.aten::convolution_backward`` nodes;
        `convreg.onnx.translate` writes them in another dialect and `convreg.onnx.lower` in standard ONNX. All other
        nodes are standard ONNX.

    Raises
    ------
    GraphError
        If a name is unknown or not floating point, y does not depend on it, a node between them has no rule or needs
        an extent that is unknown before the graph runs, or the model is wrong. The message names the node.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["": 20]>
    ...     square (float[3] x) => (float[3] y) { y = Mul(x, x) }''')
    >>> import convreg.onnx
    >>> step = convreg.onnx.gradient(model, "y", ["x"])
    >>> convreg.onnx.run(step, {"x": [1, 2, 3]})["x_grad"]
    array([2., 4., 6.], dtype=float32)
    """
    if not isinstance(y, str):
        raise GraphError(f"y={shorten(y)} is refused; allowed: names of values")
    wrt = listed(wrt)
    whole, names = add_gradients(prepare(model, batch_norm=batch_norm, forward_format=forward_format), y, wrt,
                                 format=format)
    known = {value.name: value for value in (*whole.graph.input, *whole.graph.value_info, *whole.graph.output)}
    tensors = {tensor.name: tensor for tensor in whole.graph.initializer}
    for name, made in names.items():
        if name in known:
            declared = Declared.of(known[name])
            assert declared.dtype is not None
            kind, shape = helper.np_dtype_to_tensor_dtype(declared.dtype), declared.shape
        else:
            kind, shape = tensors[name].data_type, tuple(tensors[name].dims)
        whole.graph.output.append(helper.make_tensor_value_info(made, kind, shape))
    tidy(whole)
    check_typed(opened(whole))
    return typed(whole)
