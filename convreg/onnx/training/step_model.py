"""A training step as one model: forward pass, loss, gradients and the optimizer's update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from ...errors import GraphError, near_misses, shorten
from ...guard import guarded
from ..graph import Scope, dtype_of, scope_of
from ..model.checks import check, types_of
from ..model.files import Source, opened_flat
from ..rewrite.builder import Names
from ..rewrite.translate import translated
from .batch_norm import Mode, running_statistics
from .forward import keep_forward
from .inference import typed
from .initial import put_apart
from .losses import Loss, Made, add_loss, check_loss
from .optimizers import LEARNING_RATE, Moment, Optimizer, flag, number, optimizer_of
from .prepare import prepared
from .record import NEXT, StepRecord
from .reverse_pass import add_gradients, dependent
from .rounding import check_format
from .tidy import tidy
from .value import Value, Writer

Dialect = Literal["aten", "onednn", "ascend", "onnx"]
DIALECTS = get_args(Dialect)
TRAINED = (np.dtype(np.float32), np.dtype(np.float64))
"""Element types of parameters: narrower ones would lose small updates. `format` narrows operands instead."""

WEIGHTS_APART_IR = 4
"""The version of the format from which on initializers need not be inputs."""

SMALLEST_NORM = 1e-6
"""What torch.nn.utils.clip_grad_norm_ adds to a norm before it divides by it."""

RANDOM = {"Bernoulli", "Dropout", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


@guarded("convreg::onnx::training_step")
def training_step(
    model: Source, *, loss: Loss | None = "softmax_cross_entropy",
    optimizer: Literal["sgd", "momentum", "adam", "adamw"] = "sgd", wrt: Sequence[str] | None = None,
    dialect: Dialect = "aten", format: str | None = None, loss_scale: float | None = None,
    output: str | None = None, batch_norm: Mode = "as_exported", forward_format: str | None = None,
    learning_rate: float = LEARNING_RATE, momentum: float | None = None,
    nesterov: bool | None = None, betas: tuple[float, float] | None = None, eps: float | None = None,
    weight_decay: float | None = None, clip_norm: float | None = None, seed: int | None = None,
    defaults: bool = True,
) -> ModelProto:
    """Return one step of training of a forward model as a model.

    Parameters
    ----------
    model : onnx.ModelProto or path
        A forward model with its weights as initializers, of any exporter, without If, Loop or Scan between the weights
        and the output.
    loss : {"softmax_cross_entropy", "mse"} or None
        The loss. "softmax_cross_entropy" is the mean over all labels of the cross-entropy of the softmax along axis 1;
        the target is int64 and lacks that axis. "mse" is the mean over all elements of the squared difference; the
        target has the output's type and shape. None means that the output is the loss itself and has one element.
    optimizer : {"sgd", "momentum", "adam", "adamw"}
        The rule of the update, as torch.optim defines it: SGD, SGD with momentum, Adam or AdamW.
    wrt : sequence of str, optional
        Initializers to train. The default is all initializers that are float32 or float64, have an axis and reach the
        loss, except running statistics.
    dialect : {"aten", "onednn", "ascend", "onnx"}
        The operators that compute the gradients of convolutions; "onnx" means standard ONNX.
    format : str, optional
        Number format to which the operands of the gradients of Conv, ConvTranspose, Gemm and MatMul are rounded, such
        as ``"hifloat8"``. Parameters, states and updates stay as they are.
    loss_scale : float, optional
        The default of an input ``loss_scale``. The step multiplies the loss by it before the gradients are computed,
        and divides the gradients by it afterwards. A power of two changes no bit of numbers that neither overflow nor
        underflow. Without it, the step has no such input.
    output : str, optional
        The output of the model that the loss reads. The default is the first output.
    batch_norm : {"as_exported", "train", "frozen"}
        "train" normalises by the statistics of the batch and updates the running statistics. "frozen" normalises by the
        running statistics and does not update them. "as_exported" keeps the mode of each node. The running variance is
        updated as ONNX defines it, by the biased variance of the batch.
    forward_format : str, optional
        Number format to which the operands of Conv, ConvTranspose, Gemm and MatMul are rounded in the forward pass.
        None rounds nothing there.
    learning_rate : float
        The default of the input ``learning_rate``.
    momentum : float, optional
        Factor of the velocity in "momentum". The default is 0.9.
    nesterov : bool, optional
        Whether "momentum" adds the next velocity to the gradient, as Nesterov's method does. The default is False.
    betas : pair of float, optional
        Factors of the two running means in "adam" and "adamw". The default is (0.9, 0.999).
    eps : float, optional
        Term of the denominator in "adam" and "adamw". The default is 1e-8.
    weight_decay : float, optional
        Factor of the weight decay. The default is 0.01 for "adamw" and 0 for the others.
    clip_norm : float, optional
        Largest norm of all gradients together. If their norm is larger, all are scaled down to it.
    seed : int, optional
        Seed from which every Dropout and every other random node gets a number of its own. The runtime decides whether
        masks repeat from run to run.
    defaults : bool
        Whether the inputs of the step have default values, except the data and the target. Without them every input
        has to be given; `initial_values` returns the values that a training begins with.

    Returns
    -------
    onnx.ModelProto
        Inputs: those of the forward model, ``target``, and with default values ``learning_rate``, ``loss_scale``, the
        parameters under their names, states of the optimizer (``P.velocity``; ``P.moment1`` and ``P.moment2`` and
        ``step``) and running statistics. Outputs: ``loss``, the outputs of the forward model, and the next value of
        everything that is carried to the next step, with ``.next`` appended. Gradients are the values ``P_grad``. The
        metadata entry ``convreg.step`` is a JSON document with all names. Names that the forward model has already
        get a number.

    Raises
    ------
    GraphError
        If an argument has a wrong value, a node has no gradient or needs an extent that is unknown, the output does not
        suit the loss, no parameter reaches it, or parameters are of a narrow format.

    Examples
    --------
    >>> import numpy as np, onnx, onnx.parser
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["": 20]>
    ...     line (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w = {1, 2}> { y = MatMul(x, w) }''')
    >>> import convreg.onnx
    >>> step = convreg.onnx.training_step(model, loss="mse", optimizer="sgd", learning_rate=0.5)
    >>> done = convreg.onnx.run(step, {"x": [[1.0, 0.0]], "target": [[0.0]]})
    >>> float(done["loss"]), done["w.next"].tolist()
    (1.0, [[0.0], [2.0]])
    """
    flag("defaults", defaults)
    check_loss(loss)
    check_format("format", format)
    check_format("forward_format", forward_format)
    if not isinstance(dialect, str) or dialect not in DIALECTS:
        raise GraphError(f"dialect={shorten(dialect)} is refused; allowed: {', '.join(map(repr, DIALECTS))}")
    chosen, constants = optimizer_of(optimizer, {
        "momentum": momentum, "nesterov": nesterov, "betas": betas, "eps": eps, "weight_decay": weight_decay})
    scalars = {"learning_rate": number("learning_rate", learning_rate)}
    if loss_scale is not None:
        scalars["loss_scale"] = number("loss_scale", loss_scale, positive=True)
    norm = None if clip_norm is None else number("clip_norm", clip_norm, positive=True)
    forward = _forward(model)
    target = _output(forward, output)
    parameters = _asked(forward, wrt)

    whole = prepared(forward, batch_norm, forward_format)
    _seed(whole, seed)
    statistics = running_statistics(whole)
    writer = Writer(Names.of(whole), dict(scope_of(whole.graph)))
    made = add_loss(whole, target, loss, writer)
    inputs = {name: _scalar_input(whole, writer, name, value) for name, value in scalars.items()}
    _flush(whole, writer)
    known = scope_of(typed(whole).graph)
    parameters = _trained(whole, made, parameters, forward, statistics, known)
    whole, gradients = add_gradients(whole, made.loss, parameters, seed=inputs.get("loss_scale"), format=format,
                                     known=known)

    update = _Update(whole, chosen, constants, inputs)
    update.write(parameters, gradients, norm)
    update.carry_statistics(statistics)
    update.sort()
    outputs = [value.name for value in forward.graph.output]
    _set_outputs(whole, made.loss, outputs, update.state)
    tidy(whole)
    whole.producer_name, whole.producer_version = "convreg", ""
    digest = keep_forward(whole, forward)
    StepRecord(
        model=digest, data=[value.name for value in forward.graph.input], target=made.target, loss=made.loss,
        outputs=outputs, learning_rate=inputs["learning_rate"], loss_scale=inputs.get("loss_scale"),
        parameters=parameters, statistics=list(statistics), state=update.state, count=update.count,
        settings={"loss": loss, "output": target, "optimizer": optimizer, **constants, "clip_norm": norm,
                  "format": format, "forward_format": forward_format, "batch_norm": batch_norm, "dialect": dialect},
    ).write(whole)
    whole = translated(whole, dialect)
    if not defaults:
        put_apart(whole)
    check(whole)
    return whole


def _forward(source: Source) -> ModelProto:
    """Return a copy of a model whose inputs are those that have to be given."""
    model = ModelProto()
    model.CopyFrom(opened_flat(source))
    held = {tensor.name for tensor in model.graph.initializer}
    for index in range(len(model.graph.input) - 1, -1, -1):
        if model.graph.input[index].name in held:  # older models list their weights there too
            del model.graph.input[index]
            model.ir_version = max(model.ir_version, WEIGHTS_APART_IR)
    if not model.graph.output:
        raise GraphError("the model has no output")
    return model


def _output(model: ModelProto, output: Any) -> str:
    names = [value.name for value in model.graph.output]
    if output is None:
        return names[0]
    if not isinstance(output, str) or output not in names:
        raise GraphError(f"output={shorten(output)} names no output of the model; allowed: {', '.join(names)}")
    return output


def _asked(model: ModelProto, wrt: Any) -> list[str] | None:
    """The parameters that the caller names."""
    if wrt is None:
        return None
    if isinstance(wrt, str) or not isinstance(wrt, Sequence) or not all(isinstance(name, str) for name in wrt):
        raise GraphError(f"wrt={shorten(wrt)} is refused; allowed: a sequence of names of initializers, or None")
    held = [tensor.name for tensor in model.graph.initializer]
    for name in wrt:
        if name not in held:
            similar = near_misses(name, held)
            hint = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
            raise GraphError(f"wrt={shorten(name)} names no initializer of the model{hint}")
    if not wrt:
        raise GraphError("wrt is empty; allowed: names of initializers, or None for all parameters")
    return list(dict.fromkeys(wrt))


def _trained(
    model: ModelProto, made: Made, asked: list[str] | None, forward: ModelProto, statistics: Mapping[str, str],
    known: Scope,
) -> list[str]:
    """The initializers that are trained."""
    sources = {tensor.name: tensor for tensor in forward.graph.initializer}
    reached = set(dependent(model, made.loss, known))
    if asked is None:
        frozen = {name for node in model.graph.node if node.op_type == "BatchNormalization" for name in node.input[3:5]}
        asked = [name for name, tensor in sources.items()
                 if name in reached and tensor.dims and name not in statistics and name not in frozen]
        if not asked:
            raise GraphError(f"no floating-point initializer with one axis or more reaches {made.loss!r}; the model's "
                             f"initializers are {_kinds(sources)}{_constants(forward)}")
    for name in asked:
        if name in statistics:
            raise GraphError(f"wrt={name!r} is a running statistic, which batch normalisation updates itself")
        kind = dtype_of(sources[name].data_type)
        if kind not in TRAINED:
            raise GraphError(f"the parameter {name!r} is {kind}; allowed: "
                             f"{' and '.join(str(dtype) for dtype in TRAINED)}, with format= for narrower operands")
        if name not in reached:
            raise GraphError(f"{made.loss!r} does not depend on wrt={name!r} through operators that have gradients")
    return asked


def _kinds(tensors: Mapping[str, TensorProto]) -> str:
    kinds = {f"{dtype_of(tensor.data_type)}{'' if tensor.dims else ' scalars'}" for tensor in tensors.values()}
    return ", ".join(sorted(kinds)) or "none"


def _constants(model: ModelProto) -> str:
    """Words for weights that an exporter wrote as Constant nodes; empty where there are none."""
    names = [node.output[0] for node in model.graph.node if node.op_type == "Constant" and node.domain == "" and any(
        proto.name == "value" and proto.t.dims and dtype_of(proto.t.data_type) in TRAINED for proto in node.attribute)]
    return (f"; Constant nodes such as that of {shorten(names[0])} are not trained; allowed: weights as initializers"
            if names else "")


def _seed(model: ModelProto, seed: Any) -> None:
    """Write a seed into every random node: the given number and those after it."""
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**24:
        raise GraphError(f"seed={shorten(seed)} is refused; allowed: an integer from 0 to {2**24 - 1}, or None")
    nodes = [node for node in model.graph.node if node.op_type in RANDOM and node.domain == ""]
    for index, node in enumerate(nodes):
        kept = [proto for proto in node.attribute if proto.name != "seed"]
        number_ = int(seed) + index
        kept.append(helper.make_attribute("seed", number_ if node.op_type == "Dropout" else float(number_)))
        del node.attribute[:]
        node.attribute.extend(kept)


def _scalar_input(model: ModelProto, writer: Writer, name: str, default: float) -> str:
    """Add an input of shape () with a default value."""
    name = writer.names.fresh(name)
    model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ()))
    model.graph.initializer.append(numpy_helper.from_array(np.array(default, np.float32), name))
    writer.know(name, np.dtype(np.float32), ())
    return name


def _flush(model: ModelProto, writer: Writer) -> None:
    """Move what a writer holds into a model."""
    model.graph.node.extend(writer.taken())
    model.graph.initializer.extend(writer.constants)
    writer.constants.clear()


def _set_outputs(model: ModelProto, loss: str, outputs: Sequence[str], state: Mapping[str, str]) -> None:
    """Make the loss, the outputs of the forward model and the next state the outputs, and state their types."""
    inferred = types_of(model).graph
    known: dict[str, ValueInfoProto] = {value.name: value for value in (*inferred.input, *inferred.value_info,
                                                                        *inferred.output)}
    before = {made: known[name] for name, made in state.items()}
    del model.graph.output[:]
    for name in dict.fromkeys([loss, *outputs, *state.values()]):
        value = ValueInfoProto()
        value.CopyFrom(before.get(name) or known[name])
        value.name = name
        model.graph.output.append(value)


class _Update:
    """Writes the optimizer's nodes behind the gradients.

    `state` maps every input that is carried to the output that it is next; `count` is the input that counts steps.
    """

    def __init__(
        self, model: ModelProto, optimizer: Optimizer, constants: Mapping[str, Any], inputs: Mapping[str, str]
    ) -> None:
        self.model, self.optimizer, self.constants = model, optimizer, constants
        self.tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self.writer = Writer(Names.of(model), dict(scope_of(types_of(model).graph)))
        self.rate = self.writer.value(inputs["learning_rate"])
        self.scale = self.writer.value(inputs["loss_scale"]) if "loss_scale" in inputs else None
        self.state: dict[str, str] = {}
        self.count: str | None = None

    def write(self, parameters: Sequence[str], gradients: Mapping[str, str], norm: float | None) -> None:
        """Write the update of every parameter."""
        writer = self.writer
        values = {name: writer.value(gradients[name]) for name in parameters}
        factor = self._factor(list(values.values()), norm)
        step = self._counted() if self.optimizer.counts else None
        for name in parameters:
            writer.prefix = f"{name}/update"
            parameter = writer.value(name)
            gradient = values[name]
            if factor is not None:
                gradient = gradient * factor.cast(gradient.dtype)
            self._carry_in(name, self.tensors[name])
            states = {}
            for suffix in self.optimizer.suffixes:
                own = writer.names.fresh(f"{name}.{suffix}")
                zeros = np.zeros(tuple(self.tensors[name].dims), parameter.dtype)
                tensor = numpy_helper.from_array(zeros, own)
                self.model.graph.initializer.append(tensor)
                writer.know(own, parameter.dtype, zeros.shape)
                self._carry_in(own, tensor)
                states[suffix] = writer.value(own)
            moment = Moment(parameter, gradient, self.rate.cast(parameter.dtype), states, self.constants, step)
            updated, following = self.optimizer.update(moment)
            for suffix, value in following.items():
                self._carry_out(states[suffix].name, value)
            self._carry_out(name, updated)
        _flush(self.model, writer)

    def carry_statistics(self, statistics: Mapping[str, str]) -> None:
        """Make running statistics inputs, and what batch normalisation makes of them the next ones."""
        for name, updated in statistics.items():
            if name in self.tensors:  # computed ones are nothing that a step could carry
                self._carry_in(name, self.tensors[name])
                self.state[name] = updated

    def sort(self) -> None:
        """Put the state into the order of the inputs."""
        self.state = {value.name: self.state[value.name] for value in self.model.graph.input
                      if value.name in self.state}

    def _factor(self, gradients: Sequence[Value], norm: float | None) -> Value | None:
        """What all gradients are multiplied by, None for 1."""
        writer = self.writer
        writer.prefix = "gradients"
        unscale = None if self.scale is None else 1 / self.scale
        if norm is None:
            return unscale
        squares = [gradient.apply("ReduceSumSquare", keepdims=0).cast(np.float32) for gradient in gradients]
        total = (squares[0] if len(squares) == 1 else writer.add("Sum", *squares)).apply("Sqrt")
        if unscale is not None:
            total = total * unscale
        shrink = (norm / (total + SMALLEST_NORM)).apply("Min", writer.scalar(1, total.dtype))
        return shrink if unscale is None else shrink * unscale

    def _counted(self) -> Value:
        """The number of this step, from 1 on, in float64."""
        writer = self.writer
        writer.prefix = "step"
        self.count = writer.names.fresh("step")
        tensor = numpy_helper.from_array(np.array(0, np.int64), self.count)
        self.model.graph.initializer.append(tensor)
        writer.know(self.count, np.dtype(np.int64), ())
        self._carry_in(self.count, tensor)
        following = self._carry_out(self.count, writer.value(self.count) + 1)
        return following.cast(np.float64)

    def _carry_in(self, name: str, tensor: TensorProto) -> None:
        self.model.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tuple(tensor.dims)))

    def _carry_out(self, name: str, value: Value) -> Value:
        self.state[name] = self.writer.names.fresh(f"{name}{NEXT}")
        return self.writer.named(value, self.state[name])
