"""Modules of many kinds, the calls of their layers as they happen, and what convreg's own operators make of these."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import convreg
from convreg.torch.modules import Emulated

ARRAYS = {torch.bfloat16: (torch.int16, "bfloat16"), torch.float16: (torch.int16, "float16")}


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """Return the numbers of a tensor as float32, float64 or the 16-bit type it is of."""
    tensor = tensor.detach()
    if tensor.dtype in ARRAYS:
        carrier, name = ARRAYS[tensor.dtype]
        return tensor.view(carrier).numpy().view(convreg.formats()[name].dtype)
    return tensor.numpy()


SCALED = ("hifloat8", "float8_e4m3fn", "float8_e5m2", "float16")
"""The formats that have scales: others have the range of float32."""


def emulated_layers(module: nn.Module) -> list[tuple[str, Any]]:
    """Return the converted layers of a module by name."""
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, Emulated)]


class Residual(nn.Module):
    """Two convolutions with batch norm, and a shortcut of another stride."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(6, 8, 3, 2, 1, bias=False), nn.Conv2d(8, 8, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(6, 8, 1, 2, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.norms[2](self.short(x)))


class UNet(nn.Module):
    """One level down, one up by a transposed convolution, joined by concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 12, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(12, 6, 3, stride=2, padding=1, output_padding=1)
        self.out = nn.Conv2d(12, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = torch.relu(self.down(x))
        return self.out(torch.cat([skip, torch.relu(self.up(torch.relu(self.deep(skip))))], 1))


class Shared(nn.Module):
    """One layer used three times, and two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Conv1d(4, 4, 3, padding=1)
        self.encode, self.decode = nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False)
        self.decode.weight = self.encode.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.tanh(self.again(x))
        return self.decode(torch.relu(self.encode(x)))


def modules() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Return modules with inputs, equal in every call."""
    torch.manual_seed(0)
    made: dict[str, tuple[nn.Module, torch.Tensor]] = {
        "residual": (Residual(), torch.randn(2, 6, 9, 9)),
        "depthwise": (nn.Sequential(nn.Conv2d(5, 5, 3, padding=1, groups=5), nn.Hardswish(), nn.Conv2d(5, 7, 1),
                                    nn.Conv2d(7, 14, 5, stride=2, padding=2, groups=7)), torch.randn(2, 5, 8, 8)),
        "unet": (UNet(), torch.randn(2, 3, 10, 8)),
        "1d": (nn.Sequential(nn.Conv1d(3, 6, 5, stride=2), nn.GELU(), nn.ConvTranspose1d(6, 4, 4, stride=3, dilation=2),
                             nn.Conv1d(4, 4, 4, padding="same", dilation=3)), torch.randn(3, 3, 21)),
        "3d": (nn.Sequential(nn.Conv3d(2, 4, (1, 3, 3), padding=(0, 1, 1)), nn.ReLU(),
                             nn.ConvTranspose3d(4, 3, 2, stride=2),
                             nn.Conv3d(3, 2, 2, padding_mode="circular", padding=1)),
               torch.randn(2, 2, 3, 5, 4)),
        "grouped": (nn.Sequential(nn.Conv2d(8, 12, 3, groups=4, dilation=2), nn.ReLU(),
                                  nn.ConvTranspose2d(12, 9, 3, stride=2, groups=3, dilation=2, padding=1)),
                    torch.randn(2, 8, 9, 10)),
        "shared": (Shared(), torch.randn(2, 4, 10)),
        "channels_last": (Residual().to(memory_format=torch.channels_last),
                          torch.randn(2, 6, 9, 9).to(memory_format=torch.channels_last)),
        "bfloat16": (UNet().to(torch.bfloat16), torch.randn(2, 3, 10, 8).to(torch.bfloat16)),
        "linear": (nn.Sequential(nn.Linear(7, 9), nn.GELU(), nn.Linear(9, 3, bias=False)), torch.randn(2, 3, 5, 7)),
    }
    return made


class Seen(NamedTuple):
    """One call of a layer with what backward gave it, and the layer."""

    layer: Any
    name: str
    input: torch.Tensor
    output: torch.Tensor


def record(module: nn.Module, x: torch.Tensor, gradient: torch.Tensor | None = None) -> list[Seen]:
    """Run a converted module forward and backward; return the calls of its layers, with gradients kept."""
    calls: list[Seen] = []

    def hook(layer: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        args[0].retain_grad()
        output.retain_grad()
        calls.append(Seen(layer, layer.convreg_layer, args[0], output))

    def apart(layer: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (args[0].clone(), *args[1:])  # a tensor of this call alone, so that its gradient is this layer's

    handles = []
    for _, layer in emulated_layers(module):
        handles += [layer.register_forward_pre_hook(apart), layer.register_forward_hook(hook)]
    output = module(x.clone().requires_grad_())
    if gradient is None:
        generator = torch.Generator().manual_seed(1)
        gradient = torch.randn(output.shape, generator=generator).to(output.dtype)
    output.backward(gradient)
    for handle in handles:
        handle.remove()
    return calls


class Gradients(NamedTuple):
    """What a layer's call is to give."""

    output: np.ndarray
    input: np.ndarray
    weight: np.ndarray
    bias: np.ndarray


def expected(call: Seen, formats: tuple[str | None, str | None, str | None], *, scaled: bool = False,
             saturate: bool = False, threads: int = 1) -> Gradients:
    """Return output and gradients of a call by convreg.aten and convreg.onednn on operands that convreg rounds."""
    layer, x, dy = call.layer, array_of(call.input), array_of(call.output.grad)
    w, bias = array_of(layer.weight), None if layer.bias is None else array_of(layer.bias)
    linear, transposed = isinstance(layer, nn.Linear), isinstance(layer, nn.modules.conv._ConvTransposeNd)
    kind, parameter = x.dtype, w.dtype
    stride, padding, dilation, groups, extra = [1], [0], [1], 1, [0]
    if linear:
        x, dy, w = x.reshape(-1, x.shape[-1]).T[None], dy.reshape(-1, dy.shape[-1]).T[None], w[:, :, None]
    else:
        axes = w.ndim - 2
        stride, dilation, groups = list(layer.stride), list(layer.dilation), layer.groups
        padding, extra = layer.padding, [0] * axes
        if padding == "same" or layer.padding_mode != "zeros":
            mode = {"zeros": "constant", "circular": "wrap"}[layer.padding_mode]
            ends = layer._reversed_padding_repeated_twice
            x = np.pad(x.astype(np.float32), [(0, 0)] * 2 + [tuple(ends[2 * i:2 * i + 2]) for i in
                                                            reversed(range(axes))], mode=mode).astype(kind)
            padding = [0] * axes
        padding = list(padding)
        if transposed:
            extra = [y - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for y, n, s, p, d, k in zip(
                dy.shape[2:], x.shape[2:], stride, padding, dilation, w.shape[2:], strict=True)]
    operands, scales = [], []
    for array, format in zip((dy, x, w), (formats[2], formats[0], formats[1]), strict=True):
        exponent = 0
        if scaled and format in SCALED:
            largest = float(np.abs(array.astype(np.float64)).max(initial=0.0))
            top = 8.0 if format == "hifloat8" else convreg.formats()[format].largest
            exponent = int(np.floor(np.log2(top / largest))) if largest else 0
        values = np.ldexp(array.astype(np.float32), exponent) if exponent else array
        known = values.dtype == np.dtype(convreg.formats()[format].dtype) if format else True
        operands.append(values if known else convreg.quantize(values, format, saturate=saturate))
        scales.append(np.float32(2.0) ** -exponent)
    dy, x, w = operands
    gradients = convreg.aten.convolution_backward(
        dy, x, w, None, stride, padding, dilation, transposed, extra, groups, [True, True, True],
        conformance="emulation", output_formats=[str(kind), str(parameter), str(parameter)],
        scales=tuple(map(np.asarray, scales)) if scaled else None, threads=threads)
    added = None if bias is None else bias.astype(np.float32)
    common = {"strides": stride, "pads_begin": padding, "pads_end": padding, "dilations": dilation, "groups": groups,
              "data_format": "NCX", "conformance": "emulation", "output_format": str(kind), "threads": threads,
              "scales": (np.asarray(scales[1]), np.asarray(scales[2]), None) if scaled else None}
    if transposed:
        output = convreg.onednn.conv_transpose(x, w, added, weights_format="IOX", output_padding=extra,
                                               **common)
    else:
        output = convreg.onednn.convolution(x, w, added, weights_format="OIX", **common)
    made = Gradients(output, *gradients)
    if linear:
        return made._replace(output=output[0].T.reshape(call.output.shape), input=made.input[0].T.reshape(
            call.input.shape), weight=made.weight[:, :, 0])
    if made.input.shape != call.input.shape:  # the gradient of a padded input; that of padding is torch's
        unpadded = call.input.detach().requires_grad_()
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        nn.functional.pad(unpadded, layer._reversed_padding_repeated_twice, mode=mode).backward(
            tensor_of(made.input))
        made = made._replace(input=array_of(unpadded.grad))
    return made


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor."""
    array = np.ascontiguousarray(array)
    for dtype, (_, name) in ARRAYS.items():
        if array.dtype == convreg.formats()[name].dtype:
            return torch.from_numpy(array.view(np.int16)).view(dtype)
    return torch.from_numpy(array)


