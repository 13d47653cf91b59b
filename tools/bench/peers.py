"""The timed libraries: convreg and others. Each call includes everything that a user pays for.

An entry of `PEERS` takes the number of threads and raises ImportError where its library is missing, `Unsupported` where
it would run on another number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

import convreg
from convreg import OpError
from convreg.files import reason
from convreg.geometry import Axis
from convreg.layers import OPERANDS, RESULT

from .calls import Job, user_call
from .check import DTYPES, EIGHT_BIT, Array, Case, from_layout, narrowed, to_layout, widened
from .peer import Peer, Prepared, Unsupported

T = TypeVar("T")


class Convreg:
    """convreg's oneDNN operators, called as a Python user calls them, with one algorithm forced if it is named."""

    def __init__(self, threads: int | None, algorithm: str | None = None) -> None:
        self.threads, self.algorithm = threads, algorithm
        self.about = (f"convreg {convreg.__version__}, {convreg.capabilities()['isa']}"
                      + ("" if algorithm is None else f", algorithm {algorithm} forced"))

    def prepare(self, case: Case) -> Prepared:
        """Bind the arguments; the call checks them, allocates the result and computes."""
        function, names, settings = user_call(Job(case.problem, case.direction, case.dtype, case.layout, case.result))
        inputs = [to_layout(case.operands[name], name, case.layout) for name in names]
        operator = getattr(convreg.onednn, function)
        call: Callable[[], Any] = partial(operator, *inputs, **settings, threads=self.threads)
        inquiry = partial(convreg.algorithm, operator, *inputs, **settings, threads=self.threads)
        if self.algorithm is not None:
            call, inquiry = partial(_forced, self.algorithm, call), partial(_forced, self.algorithm, inquiry)
        return Prepared(call, lambda array: from_layout(array, RESULT[case.kernel], case.layout),
                        lambda: "+".join(dict.fromkeys(choice.name for choice in inquiry())))


def _forced(algorithm: str, run: Callable[[], T]) -> T:
    """Run a call of convreg with an algorithm, or raise `Unsupported` if that does not fit."""
    with convreg.force_algorithm(algorithm):
        try:
            return run()
        except OpError as error:
            raise Unsupported(str(error)) from None


class Float32:
    """convreg in f32 on the same numbers, for what a narrower format gains."""

    def __init__(self, threads: int) -> None:
        self.own = Convreg(threads)
        self.about = "convreg on the same operands decoded to f32 beforehand, results in f32"

    def prepare(self, case: Case) -> Prepared:
        """As `Convreg.prepare`."""
        if case.dtype == "f32":
            raise Unsupported("f32 itself")
        operands = {name: from_layout(np.ascontiguousarray(widened(to_layout(array, name, case.layout), np.float32)),
                                      name, case.layout) for name, array in case.operands.items()}
        wide = self.own.prepare(replace(case, dtype="f32", operands=operands, result="f32"))
        return Prepared(wide.call, lambda result: narrowed(wide.array(result), case.result))


class Torch:
    """PyTorch: aten.convolution_backward for one gradient, aten.convolution forward."""

    def __init__(self, threads: int) -> None:
        import torch

        self.torch: ModuleType = torch
        torch.set_num_threads(threads)
        self.about = (f"PyTorch {torch.__version__}, aten.convolution_backward for one gradient at a time and "
                      "aten.convolution; channels-last tensors where the layout is nxc")

    def prepare(self, case: Case) -> Prepared:
        """Bind the tensors; padding that PyTorch cannot express is done by constant_pad_nd.

        The input that a weights gradient reads is padded beforehand: training keeps it from the forward pass.
        """
        torch, aten, problem = self.torch, self.torch.ops.aten, case.problem
        if case.dtype in EIGHT_BIT:
            raise Unsupported("has no 8-bit convolution")
        axes, groups = problem.geometry.axes, problem.geometry.groups
        tensors = {name: self._tensor(array, name, case.layout) for name, array in case.operands.items()}
        stride, dilation = [axis.stride for axis in axes], [axis.dilation for axis in axes]
        padding, extra = [axis.begin for axis in axes], [0] * len(axes)
        pads: list[int] = []
        if problem.transposed:
            extra = [axis.begin - axis.end for axis in axes]
            if not all(0 <= more < max(axis.stride, axis.dilation) for more, axis in zip(extra, axes, strict=True)):
                raise Unsupported("padding that is not symmetric")
        elif not all(map(_symmetric, axes)):
            padding = [0] * len(axes)
            for axis in reversed(axes):
                pads += [axis.begin, max(axis.end, 0)]
        shared = (stride, padding, dilation, problem.transposed, extra, groups)

        def unread(name: str) -> Any:  # an operand that only lends its shape
            tensor = torch.empty(getattr(problem.shapes, name), dtype=tensors[OPERANDS[case.kernel][0]].dtype)
            return self._in_layout(tensor, case.layout)

        if case.direction == "forward":
            first, weight = (tensors[name] for name in OPERANDS[case.kernel])

            def call() -> Any:
                return aten.convolution(aten.constant_pad_nd(first, pads) if pads else first, weight, None, *shared)
        else:
            names = ("large", "small") if problem.transposed else ("small", "large")
            gradient, data, weight = (tensors[name] if name in tensors else unread(name) for name in (*names, "taps"))
            padded = aten.constant_pad_nd(data, pads) if pads else data
            mask = [case.direction == "data", case.direction == "weights", False]
            crop = [-number for number in pads] if case.direction == "data" else []

            def call() -> Any:
                made = aten.convolution_backward(gradient, padded, weight, None, *shared, mask)[mask.index(True)]
                return aten.constant_pad_nd(made, crop) if crop else made

        return Prepared(call, lambda tensor: self._array(tensor, case.dtype))

    def _tensor(self, array: Array, name: str, layout: str) -> Any:
        if array.dtype == DTYPES["bf16"]:
            tensor = self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        else:
            tensor = self.torch.from_numpy(array)
        return self._in_layout(tensor, layout) if name == "taps" else tensor

    def _in_layout(self, tensor: Any, layout: str) -> Any:
        """PyTorch's channels-last order puts channels last in weights too; it has none for one spatial axis."""
        if layout == "nxc" and tensor.ndim > 3:
            return tensor.contiguous(memory_format=self.torch.channels_last if tensor.ndim == 4
                                     else self.torch.channels_last_3d)
        return tensor.contiguous()

    def _array(self, tensor: Any, dtype: str) -> Array:
        if dtype == "bf16":
            array: Array = tensor.view(self.torch.int16).numpy().view(DTYPES["bf16"])
            return array
        array = tensor.numpy()
        return array


def _symmetric(axis: Axis) -> bool:
    """Whether the same padding at both ends gives the small side."""
    return 0 <= axis.begin - axis.end < axis.stride


class OnnxRuntime:
    """ONNX Runtime: Conv, ConvTranspose, and a weights gradient as a Conv of the transposed operands."""

    def __init__(self, threads: int) -> None:
        import onnxruntime

        self.runtime: ModuleType = onnxruntime
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads, self.options.inter_op_num_threads = threads, 1
        self.options.log_severity_level = 4
        self.about = (f"ONNX Runtime {onnxruntime.__version__}, one-node models of Conv and ConvTranspose; ungrouped "
                      "weights gradients as a Conv of transposed operands; f32 and ncx only")

    def prepare(self, case: Case) -> Prepared:
        """Build a session; all operands are inputs, since weights change from step to step."""
        if (case.dtype, case.layout) != ("f32", "ncx"):
            raise Unsupported("f32 and ncx only")
        from onnx import TensorProto, helper

        nodes = self._nodes(case)
        value = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
        graph = helper.make_graph(
            nodes, case.problem.name, [value(name, shape=array.shape) for name, array in case.operands.items()],
            [value("result", shape=case.result_shape)])
        model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
        try:
            session = self.runtime.InferenceSession(model.SerializeToString(), self.options, ["CPUExecutionProvider"])
        except Exception as error:  # the runtime's own classes differ between versions
            raise Unsupported(reason(error)) from None
        return Prepared(partial(session.run, None, case.operands), lambda results: results[0])

    def _nodes(self, case: Case) -> list[Any]:
        from onnx import helper

        problem = case.problem
        geometry, names = problem.geometry, list(OPERANDS[case.kernel])
        window = geometry.explicit
        strides, dilations = window["strides"], window["dilations"]
        pads = [*window["pads_begin"], *window["pads_end"]]
        if min(pads) < 0:
            raise Unsupported("negative padding")
        settings: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads, "group": geometry.groups}
        if case.kernel == "forward":
            return [helper.make_node("Conv", names, ["result"], **settings)]
        if case.kernel == "backward_data":
            return [helper.make_node("ConvTranspose", names, ["result"], output_padding=geometry.output_padding,
                                     **settings)]
        if geometry.groups > 1:
            raise Unsupported("a grouped weights gradient has no cheap form in standard operators")
        if any(geometry.output_padding):
            raise Unsupported("the windows do not reach the end of the input")
        swap = [1, 0, *range(2, len(strides) + 2)]
        return [*(helper.make_node("Transpose", [name], [f"{name}_swapped"], perm=swap) for name in names),
                helper.make_node("Conv", ["large_swapped", "small_swapped"], ["swapped"], strides=dilations,
                                 dilations=strides, pads=pads),
                helper.make_node("Transpose", ["swapped"], ["result"], perm=swap)]


THREADS = "INFERENCE_NUM_THREADS"
"""OpenVINO's setting."""


class OpenVino:
    """OpenVINO's CPU plug-in: ConvolutionBackpropData and Convolution, with or without groups."""

    def __init__(self, threads: int) -> None:
        import openvino

        self.openvino: ModuleType = openvino
        self.core = openvino.Core()
        self.settings = {THREADS: threads, "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1,
                         "PERFORMANCE_HINT": "LATENCY"}
        self.about = (f"OpenVINO {openvino.__version__}, ConvolutionBackpropData and Convolution in one-layer models "
                      "with weights as an input; f32 and ncx only")

    def prepare(self, case: Case) -> Prepared:
        """Compile a model; the operands are inputs, the result is copied out of the plug-in's memory."""
        if (case.dtype, case.layout) != ("f32", "ncx"):
            raise Unsupported("f32 and ncx only")
        if case.kernel == "backward_weights":
            raise Unsupported("has no weights gradient")
        problem, operators = case.problem, self.openvino.opset13
        geometry, groups = problem.geometry, problem.geometry.groups
        data_name, _ = OPERANDS[case.kernel]
        data, taps = case.operands[data_name], case.operands["taps"]
        if groups > 1:
            taps = taps.reshape(groups, -1, *taps.shape[1:])
        inputs = [operators.parameter(array.shape, np.float32) for array in (data, taps)]
        if case.kernel == "forward":
            make = operators.group_convolution if groups > 1 else operators.convolution
            node = make(*inputs, **geometry.explicit)
        else:
            make = operators.group_convolution_backprop_data if groups > 1 else operators.convolution_backprop_data
            node = make(*inputs, **geometry.explicit, output_padding=geometry.output_padding)
        try:
            compiled = self.core.compile_model(
                self.openvino.Model([node], inputs, case.problem.name), "CPU", self.settings)
        except RuntimeError as error:
            raise Unsupported(reason(error)[:200]) from None
        started, wanted = compiled.get_property(THREADS), self.settings[THREADS]
        if started != wanted:  # it starts no more than there are processors
            raise Unsupported(f"runs on {started} threads, not {wanted}")
        request = compiled.create_infer_request()

        def call() -> Array:
            outputs = request.infer([data, taps], share_inputs=True)
            result: Array = outputs[0]
            return result

        return Prepared(call, lambda array: array)


def _onednn(threads: int) -> Peer:
    from .onednn import OneDnn

    return OneDnn(threads)


PEERS: dict[str, Callable[[int], Peer]] = {
    "torch": Torch, "onnxruntime": OnnxRuntime, "openvino": OpenVino, "onednn": _onednn, "f32": Float32,
}
LIBRARIES = tuple(name for name in PEERS if name != "f32")
"""Those that are not convreg itself."""


def open_peers(names: Sequence[str], threads: int) -> tuple[dict[str, Peer], dict[str, str]]:
    """Return convreg and the named peers that can run, and for each of the others why it cannot."""
    found: dict[str, Peer] = {}
    absent: dict[str, str] = {}
    for name in sorted(names, key=lambda name: name != "onednn"):  # it fails beside an older TBB, such as OpenVINO's
        try:
            found[name] = PEERS[name](threads)
        except (ImportError, Unsupported) as error:
            absent[name] = reason(error)
    return {"convreg": Convreg(threads), **{name: found[name] for name in names if name in found}}, absent
