"""The warning about output gradients that a format without scales rounds to zero."""

from __future__ import annotations

import warnings

from torch import Tensor

from .bridge import stored
from .operands import Codes, exponent_for, largest_magnitude
from .recipes import Rounding

_MAGNITUDE = {1: 0x7F, 2: 0x7FFF}
"""The bits of a code without its sign, by the bytes of a code."""

_FIRST_LOOK = 256
"""Codes that are looked at first: nearly every gradient has one here that is not zero."""

_warned: set[str] = set()


class VanishedGradients(UserWarning):
    """All gradients of a layer became zero in a format without scales."""


def warn_if_vanished(gradient: Tensor, codes: Codes, how: Rounding | None, layer: str) -> None:
    """Warn, once for each format, if every number of a gradient became zero that was not zero."""
    if how is None or how.scaling != "none" or codes.tensor is gradient or how.format in _warned:
        return
    mask = _MAGNITUDE.get(codes.tensor.dtype.itemsize)
    if mask is None or not codes.tensor.numel():
        return
    array = stored(codes.tensor).ravel(order="K")
    if (array[:_FIRST_LOOK] & mask).any() or (array & mask).any():
        return
    largest = largest_magnitude(gradient)
    if not largest > 0:
        return
    _warned.add(how.format)
    exponent = exponent_for(largest, how.format)
    warnings.warn(
        f"convreg.torch: all output gradients of layer {layer or 'without a name'!r} became zero in {how.format}, of "
        f"which the largest is {largest:.3g}. A scale of 2**{exponent} saves them: multiply the loss by it (a "
        f"torch.amp.GradScaler with init_scale=2.0**{exponent}), or take scaling='tensor' in the recipe. This is said "
        "once.", VanishedGradients, stacklevel=2)
