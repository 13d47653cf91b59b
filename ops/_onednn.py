"""Common parts of the oneDNN Graph operators: the eight common attributes, types and rule rows."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

from convreg.calls.arguments import UNSET_SHAPE
from convreg.geometry import Geometry, onednn, onednn_inference
from convreg.roles import Convolution, Role
from convreg.spec import Attribute, Call, Plan, Port, Rules, Shape, Spellings, TensorType, spellings

from . import _views

FORMATS = ("float32", "bfloat16", "float16")
TYPES = {"T": FORMATS, "T2": ("int32",)}
CONFORMANCES = ("document", "library")

RULES = Rules(
    missing_input="R8", missing_attribute="R1", unknown="R3", kind="R2", empty_string="R33", arity="R8", format="R10",
    mixed_formats="R11", outputs="R9", output_format="R12", shape_format="R13", shape_length="R18",
    default_order="R27",
)

_EXACT = {"None": "none", "SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower", "VALID": "valid"}
_FOLDED = {"none": "none", "same_upper": "same_upper", "same_lower": "same_lower", "valid": "valid",
           "explicit": "none"}

AUTO_PAD = Attribute(
    "auto_pad", "string", "Padding mode: None uses pads_begin and pads_end, VALID uses no padding, and the SAME modes "
    "pad so that the small side has ceil(large / stride) elements. Only None reads pads_begin and pads_end.", "None",
    choices={"document": Spellings(_FOLDED, case_sensitive=False), "library": Spellings(_EXACT)}, rule="R4")


def common(weights_formats: tuple[str, str]) -> tuple[Attribute, ...]:
    """Attributes that all oneDNN Graph convolutions share; the first weights format is the default."""
    return (
        *SPATIAL,
        AUTO_PAD,
        Attribute("groups", "int", "Number of groups that the channels are divided into.", 1, minimum=1, rule="R31"),
        Attribute("data_format", "string", "Axis order of the data: NXC is batch, space, channels; NCX is batch, "
                  "channels, space.", "NXC", choices=spellings("NXC", "NCX"), rule="R5"),
        Attribute("weights_format", "string", "Axis order of the weights. I and O are the input and output channels of "
                  "the forward operation, X is space.", weights_formats[0], choices=spellings(*weights_formats),
                  rule="R6"),
    )


SPATIAL = (
    Attribute("strides", "ints", "Step of the kernel on the large side, one per spatial axis.", minimum=1, rule="R29"),
    Attribute("pads_begin", "ints", "Padding before the large side, one per spatial axis.", minimum=0, rule="R7"),
    Attribute("pads_end", "ints", "Padding after the large side, one per spatial axis.", minimum=0, rule="R7"),
    Attribute("dilations", "ints", "Distance between kernel taps, one per spatial axis; 1 is dense.", minimum=1,
              rule="R30"),
)

OUTPUT_PADDING = Attribute(
    "output_padding", "ints", "Extra elements at the end of the large side, one per spatial axis.", None, minimum=0,
    rule="R32", unset=UNSET_SHAPE)


def shape_port(name: str, of: str, role: Role) -> Port:
    """The optional third input that states an output shape, also an attribute."""
    return Port(name, f"Full shape of {of}, in the axis order of its format; may be left out if out= is given.", "T2",
                optional=True, shape=True, attribute=True, rule="R20", role=role)


BIAS = Port("bias", "Bias, (O,); it is added to every position before the rounding.", optional=True,
            role="bias")


def arranged(*, transposed: bool = False, forward: bool = False) -> Convolution:
    """The convolution of an operator whose attributes state the layouts."""
    return Convolution(transposed, forward, "data_format", "weights_format")


def planned(call: Call, geometry: Geometry, shape: Shape, *, divided_small: bool = False) -> Plan:
    """The plan of a result of this shape; `run` needs the layouts."""
    return Plan(typed(call, shape), (call["data_format"], call["weights_format"]), geometry=geometry,
                divided_small=divided_small)


def typed(call: Call, shape: Shape | None) -> tuple[TensorType | None, ...]:
    """The only result, in the format of the first input."""
    return (TensorType(shape, call.tensor(call.spec.inputs[0].name).format),)


class WeightsGradient(NamedTuple):
    """The functions of a weights gradient of src and diff_dst; the transposed one exchanges the two sides."""

    large: str
    small: str

    def plan(self, call: Call) -> Plan:
        """Resolve pads, from the extent of the large side, and the shape of diff_weights."""
        geometry, shape = onednn.backward_weights(call, self.large, self.small, "diff_weights")
        return planned(call, geometry, shape)

    def infer(self, call: Call) -> tuple[TensorType | None, ...]:
        """diff_weights has the stated shape, or the rank of the tensors, which must fit as far as they are known."""
        return typed(call, onednn_inference.weights(call, self.large, self.small, "diff_weights"))

    def run(
        self, plan: Plan, inputs: tuple[Any, ...], outputs: tuple[Any, ...], kernels: ModuleType, threads: int
    ) -> None:
        """Fill diff_weights."""
        geometry, (layout, weights_layout) = plan.integers, plan.work
        tensors = dict(zip(("src", "diff_dst"), inputs, strict=False))
        _views.backward_weights(
            kernels, geometry, _views.data(tensors[self.large], geometry.groups, layout),
            _views.data(tensors[self.small], geometry.groups, layout),
            _views.weights(outputs[0], geometry.groups, weights_layout), threads)
