"""Number formats under Ascend's rules: accepted formats, rounding of operands, formats that the kernels write.

Rows E03 to E15 and E53 to E58 of the rule table, and the rounding points.
"""

from __future__ import annotations

from convreg.geometry.ascend import INPUTS, is_product
from convreg.roles import Precision
from convreg.spec import Call

from ._emulation import EIGHT_BIT, FLOATS, check_output

HIFLOAT8, E4M3FN = "hifloat8", "float8_e4m3fn"
FORMAT_OF = {"gradInput": "input", "gradWeight": "weight", "gradBias": "gradOutput"}
"""By output: the input whose format it has by default."""
OUTPUTS = tuple(FORMAT_OF)

ACCEPTED: dict[str, tuple[str, ...]] = {
    "document": (*FLOATS, HIFLOAT8, E4M3FN),
    "ascend950": (*FLOATS, HIFLOAT8, E4M3FN),
    "atlas-a2": FLOATS,
    "atlas-910": ("float32", "float16"),
    "emulation": (*FLOATS, *EIGHT_BIT),
}
"""Formats of gradOutput and input by conformance; products hold weight and outputs to the same list."""
DOCUMENT_WEIGHT = (*FLOATS, HIFLOAT8)

Formats = tuple[str | None, str | None, str | None]


def type_table(of: str) -> dict[str, tuple[str, ...]]:
    """Formats of an operand or its gradient by conformance, for the declaration and for the rules."""
    return {**ACCEPTED, "document": DOCUMENT_WEIGHT} if of == "weight" else ACCEPTED


def accepted(call: Call, port: str) -> tuple[str, ...]:
    """Formats that the rules in force allow at a port."""
    formats = type_table(port)[call.conformance]
    if call.conformance == "ascend950" and call["transposed"]:
        return tuple(name for name in formats if name != E4M3FN)
    return formats


def output_mask(call: Call) -> tuple[bool, ...]:
    """Return the gradients to compute: requested by outputMask (E03) and, in a graph, named by the node (E04)."""
    mask = call["outputMask"]
    if len(mask) != 3:
        raise call.refuse("outputMask", list(mask), "three booleans: gradInput, gradWeight, gradBias", "E03")
    if is_product(call) and "outputMask" in call.given:
        for port, asked, named in zip(OUTPUTS, mask, call.wanted, strict=True):
            if asked and not named:
                raise call.refuse(port, None, "an output, because outputMask requests it", "E04")
    return tuple(asked and named for asked, named in zip(mask, call.wanted, strict=True))


def output_formats(call: Call, mask: tuple[bool, ...]) -> Formats:
    """Formats of the outputs, None where the vendor would see a null pointer."""
    stated = call["outputFormats"] if call.declares("outputFormats") else None
    if stated is not None and len(stated) != 3:
        raise call.refuse("outputFormats", list(stated), "three names, empty for the default")
    formats: list[str | None] = []
    for index, ((port, of), asked) in enumerate(zip(FORMAT_OF.items(), mask, strict=True)):
        own = call.tensor(of).format
        if call.conformance == "ascend950" and port == "gradWeight" and own in EIGHT_BIT:
            own = "float32"  # an 8-bit weight has a wider gradient
        if call.has(port) and is_product(call):
            given = call.tensor(port).format
            if stated and stated[index] not in ("", given):
                raise call.refuse(port, given, f"{stated[index]}, as outputFormats says", "E06", wrong_type=True)
            formats.append(given)
        else:
            formats.append((stated[index] if stated and stated[index] else own) if asked else None)
    return formats[0], formats[1], formats[2]


def check_formats(call: Call, mask: tuple[bool, ...]) -> Formats:
    """Refuse formats outside the lists (E05, E06) or not fitting together (E07 to E15); return the outputs' formats."""
    for port in INPUTS:
        check_format(call, port, call.tensor(port).format, accepted(call, port), "E05")
    outputs = output_formats(call, mask)
    if call.conformance == "emulation":
        for name in outputs:
            if name is not None:
                check_output(call, "outputFormats", name, ACCEPTED["emulation"], "E06")
        return outputs
    if is_product(call):
        for port, name in zip(OUTPUTS, outputs, strict=True):
            if name is not None:
                check_format(call, port, name, accepted(call, port), "E06")
    if call.conformance in ("document", "ascend950"):
        check_same_formats(call, mask, outputs)
    if call.conformance == "ascend950":
        check_eight_bit(call, mask, outputs)
    return outputs


def check_format(call: Call, port: str, name: str, allowed: tuple[str, ...], rule: str) -> None:
    """Refuse a format outside a list."""
    if name not in allowed:
        raise call.refuse(port, name, " or ".join(allowed), rule, wrong_type=True)


def check_same_formats(call: Call, mask: tuple[bool, ...], outputs: Formats) -> None:
    """Refuse gradients whose format, stated or given, differs from that of their tensor (E07 to E09)."""
    for (port, of), asked, name, rule in zip(FORMAT_OF.items(), mask, outputs, ("E07", "E08", "E09"), strict=True):
        own = call.tensor(of).format
        if rule == "E08" and is_product(call) and own in EIGHT_BIT:
            continue
        if call.has(port) and asked:
            name = call.tensor(port).format
        if name not in (None, own):
            raise call.refuse(port, name, f"{own}, as {of} is", rule, wrong_type=True)


def check_eight_bit(call: Call, mask: tuple[bool, ...], outputs: Formats) -> None:
    """Refuse 8-bit formats where Ascend 950's interface does (E10 to E15)."""
    operands = tuple(call.tensor(port).format for port in INPUTS)
    grad_input, grad_weight, grad_bias = outputs
    transposed = call["transposed"]

    def refuse(allowed: str, rule: str) -> Exception:
        shown = dict(zip((*INPUTS, *OUTPUTS), (*operands, *outputs), strict=True))
        return call.refuse("formats", shown, allowed, rule, wrong_type=True)

    both = grad_input is not None and grad_weight is not None
    if (mask[0] or mask[1]) and not (transposed and mask[0]) and both and \
            any(name in EIGHT_BIT for name in (*operands, grad_input, grad_weight)):
        raise refuse("8-bit formats only with transposed=True and gradInput requested", "E10")
    bias = () if grad_bias is None else (grad_bias,)
    for eight_bit in (HIFLOAT8, E4M3FN) if mask[0] else ():
        if len({name == eight_bit for name in (*operands, grad_input, *bias)}) > 1:
            raise refuse(f"{eight_bit} for all tensors or for none", "E11")
    if not mask[1]:
        return
    alike = {name == HIFLOAT8 for name in (*operands, *bias)}
    if True in alike and (False in alike or grad_weight != "float32"):
        raise refuse("hifloat8 operands, all three, with a float32 gradWeight", "E12")
    if E4M3FN in (*operands, grad_weight, *bias):
        raise refuse("no float8_e4m3fn if gradWeight is requested", "E13")
    if operands[1] in EIGHT_BIT and transposed and any(call["outputPadding"] or ()):
        raise call.refuse("outputPadding", list(call["outputPadding"]), "zeros for an 8-bit gradWeight", "E14")
    if operands[1] in EIGHT_BIT and call["groups"] != 1:
        raise call.refuse("groups", call["groups"], "1 for an 8-bit gradWeight", "E15")


def check_limits(call: Call, mask: tuple[bool, ...], outputs: Formats, empty: bool) -> None:
    """Refuse what the vendor's kernels cannot do (E53 to E58). E56 is also on the published page."""
    operands = tuple(call.tensor(port).format for port in INPUTS)
    deep = len(call.shape("input")) == 5
    if call.conformance == "atlas-910" and deep:
        raise call.refuse("input", list(call.shape("input")), "rank 3 or 4 on this product", "E53")
    if call.conformance == "atlas-a2" and deep and not empty and mask[1] and call["groups"] > 1 and \
            outputs[1] == "float32":
        if call["cubeMathType"] == 2:
            raise call.refuse("cubeMathType", 2, "0, 1 or 3 for a grouped 3-D gradWeight in float32", "E54")
        if promoted(operands) != "float32":
            raise call.refuse("gradWeight", "float32", f"{promoted(operands)} where groups > 1 in 3-D", "E55",
                              wrong_type=True)
    if mask[2] and outputs[2] not in FLOATS and call.conformance != "emulation":
        allowed = " or ".join(FLOATS)
        if not is_product(call):
            allowed += ": mask it off (output_mask=[True, True, False]), or choose its format with output_formats= " \
                       "under conformance='emulation'"
        raise call.refuse("gradBias", outputs[2], allowed, "E56", wrong_type=True)
    if not is_product(call):
        return
    if not call["transposed"] and any(name in EIGHT_BIT for name in operands):
        raise call.refuse("transposed", False, "True with 8-bit formats", "E57")
    if mask[1] and HIFLOAT8 in operands:
        raise call.refuse("outputMask", list(call["outputMask"]), "no gradWeight from hifloat8", "E58")


def promoted(formats: tuple[str, ...]) -> str:
    """The common format of mixed operands: their own where equal, float32 otherwise."""
    return formats[0] if len(set(formats)) == 1 else "float32"


def precision(call: Call) -> Precision:
    """Resolve cubeMathType against the promoted format; a cube without float32 refuses some combinations (E27).

    gradBias leaves its kernel in the format of gradOutput, and gradWeight in float32.
    """
    common = promoted(tuple(call.tensor(port).format for port in INPUTS))
    mode = call["cubeMathType"]
    operands = None
    if common == "float32" and call.conformance == "atlas-910":
        if mode in (0, 3):
            raise call.refuse("cubeMathType", mode, "1 or 2 for float32 on this product", "E27")
        operands = "float16"
    elif common == "float32" and mode in (1, 3):
        operands = "hf32"
    elif common in ("float32", "bfloat16") and mode == 2:
        operands = "float16"
    stages = ("float16" if operands == "float16" else written_first(common), "float32",
              written_first(call.tensor("gradOutput").format))
    return Precision(operands, stages, "cubeMathType", "0, or 2 for float16", dropped(call))


def dropped(call: Call) -> int:
    """Mantissa bits that HF32 drops."""
    return 13 if call.conformance == "ascend950" else 12


def written_first(format: str) -> str:
    """The format in which a result leaves its kernel: an 8-bit result of any format is rounded once, from float32."""
    return "float32" if format in EIGHT_BIT else format
