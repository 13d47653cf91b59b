"""ascend::ConvolutionBackward: the gradients of a convolution as CANN's aclnnConvolutionBackward computes them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from convreg.conversion import round_operand
from convreg.geometry import Geometry, ascend, aten, known
from convreg.registry import register
from convreg.roles import Convolution, Precision
from convreg.spec import Attribute, Call, OpSpec, Plan, Port, Rules, Shape, TensorType

from . import _ascend, _emulation, _gradients, _scales


class Judged(NamedTuple):
    """What a call comes to: types of the results, the geometry where its extents are known, and rounding."""

    outputs: tuple[TensorType | None, ...]
    geometry: Geometry | None
    precision: Precision


def judged(call: Call) -> Judged:
    """Check in the vendor's order, as far as extents are known; the first failure wins."""
    mask = _ascend.output_mask(call)
    formats = _ascend.check_formats(call, mask)
    ascend.check_attributes(call)
    precision = _ascend.precision(call)
    empty = ascend.check_shapes(call, mask)
    _ascend.check_limits(call, mask, formats, empty)
    geometry, length = None if empty else ascend.backward(call), ascend.bias_length(call)
    channels = (length,) if known(length) else shared_channels(call)
    return Judged(results(call, channels, formats, mask), geometry, precision)


def shared_channels(call: Call) -> Shape:
    """Shape of the bias as far as gradOutput or the weight state it."""
    channels, weight = aten.channel_vector(call.tensor("gradOutput").shape), call.tensor("weight").shape
    return weight[:1] if weight and not call["transposed"] and not known(*channels) else channels


def results(call: Call, bias: Shape, formats: _ascend.Formats, mask: tuple[bool, ...]) -> tuple[TensorType | None, ...]:
    """The gradients have the shapes of what they are gradients of."""
    shapes = call.tensor("input").shape, call.tensor("weight").shape, bias
    return tuple(TensorType(shape, format) if asked and format is not None else None
                 for shape, format, asked in zip(shapes, formats, mask, strict=True))


def plan(call: Call) -> Plan:
    """Emulation also states how operands are scaled."""
    outputs, geometry, precision = judged(call)
    how = None
    if call.conformance == _emulation.CONFORMANCE:
        assert geometry is not None, "products alone leave zeros"
        how = _emulation.emulation_of(call, geometry, outputs)
    return Plan(outputs, call["transposed"], how, geometry, precision=precision)


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """Types of the gradients. What is known must fit, unless a rank is unknown: then there is no more than formats."""
    if aten.shapes_of(call, ascend.INPUTS, call["transposed"]) is None:
        mask = _ascend.output_mask(call)
        made = results(call, shared_channels(call), _ascend.output_formats(call, mask), mask)
    else:
        made = judged(call).outputs
    if call.conformance == _emulation.CONFORMANCE:
        _emulation.check_known(call, made)
    return made


def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: Any, threads: int) -> None:
    """Round operands, fill gradInput through the compute format and gradWeight from float32 sums; bias unrounded."""
    geometry, precision, transposed = plan.geometry, plan.precision, plan.work
    how: _emulation.Emulation | None = plan.emulation
    last = _emulation.USUAL if how is None else how.last
    kernels = kernels if how is None else how.kernels(kernels, inputs)
    grad_output, data, weight = inputs[:3]
    grads = _gradients.Gradients(*outputs)
    if geometry is None:
        for output in outputs:
            if output is not None:
                output[...] = 0
        return
    operands, stages = (grad_output, data, weight), grads
    if grad_output.dtype != np.float64:  # the float64 reference rounds nothing
        used = (grads.input is not None or grads.weight is not None, grads.weight is not None, grads.input is not None)
        first, second, third = (round_operand(array, precision, threads) if needed else array
                                for array, needed in zip(operands, used, strict=True))
        operands = first, second, third
        stages = _gradients.Gradients(*(
            _emulation.staged(output, written, last)
            for output, written in zip(grads, precision.stages, strict=True)))
    _gradients.run(geometry, transposed, *operands, stages._replace(bias=None), kernels, threads)
    _gradients.run(geometry, transposed, grad_output, data, weight, _gradients.Gradients(None, None, stages.bias),
                   kernels, threads)
    for stage, output in zip(stages, grads, strict=True):
        _emulation.deliver(stage, output, last, threads)


def _statuses() -> dict[str, dict[str, int]]:
    numbers = {f"E{row:02}": 161001 if row <= 4 else 161002 if row <= 55 else 561103 for row in range(1, 60)}
    return {product: {**numbers, "geometry": 161002} for product in ascend.PRODUCTS}


convolution_backward = register(_scales.scaled(OpSpec(
    vendor="ascend",
    name="ConvolutionBackward",
    since_version=1,
    doc="Gradients of a convolution or transposed convolution with respect to input, weight and bias: As in Ascend, "
        "mixed formats are promoted, cubeMathType rounds the operands and outputMask selects the outputs.",
    source="CANN ops-nn, aclnnConvolutionBackward.md (August 2026); convolution_backward_checker.cpp and "
           "aclnn_convolution_backward.cpp for the products.",
    inputs=(
        Port("gradOutput", "Gradient of the output, (N, Cout, Y...).", "T1", role="grad_output"),
        Port("input", "Input of the forward convolution, (N, Cin, X...).", "T2", role="data"),
        Port("weight", "Weights, (Cout, Cin/groups, K...); if transposed, (Cin, Cout/groups, K...).", "T3",
             role="weight"),
    ),
    outputs=(
        Port("gradInput", "Gradient of input, by default in the format of input.", "T4", optional=True, rule="E30",
             role="grad_data"),
        Port("gradWeight", "Gradient of weight, by default in the format of weight.", "T5", optional=True,
             rule="E31", role="grad_weight"),
        Port("gradBias", "Gradient of the bias, (Cout,): the sum of gradOutput, by default in its format.",
             "T6", optional=True, rule="E32", role="grad_bias"),
    ),
    attributes=(
        Attribute("biasSizes", "ints", "Shape of the bias, [Cout]. A product's conformance checks it only if a tensor "
                  "is empty.", None),
        Attribute("stride", "ints", "Step of the kernel, one per spatial axis.", minimum=1, rule="E19"),
        Attribute("padding", "ints", "Padding on both sides, one per spatial axis; in 2-D also [top, bottom, "
                  "left, right].", minimum=0, rule="E20"),
        Attribute("dilation", "ints", "Distance between kernel taps, one per spatial axis; 1 is dense.", minimum=1,
                  rule="E21"),
        Attribute("transposed", "bool", "Whether the forward operation was a transposed convolution.", False),
        Attribute("outputPadding", "ints", "Extra extent of the output of a transposed convolution, below the "
                  "stride; zeros otherwise.", None),
        Attribute("groups", "int", "Number of groups that the channels are divided into.", 1, minimum=1, rule="E25"),
        Attribute("outputMask", "bools", "Which of gradInput, gradWeight and gradBias to compute.", (True, True, True)),
        Attribute("cubeMathType", "int", "Rounding of float32 operands: 0 none, 1 the format of the product's "
                  "multiplier (HF32, or float16 on atlas-910), 2 float16 (bfloat16 operands too), 3 HF32.", 0,
                  minimum=0, maximum=3, rule="E26"),
        Attribute("outputFormats", "strings", "Formats of the three gradients. An empty name or None means the format "
                  "of the tensor that it is the gradient of.", None, only=(*ascend.PRODUCTS, _emulation.CONFORMANCE)),
        *_emulation.LAST_ROUNDING,
    ),
    types={
        "T1": _ascend.type_table("gradOutput"),
        "T2": _ascend.type_table("input"),
        "T3": _ascend.type_table("weight"),
        "T4": _ascend.type_table("input"),
        "T5": _ascend.type_table("weight"),
        "T6": {"emulation": _ascend.ACCEPTED["emulation"], "*": _ascend.FLOATS},
    },
    convolution=Convolution("transposed", mask="outputMask"),
    conformances=ascend.CONFORMANCES,
    rules=Rules(missing_input="E01", missing_attribute="E02", format="E05", output_format="E06"),
    statuses=_statuses(),
    ordered_checks=True,
    plan=plan,
    run=run,
    infer=infer,
), _emulation.CONFORMANCE))
