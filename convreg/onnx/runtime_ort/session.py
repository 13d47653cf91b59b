"""A model in a session of onnxruntime with our library: arrays in and out, errors of ours, and forked processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any
from weakref import WeakSet

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, helper

from ... import registry
from ...errors import GraphError, OpError, add_note
from ...ops import kernels
from ..graph import nodes_in, nodes_of, sentence
from ..standard import OURS, STANDARD
from ..team import team
from ._ort import bytes_at, keep
from .guards import guarded_nodes, reason_of
from .nodes import last_error, ort_domain, ort_library


class OnOrt:
    """A model in an onnxruntime session that knows our operators."""

    def __init__(self, model: ModelProto, runtime: ModuleType) -> None:
        self._runtime = runtime
        self._model, self._guards = guarded_nodes(in_our_domains(model))
        self._session = self._open()
        _open_sessions.add(self)
        self._outputs = [value.name for value in self._session.get_outputs()]
        if len(self._outputs) != len(model.graph.output):
            raise GraphError("onnxruntime leaves out an output that no node makes")
        elements = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        self._narrow = {name: element for name, element in elements.items() if element in NARROW}
        self._direct = not self._narrow and not any(
            value.type in {f"tensor({name})" for name in NARROW.values()} for value in self._session.get_outputs())
        if not self._direct and not hasattr(runtime.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
            raise GraphError(f"onnxruntime {runtime.__version__} has no arrays of {', '.join(NARROW.values())}; "
                             "1.20 and later have them")

    def _open(self) -> Any:
        options = self._runtime.SessionOptions()
        options.log_severity_level = 4  # what goes wrong is in the exception
        options.intra_op_num_threads = team() or kernels.default_threads()
        if any(node.domain.startswith("convreg.") for node in nodes_of(self._model)):
            # Threads of onnxruntime that spin while our kernels compute would take the processors from them.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            options.register_custom_ops_library(ort_library())  # it takes 5 ms, which other models need not spend
        return self._runtime.InferenceSession(self._model.SerializeToString(), options,
                                              providers=["CPUExecutionProvider"])

    def abandon(self) -> None:
        """Give up a session whose threads did not survive a fork; the next run opens another one.

        The session itself is kept, since its destruction waits for its threads.
        """
        if self._session is not None:
            keep(self._session)
            self._session = None

    @property
    def session(self) -> Any:
        """The session, opened again in a process that was forked from the one that opened it."""
        if self._session is None:
            self._session = self._open()
        return self._session

    @property
    def takes_arrays(self) -> bool:
        """Whether all inputs and outputs are of types that onnxruntime exchanges as arrays."""
        return self._direct

    def run(self, output_names: Any, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the session; a refusal of ours is raised as what it was."""
        last_error.error = None
        try:
            session = self.session
            if self._direct:
                return session.run(output_names, feeds)
            values = {name: self._ort_value(name, array) for name, array in feeds.items()}
            return [self._array(value) for value in
                    session.run_with_ort_values(output_names or self._outputs, values)]
        except Exception as error:  # its exceptions have no base of their own
            refusal = self._refusal(error)
            raise refusal from (None if isinstance(refusal, OpError) else error)

    def run_bound(self, binding: Any) -> None:
        """Run the session on inputs and outputs that are bound already; exceptions are those of `run`."""
        last_error.error = None
        try:
            self.session.run_with_iobinding(binding)
        except Exception as error:
            refusal = self._refusal(error)
            raise refusal from (None if isinstance(refusal, OpError) else error)

    def _refusal(self, error: Exception) -> Exception:
        """Return our own exception for what onnxruntime raised."""
        own = last_error.error
        if isinstance(own, OpError) and str(own) in str(error):
            last_error.error = None
            add_note(own, "onnxruntime: " + sentence(error).partition(" Status Message")[0])
            return own
        guard = reason_of(error, self._guards)
        return GraphError(f"onnxruntime: {sentence(error)}" if guard is None else guard)

    def _ort_value(self, name: str, array: Any) -> Any:
        kind = self._runtime.OrtValue
        array = np.ascontiguousarray(array).reshape(np.shape(array))  # the former makes scalars vectors
        if name in self._narrow:
            bits = array.view(np.uint16 if array.itemsize == 2 else np.uint8)
            return kind.ortvalue_from_numpy_with_onnx_type(bits, self._narrow[name])
        return kind.ortvalue_from_numpy(array)

    def _array(self, value: Any) -> Any:
        if not value.is_tensor() or value.element_type() not in NARROW:
            return value.numpy()
        dtype, shape = helper.tensor_dtype_to_np_dtype(value.element_type()), tuple(value.shape())
        size = int(np.prod(shape)) * dtype.itemsize
        if not size:
            return np.empty(shape, dtype)
        return np.frombuffer(bytes_at(value.data_ptr(), size, True, value), dtype).reshape(shape)


_open_sessions: WeakSet[OnOrt] = WeakSet()


def _abandon_sessions() -> None:
    """Give up all sessions: this process was forked from the one that opened them."""
    for session in list(_open_sessions):
        session.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_sessions)


NARROW = {16: "bfloat16", 17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz"}
"""Element types that onnxruntime's Python interface does not exchange as arrays, by ONNX's number."""


def onnxruntime() -> ModuleType:
    """Return the package.

    Raises
    ------
    GraphError
        If it is not installed.
    """
    try:
        import onnxruntime
    except Exception as error:  # a package for another NumPy, or with a missing library, raises anything
        raise GraphError("engine='onnxruntime' needs the onnxruntime package, which cannot be imported "
                         f"({sentence(error)}); `pip install onnxruntime` provides it") from error
    return onnxruntime


def in_our_domains(model: ModelProto) -> ModelProto:
    """Return the model with nodes that our library computes in the domains where onnxruntime knows them.

    These are nodes of ours that stand in the domains of others and, in models with gradients of convolutions and parts
    of such models, the standard convolutions: our kernels compute them faster, and with the bits of the reference
    engine.
    """
    specs = {(operator.spec.onnx_domain, operator.spec.name): operator.spec for operator in registry.registered()}
    found = [specs[key] for key in {(node.domain, node.op_type) for node in nodes_of(model)} if key in specs]
    if any(spec.convolves for spec in found) or any(entry.key == OURS for entry in model.metadata_props):
        specs |= STANDARD
    moved = {key: ort_domain(spec) for key, spec in specs.items() if key[0] != ort_domain(spec)}
    if not any((node.domain, node.op_type) in moved for node in nodes_of(model)):
        return model
    changed = ModelProto()
    changed.CopyFrom(model)
    _move(changed.graph, changed.opset_import, moved)
    for function in changed.functions:  # each has imports of its own
        _move(function, function.opset_import, moved)
    return changed


def _move(holder: GraphProto | FunctionProto, imports: Any, moved: Mapping[tuple[str, str], str]) -> None:
    """Give nodes the domains that `moved` states, and import those in the version of the domain that they leave."""
    versions = {entry.domain: entry.version for entry in imports}
    for node in nodes_in(holder):
        domain = moved.get((node.domain, node.op_type), node.domain)
        if domain not in versions and node.domain in versions:
            versions[domain] = versions[node.domain]
            imports.append(helper.make_opsetid(domain, versions[domain]))
        node.domain = domain
