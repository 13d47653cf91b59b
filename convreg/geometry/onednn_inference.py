"""oneDNN Graph's rules for shapes with open extents: what is known is judged, and the result as far as it follows."""

from __future__ import annotations

from ..spec import Call, Shape
from . import onednn


def known_ranks(call: Call, first: str, second: str = "weights") -> tuple[Shape, Shape] | None:
    """Shapes of two tensors with unknown extents for an unknown rank; None where both ranks are unknown."""
    found = {name: shape for name in (first, second) if (shape := call.tensor(name).shape) is not None}
    if not found:
        return None
    rank = onednn.check_ranks(call, **found)
    onednn.check_lists(call, rank)
    return found.get(first, (None,) * rank), found.get(second, (None,) * rank)


def stated(call: Call, port: str, output: str, count: int) -> Shape:
    """Output shape of a gradient of rank `count` as far as `port` states it."""
    if call[port] is None:
        return (None,) * count
    onednn.check_stated(call, port, output, count)
    return call[port]


def data(call: Call) -> Shape | None:
    """Output shape of ConvolutionBackwardData as far as it is known."""
    tensors = known_ranks(call, "diff_dst")
    if tensors is None:
        return call["dst_shape"]
    shape = stated(call, "dst_shape", "diff_src", len(tensors[0]))
    onednn.settled_data(call, shape, *tensors)
    return shape


def weights(call: Call, large: str, small: str, output: str) -> Shape | None:
    """Output shape of a weights gradient as far as it is known."""
    tensors = known_ranks(call, large, small)
    if tensors is None:
        return call["weights_shape"]
    shape = stated(call, "weights_shape", output, len(tensors[0]))
    onednn.settled_weights(call, dict(zip((large, small), tensors, strict=True)), shape)
    return shape


def forward(call: Call, large: str, output: str) -> Shape | None:
    """Output shape of a forward operator as far as it is known."""
    tensors = known_ranks(call, large)
    if tensors is None:
        return None
    sides, pads, _ = onednn.forward_sides(call, *tensors)
    onednn.check_forward(call, sides, pads, (large, output), tensors[1])
    return onednn.join_data(*sides.small, call["data_format"])


def transposed(call: Call) -> Shape | None:
    """Output shape of ConvTranspose as far as it is known."""
    tensors = known_ranks(call, "src")
    if tensors is None:
        return None
    sides, _ = onednn.settled_transposed(call, *tensors)
    return onednn.join_data(*sides.large, call["data_format"])
