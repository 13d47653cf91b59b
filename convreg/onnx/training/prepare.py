"""A forward model made ready for its gradients: flat, constants folded, every type and shape that is known stated."""

from __future__ import annotations

from onnx import ModelProto, TensorShapeProto

from ...errors import GraphError
from ..graph import scope_of
from ..model.checks import check_made_once
from ..model.files import Source, opened_flat
from .batch_norm import Mode, set_batch_norm
from .bodies import written_out
from .folding import Folding
from .inference import check_typed, typed
from .rounding import check_format, round_products
from .tidy import sort_nodes
from .versions import in_known_version

ROUNDS = 8
"""How often constants are folded: each time more shapes may be known."""


def prepare(source: Source, *, batch_norm: Mode = "as_exported", forward_format: str | None = None) -> ModelProto:
    """Return a copy of a forward model as `add_gradients` takes it. It is checked in full on the way.

    Parameters
    ----------
    source : onnx.ModelProto or path
    batch_norm : {"as_exported", "train", "frozen"}
        The mode of batch normalisations, as in `set_batch_norm`.
    forward_format : str, optional
        Number format to which the operands of Conv, ConvTranspose, Gemm and MatMul are rounded.

    Returns
    -------
    onnx.ModelProto
        Local functions are inlined, and operators without a rule are written out if onnx defines them by others.
        Constants are initializers, those that follow from known shapes too. The version of standard ONNX is 18 or
        later; value_info states what inference finds. Symbols that exporters wrote at inner values and outputs are
        dropped, because they may contradict each other.

    Raises
    ------
    GraphError
        If the model is wrong, has no floating-point input or initializer, cannot be converted to version 18, or an
        argument has a wrong value.
    """
    return prepared(opened_flat(source), batch_norm, forward_format)


def prepared(flat: ModelProto, batch_norm: Mode, forward_format: str | None) -> ModelProto:
    """Return what `prepare` returns, for what `opened_flat` returned.

    Raises
    ------
    GraphError
        As `prepare`.
    """
    check_format("forward_format", forward_format)
    model = ModelProto()
    model.CopyFrom(flat)
    check_made_once(model.graph)
    model = in_known_version(model)
    _forget_symbols(model)
    set_batch_norm(model, batch_norm)
    known = _inferred(model)
    whole = written_out(known)
    if whole is not known:
        known = _inferred(whole)
    for _ in range(ROUNDS):
        if not Folding(known, scope_of(known.graph)).fold():
            break
        known = _inferred(known)
    if forward_format not in (None, "float32"):
        round_products(known, forward_format)
        known = _inferred(known)
    sort_nodes(known.graph)
    check_typed(known)
    return known


def _forget_symbols(model: ModelProto) -> None:
    """Forget extents that have names instead of numbers, except those of inputs."""
    for value in (*model.graph.value_info, *model.graph.output):
        shape: TensorShapeProto = value.type.tensor_type.shape
        for dim in shape.dim:
            if dim.HasField("dim_param"):
                dim.ClearField("dim_param")


def _inferred(model: ModelProto) -> ModelProto:
    """Return the model with what inference finds; declarations of inner values that contradict it are dropped."""
    try:
        return typed(model)
    except GraphError:
        if not model.graph.value_info:
            raise
        bare = ModelProto()
        bare.CopyFrom(model)
        del bare.graph.value_info[:]
        return typed(bare)
