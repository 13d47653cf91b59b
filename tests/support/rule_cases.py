"""One or more cases per rule of gradients: a node, its operands, and what PyTorch computes, where it has the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, helper


@dataclass
class Case:
    """A node under a loss.

    `ignored` is an output beside those of the loss. Where the forward pass computes in float32 only, `step` is large.
    `feeds` are arrays by name, those in `wrt` are differentiated; `constants` become initializers. `torch` takes the
    module torch and tensors by name and returns the outputs.
    """

    name: str
    op_type: str
    inputs: list[str]
    feeds: dict[str, np.ndarray]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=lambda: ["y"])
    torch: Callable[..., Any] | None = None
    wrt: list[str] | None = None
    opset: int = 20
    tolerance: float = 1e-6
    torch_tolerance: float = 1e-12
    domain: str = ""
    step: float = 1e-6
    ignored: str = ""

    @property
    def nodes(self) -> list[NodeProto]:
        """The node."""
        made = [*self.outputs, *self.ignored.split()]
        return [helper.make_node(self.op_type, self.inputs, made, domain=self.domain, **self.attributes)]

    @property
    def asked(self) -> list[str]:
        """The names that are differentiated: all floating-point feeds by default."""
        return self.wrt or [name for name, array in self.feeds.items() if array.dtype == np.float64]

    def __str__(self) -> str:
        """The name of the test."""
        return self.name


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).normal(size=shape)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.abs(normal(*shape, seed=seed)) + 0.3


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CASES: list[Case] = []


def case(op_type: str, suffix: str = "", /, *, inputs: str = "x", torch: Callable[..., Any] | None = None,
         arrays: dict[str, np.ndarray] | None = None, constants: dict[str, np.ndarray] | None = None,
         outputs: list[str] | None = None, wrt: list[str] | None = None, opset: int = 20, tolerance: float = 1e-6,
         torch_tolerance: float = 1e-12, domain: str = "", step: float = 1e-6,
         ignored: str = "", **attributes: Any) -> None:
    """Add a case; the only operand is by default a random x of shape (2, 3, 4)."""
    names = [name if name != "-" else "" for name in inputs.split()]
    CASES.append(Case(f"{op_type}-{suffix}" if suffix else op_type, op_type, names,
                      {"x": normal(2, 3, 4)} if arrays is None else arrays, attributes, constants or {},
                      outputs or ["y"], torch, wrt, opset, tolerance, torch_tolerance, domain, step,
                      ignored))


PAIR = {"a": normal(2, 3, 4), "b": positive(2, 3, 4, seed=1)}
STRETCHED = {"a": normal(3, 1, seed=2), "b": positive(2, 1, 4, seed=3)}
for _op, _torch in (("Add", lambda torch, a, b: a + b), ("Sub", lambda torch, a, b: a - b),
                    ("Mul", lambda torch, a, b: a * b), ("Div", lambda torch, a, b: a / b),
                    ("Max", lambda torch, a, b: torch.maximum(a, b)), ("Min", lambda torch, a, b: torch.minimum(a, b))):
    case(_op, inputs="a b", arrays=PAIR, torch=_torch)
    case(_op, "broadcast", inputs="a b", arrays=STRETCHED, torch=_torch)
case("Mul", "square", inputs="x x", torch=lambda torch, x: x * x)
case("Sum", inputs="a b c", arrays={**STRETCHED, "c": normal(4)}, torch=lambda torch, a, b, c: a + b + c)
case("Mean", inputs="a b", arrays=PAIR, torch=lambda torch, a, b: (a + b) / 2)
case("Max", "three", inputs="a b c", arrays={**PAIR, "c": normal(2, 3, 4, seed=7)},
     torch=lambda torch, a, b, c: torch.maximum(torch.maximum(a, b), c))
case("Pow", inputs="a b", arrays={"a": positive(2, 3, 4), "b": normal(3, 1)}, torch=lambda torch, a, b: a ** b)
for _power in (2.0, 3.0, 0.5):
    case("Pow", f"constant-{_power}", inputs="x p", arrays={"x": positive(2, 3)},
         constants={"p": np.array(_power)}, torch=lambda torch, x, p=_power: x ** p)
case("Neg", torch=lambda torch, x: -x)
case("Abs", torch=lambda torch, x: x.abs())
case("Exp", torch=lambda torch, x: x.exp())
case("Log", arrays={"x": positive(2, 3)}, torch=lambda torch, x: x.log())
case("Sqrt", arrays={"x": positive(2, 3)}, torch=lambda torch, x: x.sqrt())
case("Reciprocal", arrays={"x": positive(2, 3)}, torch=lambda torch, x: 1 / x)
case("Sin", torch=lambda torch, x: x.sin())
case("Cos", torch=lambda torch, x: x.cos())
case("Tan", torch=lambda torch, x: x.tan(), arrays={"x": normal(2, 3) / 3})
for _op in ("Asin", "Acos", "Atanh"):
    case(_op, torch=lambda torch, x, name=_op: getattr(x, name.lower())(), arrays={"x": np.tanh(normal(2, 3))})
for _op in ("Atan", "Sinh", "Cosh", "Asinh"):
    case(_op, torch=lambda torch, x, name=_op: getattr(x, name.lower())())
case("Acosh", torch=lambda torch, x: x.acosh(), arrays={"x": 1 + positive(2, 3)})
FLOAT32 = {"tolerance": 1e-4, "step": 1e-2}
case("Erf", **FLOAT32, torch=lambda torch, x: x.erf())
case("Where", inputs="c a b", arrays={"c": normal(2, 3, 4) > 0, **STRETCHED},
     torch=lambda torch, c, a, b: torch.where(c, a, b))

case("Relu", torch=lambda torch, x: x.relu())
case("LeakyRelu", alpha=0.25, torch=lambda torch, x: torch.nn.functional.leaky_relu(x, 0.25))
case("PRelu", inputs="x s", arrays={"x": normal(2, 3, 4), "s": positive(3, 1)},
     torch=lambda torch, x, s: torch.nn.functional.prelu(x, s.reshape(-1)))
case("Elu", alpha=1.5, torch=lambda torch, x: torch.nn.functional.elu(x, 1.5))
case("Clip", inputs="x low high", constants={"low": np.array(-0.5), "high": np.array(0.7)},
     torch=lambda torch, x: torch.nn.functional.hardtanh(x, -0.5, 0.7))
case("Clip", "high", inputs="x - high", constants={"high": np.array(0.7)}, torch=lambda torch, x: x.clamp(max=0.7))
case("Sigmoid", torch=lambda torch, x: x.sigmoid())
case("Tanh", torch=lambda torch, x: x.tanh())
case("Softplus", torch=lambda torch, x: torch.nn.functional.softplus(x))
case("Softsign", torch=lambda torch, x: torch.nn.functional.softsign(x))
case("HardSigmoid", alpha=0.25, arrays={"x": 3 * normal(2, 3, 4)},
     torch=lambda torch, x: (x * 0.25 + 0.5).clamp(0, 1))
case("HardSwish", arrays={"x": 3 * normal(2, 3, 4)}, torch=lambda torch, x: torch.nn.functional.hardswish(x),
     tolerance=1e-5, torch_tolerance=1e-6)
case("Gelu", torch=lambda torch, x: torch.nn.functional.gelu(x), **FLOAT32, torch_tolerance=1e-6)
case("ThresholdedRelu", alpha=0.5, torch=lambda torch, x: torch.nn.functional.threshold(x, 0.5, 0.0))
case("Selu", torch_tolerance=1e-6, torch=lambda torch, x: torch.nn.functional.selu(x))
case("Mish", torch=lambda torch, x: torch.nn.functional.mish(x))
case("Gelu", "tanh", approximate="tanh", torch=lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"))
for _axis in (-1, 1):
    case("Softmax", f"axis{_axis}", axis=_axis, torch=lambda torch, x, axis=_axis: x.softmax(axis))
    case("LogSoftmax", f"axis{_axis}", axis=_axis, torch=lambda torch, x, axis=_axis: x.log_softmax(axis))

case("Identity", torch=lambda torch, x: x * 1)
case("Reshape", inputs="x shape", constants={"shape": integers(0, -1)}, torch=lambda torch, x: x.reshape(2, -1))
case("Flatten", axis=2, torch=lambda torch, x: x.reshape(6, 4))
case("Squeeze", inputs="x axes", arrays={"x": normal(2, 1, 4)}, constants={"axes": integers(1)},
     torch=lambda torch, x: x[:, 0])
case("Unsqueeze", inputs="x axes", constants={"axes": integers(0, -1)}, torch=lambda torch, x: x[None, ..., None])
case("Transpose", perm=[2, 0, 1], torch=lambda torch, x: x.permute(2, 0, 1))
case("Transpose", "reversed", torch=lambda torch, x: x.permute(2, 1, 0))
case("Expand", inputs="x shape", arrays={"x": normal(3, 1)}, constants={"shape": integers(2, 3, 4)},
     torch=lambda torch, x: x.expand(2, 3, 4))
case("Cast", to=11, torch=lambda torch, x: x * 1)
case("CastLike", inputs="x like", constants={"like": np.zeros(1)}, torch=lambda torch, x: x * 1)
case("Concat", inputs="a b c", axis=-2, arrays={"a": normal(2, 1, 4), "b": normal(2, 3, 4), "c": normal(2, 2, 4)},
     torch=lambda torch, a, b, c: torch.cat([a, b, c], 1))
case("Concat", "part", inputs="a b", axis=0, arrays={"a": normal(2, 3), "b": normal(1, 3)}, wrt=["b"],
     torch=lambda torch, a, b: torch.cat([a, b], 0))
case("Split", inputs="x sizes", axis=1, constants={"sizes": integers(1, 2)}, outputs=["y", "z"],
     torch=lambda torch, x: torch.split(x, [1, 2], 1))
case("Split", "unused", axis=1, num_outputs=2, arrays={"x": normal(2, 4)}, ignored="rest",
     torch=lambda torch, x: x[:, :2])

for _op, _reduce in (("ReduceSum", "sum"), ("ReduceMean", "mean"), ("ReduceMax", "amax"), ("ReduceMin", "amin")):
    for _keep in (0, 1):
        case(_op, f"keep{_keep}", inputs="x axes", keepdims=_keep, constants={"axes": integers(-1, 0)},
             torch=lambda torch, x, name=_reduce, keep=_keep: getattr(x, name)((0, 2), keepdim=bool(keep)))
    case(_op, "all", keepdims=0, torch=lambda torch, x, name=_reduce: getattr(x, name)((0, 1, 2)))
case("ReduceSum", "none", noop_with_empty_axes=1, torch=lambda torch, x: x * 1)
case("ReduceL1", inputs="x axes", constants={"axes": integers(1)}, torch=lambda torch, x: x.abs().sum(1, keepdim=True))
case("ReduceL2", inputs="x axes", keepdims=0, constants={"axes": integers(1)}, torch=lambda torch, x: x.norm(dim=1))
case("ReduceSumSquare", inputs="x axes", constants={"axes": integers(1)},
     torch=lambda torch, x: (x * x).sum(1, keepdim=True))
case("ReduceLogSumExp", inputs="x axes", keepdims=0, constants={"axes": integers(1)},
     torch=lambda torch, x: x.logsumexp(1))
case("ReduceLogSum", inputs="x axes", keepdims=0, arrays={"x": positive(2, 3, 4)}, constants={"axes": integers(1)},
     torch=lambda torch, x: x.sum(1).log())
case("ReduceLogSum", "none", noop_with_empty_axes=1, arrays={"x": positive(2, 3)}, torch=lambda torch, x: x.log())
ZEROS = {"x": normal(4, 3, 2) * np.array([[[1], [1], [1]], [[0], [1], [1]], [[0], [1], [0]], [[0], [0], [0]]])}
for _keep in (0, 1):
    case("ReduceProd", f"keep{_keep}", inputs="x axes", keepdims=_keep, arrays=ZEROS, constants={"axes": integers(1)},
         torch=lambda torch, x, keep=_keep: x.prod(1, keepdim=bool(keep)))
case("ReduceProd", "all", keepdims=0, torch=lambda torch, x: x.prod())
case("ReduceProd", "none", noop_with_empty_axes=1, torch=lambda torch, x: x * 1)
for _equation, _shapes in (
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("ij,jk", [(3, 4), (4, 5)]), ("b...i, ij -> b...j", [(2, 3, 4), (4, 5)]),
    ("bi,bi,bj->bj", [(2, 3), (2, 3), (2, 4)]), ("bij->jb", [(2, 3, 4)]), ("i,j->", [(3,), (4,)]),
    ("b...,b...->...", [(2, 3, 4), (2, 3, 4)]), ("ij,k->ik", [(3, 4), (2,)]),
):
    _operands = {name: normal(*shape, seed=ord(name)) for name, shape in zip("abc", _shapes, strict=False)}
    case("Einsum", _equation, inputs=" ".join(_operands), equation=_equation, torch_tolerance=1e-11, arrays=_operands,
         torch=lambda torch, equation=_equation, **tensors: torch.einsum(equation, *tensors.values()))
case("CumSum", inputs="x axis", constants={"axis": np.array(1)}, torch=lambda torch, x: x.cumsum(1))
case("CumSum", "back", inputs="x axis", exclusive=1, reverse=1, constants={"axis": np.array(1)},
     torch=lambda torch, x: x.flip(1).cumsum(1).flip(1) - x)
IMAGE = {"x": normal(2, 3, 5, 6)}
case("GlobalAveragePool", arrays=IMAGE, torch=lambda torch, x: x.mean((2, 3), keepdim=True))
case("GlobalMaxPool", arrays=IMAGE, torch=lambda torch, x: x.amax((2, 3), keepdim=True))

for _left in (0, 1):
    for _right in (0, 1):
        case("Gemm", f"{_left}{_right}", inputs="a b c", transA=_left, transB=_right, alpha=0.5, beta=2.0,
             arrays={"a": normal(*((4, 3) if _left else (3, 4))), "b": normal(*((5, 4) if _right else (4, 5))),
                     "c": normal(3, 1)},
             torch=lambda torch, a, b, c, left=_left, right=_right:
                 0.5 * (a.T if left else a) @ (b.T if right else b) + 2 * c)
case("Gemm", "no-c", inputs="a b", arrays={"a": normal(3, 4), "b": normal(4, 5)}, torch=lambda torch, a, b: a @ b)
for _shapes in (((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)),
                ((3, 4), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)), ((6, 1, 3, 4), (2, 4, 5)), ((2, 3, 4), (4,)),
                ((4,), (2, 4, 5)), ((1, 3, 4), (2, 4, 5))):
    case("MatMul", "x".join(str(shape).replace(" ", "") for shape in _shapes), inputs="a b",
         arrays={"a": normal(*_shapes[0]), "b": normal(*_shapes[1], seed=1)}, torch=lambda torch, a, b: a @ b)

LABELS = np.array([[0, 2], [1, 1], [2, 0], [9, 2]], np.int64)
LOGITS = {"x": normal(4, 3, 2), "t": LABELS}
PLAIN_LOGITS = {"x": normal(4, 3), "t": np.array([0, 2, 1, 1], np.int64)}
CLASS_WEIGHTS = {"w": np.array([0.5, 2.0, 1.0])}
for _mode in ("none", "sum", "mean"):
    for _op, _loss in (("SoftmaxCrossEntropyLoss", "cross_entropy"), ("NegativeLogLikelihoodLoss", "nll_loss")):
        case(_op, _mode, inputs="x t", reduction=_mode, arrays=PLAIN_LOGITS,
             torch=lambda torch, x, t, loss=_loss, mode=_mode:
                 getattr(torch.nn.functional, loss)(x, t, reduction=mode))
        case(_op, f"{_mode}-weights-ignored", inputs="x t w", reduction=_mode, ignore_index=9, arrays=LOGITS,
             constants=CLASS_WEIGHTS,
             torch=lambda torch, x, t, loss=_loss, mode=_mode: getattr(torch.nn.functional, loss)(
                 x, t, torch.tensor([0.5, 2.0, 1.0], dtype=x.dtype), ignore_index=9, reduction=mode))
case("SoftmaxCrossEntropyLoss", "two-outputs", inputs="x t", outputs=["y", "z"], arrays=PLAIN_LOGITS,
     torch=lambda torch, x, t: (torch.nn.functional.cross_entropy(x, t), x.log_softmax(1)))

for _ceil in (0, 1):
    case("MaxPool", f"ceil{_ceil}", arrays=IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
         ceil_mode=_ceil, torch=lambda torch, x, ceil=_ceil: torch.nn.functional.max_pool2d(x, 3, 2, 1, 1, bool(ceil)))
    for _include in (0, 1):
        case("AveragePool", f"ceil{_ceil}-include{_include}", arrays=IMAGE, kernel_shape=[3, 2], strides=[2, 2],
             pads=[1, 1, 1, 1], ceil_mode=_ceil, count_include_pad=_include,
             torch=lambda torch, x, ceil=_ceil, include=_include: torch.nn.functional.avg_pool2d(
                 x, (3, 2), 2, 1, bool(ceil), bool(include)))
case("MaxPool", "1d", arrays={"x": normal(2, 3, 9)}, kernel_shape=[3], dilations=[2],
     torch=lambda torch, x: torch.nn.functional.max_pool1d(x, 3, 1, 0, 2))
case("AveragePool", "3d", arrays={"x": normal(1, 2, 4, 5, 4)}, kernel_shape=[2, 2, 2], strides=[2, 1, 2],
     torch=lambda torch, x: torch.nn.functional.avg_pool3d(x, 2, (2, 1, 2)))
case("AveragePool", "same", arrays=IMAGE, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")

UP = {"scales": np.array([1, 1, 2, 2], np.float32)}
case("Resize", "nearest", inputs="x - scales", arrays=IMAGE, constants=UP, mode="nearest",
     coordinate_transformation_mode="asymmetric", nearest_mode="floor",
     torch=lambda torch, x: torch.nn.functional.interpolate(x, scale_factor=2.0))
case("Resize", "linear", inputs="x - scales", arrays=IMAGE, constants=UP, mode="linear", tolerance=1e-5,
     coordinate_transformation_mode="pytorch_half_pixel", torch_tolerance=1e-6,
     torch=lambda torch, x: torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear"))
case("Resize", "corners", inputs="x - - sizes", arrays=IMAGE, constants={"sizes": integers(2, 3, 7, 4)}, mode="linear",
     coordinate_transformation_mode="align_corners", tolerance=1e-5, torch_tolerance=1e-6,
     torch=lambda torch, x: torch.nn.functional.interpolate(x, (7, 4), mode="bilinear", align_corners=True))
case("Resize", "cubic", inputs="x - scales", arrays=IMAGE, constants=UP, mode="cubic", cubic_coeff_a=-0.75,
     coordinate_transformation_mode="half_pixel", tolerance=1e-5, torch_tolerance=1e-5,
     torch=lambda torch, x: torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bicubic"))
case("Resize", "down", inputs="x - - sizes", arrays=IMAGE, constants={"sizes": integers(3, 2)}, mode="nearest",
     axes=[2, 3], tolerance=1e-5)
case("Resize", "3d", inputs="x - scales", arrays={"x": normal(1, 2, 3, 2, 2)}, tolerance=1e-5,
     constants={"scales": np.array([1, 1, 2, 1.5, 2], np.float32)}, mode="linear")
for _mode, _name in (("linear", "bilinear"), ("cubic", "bicubic")):
    case("Resize", f"antialias-{_mode}", inputs="x - - sizes", arrays={"x": normal(1, 2, 9, 8)}, tolerance=1e-5,
         constants={"sizes": integers(1, 2, 4, 6)}, mode=_mode, antialias=1, exclude_outside=1, cubic_coeff_a=-0.5,
         torch_tolerance=1e-6,
         torch=lambda torch, x, mode=_name: torch.nn.functional.interpolate(x, (4, 6), mode=mode, antialias=True))
case("Pad", inputs="x pads", arrays=IMAGE, constants={"pads": integers(0, 0, 1, 2, 0, 0, 0, 1)},
     torch=lambda torch, x: torch.nn.functional.pad(x, (2, 1, 1, 0)))
case("Pad", "axes", inputs="x pads - axes", arrays=IMAGE, constants={"pads": integers(1, 2), "axes": integers(-1)},
     torch=lambda torch, x: torch.nn.functional.pad(x, (1, 2)))
for _mode, _name in (("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular")):
    case("Pad", _mode, inputs="x pads", arrays=IMAGE, constants={"pads": integers(0, 0, 2, 1, 0, 0, 1, 3)}, mode=_mode,
         torch=lambda torch, x, mode=_name: torch.nn.functional.pad(x, (1, 3, 2, 1), mode=mode))

case("Slice", inputs="x s e", constants={"s": integers(0, 1), "e": integers(2, 3)}, torch=lambda torch, x: x[0:2, 1:3])
case("Slice", "steps", inputs="x s e a b", arrays={"x": normal(2, 7, 5)},
     constants={"s": integers(-1, 1), "e": integers(-100, 100), "a": integers(1, -1), "b": integers(-2, 3)},
     torch=lambda torch, x: x.flip(1)[:, ::2, 1::3])
case("Gather", inputs="x i", axis=1, constants={"i": integers(2, -3, 2)}, torch=lambda torch, x: x[:, [2, 0, 2]])
case("Gather", "scalar", inputs="x i", axis=-1, constants={"i": np.array(1)}, torch=lambda torch, x: x[..., 1])
case("Gather", "matrix", inputs="x i", arrays={"x": normal(5, 3)}, constants={"i": np.array([[0, 4, 0], [1, -1, 2]])},
     torch=lambda torch, x: x[torch.tensor([[0, 4, 0], [1, 4, 2]])])
case("GatherElements", inputs="x i", axis=1, arrays={"x": normal(2, 3)}, constants={"i": np.array([[0, 0], [2, -1]])},
     torch=lambda torch, x: x.gather(1, torch.tensor([[0, 0], [2, 2]])))
case("GatherND", inputs="x i", constants={"i": np.array([[0, 1], [1, 2], [0, 1]])},
     torch=lambda torch, x: x[[0, 1, 0], [1, 2, 1]])
SOME = {"x": normal(3, 4), "u": normal(2, 3, seed=1)}
case("GatherElements", "fewer", inputs="x i", axis=0, arrays={"x": normal(4, 3)},
     constants={"i": np.array([[0, 3], [0, 1]])},
     torch=lambda torch, x: x.gather(0, torch.tensor([[0, 3], [0, 1]])))
case("ScatterElements", inputs="x i u", axis=1, arrays=SOME, constants={"i": np.array([[0, -1, 1], [1, 0, 2]])},
     torch=lambda torch, x, u: x.scatter(1, torch.tensor([[0, 3, 1], [1, 0, 2]]), u))
case("ScatterElements", "add", inputs="x i u", reduction="add", arrays=SOME,
     constants={"i": np.array([[0, 2, 1], [0, 0, 2]])},
     torch=lambda torch, x, u: x.scatter_add(0, torch.tensor([[0, 2, 1], [0, 0, 2]]), u))
case("ScatterND", inputs="x i u", arrays={"x": normal(4, 3), "u": normal(2, 3, seed=1)},
     constants={"i": np.array([[3], [1]])},
     torch=lambda torch, x, u: x.index_put((torch.tensor([3, 1]),), u))
case("ScatterND", "add", inputs="x i u", reduction="add", arrays={"x": normal(4, 3), "u": normal(3, seed=1)},
     constants={"i": np.array([[3, 0], [1, 2], [3, 0]])},
     torch=lambda torch, x, u: x.index_put((torch.tensor([3, 1, 3]), torch.tensor([0, 2, 0])), u, accumulate=True))
case("ReverseSequence", inputs="x n", batch_axis=0, time_axis=1, constants={"n": integers(2, 3)},
     torch=lambda torch, x: torch.stack([x[0, [1, 0, 2]], x[1, [2, 1, 0]]]))
case("TopK", inputs="x k", arrays={"x": normal(3, 5)}, constants={"k": integers(2)}, ignored="places",
     torch=lambda torch, x: x.topk(2).values)
case("Tile", inputs="x r", constants={"r": integers(2, 1, 3)}, torch=lambda torch, x: x.repeat(2, 1, 3))
case("Trilu", inputs="x k", constants={"k": np.array(1)}, upper=0, torch=lambda torch, x: x.tril(1))
case("DepthToSpace", arrays={"x": normal(2, 8, 2, 3)}, blocksize=2)
case("DepthToSpace", "CRD", arrays={"x": normal(2, 8, 2, 3)}, blocksize=2, mode="CRD",
     torch=lambda torch, x: torch.nn.functional.pixel_shuffle(x, 2))
case("SpaceToDepth", arrays={"x": normal(2, 2, 4, 6)}, blocksize=2)

CHANNELS = {"s": positive(3), "b": normal(3, seed=5)}
RUNNING = {"mean": normal(3, seed=6), "variance": positive(3, seed=7)}
for _shape in ((4, 3), (2, 3, 5), (2, 3, 4, 5)):
    case("BatchNormalization", f"train-{len(_shape)}d", inputs="x s b mean variance", training_mode=1, epsilon=1e-3,
         arrays={"x": normal(*_shape), **CHANNELS}, constants=RUNNING, tolerance=1e-5, torch_tolerance=1e-7,
         torch=lambda torch, x, s, b: torch.nn.functional.batch_norm(x, None, None, s, b, True, eps=1e-3))
case("BatchNormalization", "frozen", inputs="x s b mean variance", arrays={**IMAGE, **CHANNELS}, constants=RUNNING,
     torch_tolerance=1e-7,
     torch=lambda torch, x, s, b: torch.nn.functional.batch_norm(
         x, torch.tensor(RUNNING["mean"]), torch.tensor(RUNNING["variance"]), s, b))
case("InstanceNormalization", inputs="x s b", arrays={**IMAGE, **CHANNELS}, torch_tolerance=1e-7, tolerance=1e-5,
     torch=lambda torch, x, s, b: torch.nn.functional.instance_norm(x, None, None, s, b))
GROUPS = {"x": normal(2, 6, 3, 2), "s": positive(6), "b": normal(6, seed=5)}
case("GroupNormalization", inputs="x s b", num_groups=2, opset=21, arrays=GROUPS, torch_tolerance=1e-12,
     **FLOAT32, torch=lambda torch, x, s, b: torch.nn.functional.group_norm(x, 2, s, b))
case("LayerNormalization", inputs="x s b", arrays={"x": normal(2, 3, 4), "s": positive(4), "b": normal(4, seed=5)},
     torch_tolerance=1e-7, tolerance=1e-5, torch=lambda torch, x, s, b: torch.nn.functional.layer_norm(x, (4,), s, b))
case("LayerNormalization", "two-axes", inputs="x s b", axis=1, torch_tolerance=1e-7, tolerance=1e-5,
     arrays={"x": normal(2, 3, 4), "s": positive(3, 4), "b": normal(3, 4, seed=5)},
     torch=lambda torch, x, s, b: torch.nn.functional.layer_norm(x, (3, 4), s, b))
case("LpNormalization", axis=1, torch=lambda torch, x: torch.nn.functional.normalize(x, dim=1))
case("LpNormalization", "magnitudes", axis=1, p=1, torch=lambda torch, x: torch.nn.functional.normalize(x, 1, 1))
case("LRN", size=3, alpha=0.7, beta=0.6, bias=1.5, arrays=IMAGE, torch_tolerance=1e-7,
     torch=lambda torch, x: torch.nn.functional.local_response_norm(x, 3, 0.7, 0.6, 1.5))
case("LRN", "even", size=4, alpha=0.7, arrays={"x": normal(2, 5, 3)})
case("LRN", "wide", size=7, alpha=0.7, arrays={"x": normal(2, 3, 2)}, torch_tolerance=1e-7,
     torch=lambda torch, x: torch.nn.functional.local_response_norm(x, 7, 0.7))
case("Dropout", inputs="x ratio training", constants={"ratio": np.array(0.3), "training": np.array(False)},
     torch=lambda torch, x: x * 1)

for _name, _arrays, _attributes, _torch in (
    ("plain", {"x": normal(2, 3, 7, 6), "w": normal(4, 3, 3, 2), "b": normal(4)},
     {"strides": [2, 1], "pads": [1, 0, 1, 0], "dilations": [1, 2]},
     lambda torch, x, w, b: torch.nn.functional.conv2d(x, w, b, (2, 1), (1, 0), (1, 2))),
    ("unequal", {"x": normal(2, 2, 7), "w": normal(4, 1, 3), "b": normal(4)}, {"group": 2, "pads": [2, 1]},
     lambda torch, x, w, b: torch.nn.functional.conv1d(torch.nn.functional.pad(x, (2, 1)), w, b, groups=2)),
    ("same", {"x": normal(2, 3, 7, 6), "w": normal(4, 3, 2, 3), "b": normal(4)},
     {"strides": [2, 2], "auto_pad": "SAME_LOWER"}, None),
    ("depthwise-3d", {"x": normal(1, 2, 4, 3, 5), "w": normal(2, 1, 2, 2, 2), "b": normal(2)}, {"group": 2},
     lambda torch, x, w, b: torch.nn.functional.conv3d(x, w, b, groups=2)),
):
    case("Conv", _name, inputs="x w b", arrays=_arrays, torch=_torch, torch_tolerance=1e-11, **_attributes)
for _name, _arrays, _attributes, _torch in (
    ("plain", {"x": normal(2, 4, 4, 3), "w": normal(4, 3, 3, 3), "b": normal(3)},
     {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 0]},
     lambda torch, x, w, b: torch.nn.functional.conv_transpose2d(x, w, b, 2, 1, (1, 0))),
    ("cut", {"x": normal(2, 4, 5), "w": normal(4, 2, 3), "b": normal(4)},
     {"strides": [2], "pads": [0, 2], "group": 2},
     lambda torch, x, w, b: torch.nn.functional.conv_transpose1d(x, w, b, 2, groups=2)[..., :-2]),
    ("stated", {"x": normal(1, 2, 4, 3), "w": normal(2, 3, 2, 3), "b": normal(3)},
     {"strides": [2, 2], "output_shape": [9, 7]}, None),
):
    case("ConvTranspose", _name, inputs="x w b", arrays=_arrays, torch=_torch, torch_tolerance=1e-11, **_attributes)

