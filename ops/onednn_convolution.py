"""onednn::Convolution: the forward operation whose gradients the others are."""

from __future__ import annotations

from types import ModuleType

from convreg.geometry import onednn
from convreg.registry import register
from convreg.spec import Call, OpSpec, Plan, Port, TensorType

from . import _onednn, _views
from ._emulation import emulated


def plan(call: Call) -> Plan:
    """Resolve pads and the shape of dst."""
    geometry, shape, _ = onednn.forward(call, "src", "dst")
    onednn.check_bias(call, geometry.groups * geometry.small_channels)
    return Plan((TensorType(shape, call.tensor("src").format),),
                (call["data_format"], call["weights_format"]), geometry=geometry)


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """Every extent that follows from what is known."""
    shape = onednn.infer_forward(call, "src", "dst")
    onednn.check_bias(call, onednn.channels_of(call, shape))
    return (TensorType(shape, call.tensor("src").format),)


def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Large side src, small side dst."""
    geometry, (layout, weights_layout) = plan.integers, plan.work
    groups = geometry.groups
    _views.forward(kernels, geometry, _views.data(inputs[0], groups, layout),
                   _views.weights(inputs[1], groups, weights_layout), _views.data(outputs[0], groups, layout), threads,
                   bias=inputs[2])


convolution = register(emulated(OpSpec(
    vendor="onednn",
    name="Convolution",
    since_version=1,
    doc="Convolution: dst[n,oc,y] = bias[oc] + SUM src[n,ic,x] * W[oc,ic,t] over ic of the group and t with "
        "x = y*stride - pads_begin + t*dilation.",
    source="oneDNN Graph 3.13: op_def.hpp and shape_infer.cpp (infer_auto_pad).",
    inputs=(
        Port("src", "Input, (N, IC, X...) or (N, X..., IC).", role="grad_output"),
        Port("weights", "Weights, (OC, IC/groups, K...) for OIX, (K..., IC/groups, OC) for XIO.", role="weight"),
        _onednn.BIAS,
    ),
    outputs=(Port("dst", "Result, (N, OC, Y...) or (N, Y..., OC).", rule="R20", role="grad_data"),),
    attributes=_onednn.common(("XIO", "OIX")),
    types={"T": _onednn.FORMATS},
    convolution=_onednn.arranged(transposed=True, forward=True),
    conformances=("library",),
    rules=_onednn.RULES,
    plan=plan,
    run=run,
    infer=infer,
)))
