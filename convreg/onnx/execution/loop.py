"""Loop as ONNX defines it: onnx's own stacks scalars and matrices wrongly, and fails where no step is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.reference.op_run import OpRun


class Loop(OpRun):
    """Runs its body step by step; each scan output stacks the values of all steps along a new first axis."""

    op_domain = ""

    def __init__(self, onnx_node: NodeProto, run_params: dict[str, Any], schema: Any = None) -> None:
        super().__init__(onnx_node, run_params, schema)
        graph = next(attribute.g for attribute in onnx_node.attribute if attribute.name == "body")
        self._carried = len(graph.input) - 2
        self._scanned = [value.type.tensor_type for value in graph.output[1 + self._carried:]]

    def need_context(self) -> bool:
        """The body reads values around the loop."""
        return True

    def _run(
        self, most: Any = None, condition: Any = None, *carried: Any, context: Any = None, body: Any = None,
        attributes: Any = None, **_: Any,
    ) -> tuple[Any, ...]:
        names = self.body.input_names  # type: ignore[attr-defined]
        state = list(carried)
        stacks: list[list[Any]] = [[] for _ in self._scanned]
        condition = np.array(True) if condition is None else condition
        step = 0
        while bool(condition) and (most is None or step < int(most)):
            fed = {**(context or {}), **dict(zip(names, [np.array(step, np.int64), condition, *state], strict=True))}
            condition, *results = self.body.run(None, fed, attributes=attributes)  # type: ignore[attr-defined]
            state, scanned = results[: self._carried], results[self._carried:]
            for stack, value in zip(stacks, scanned, strict=True):
                stack.append(value)
            step += 1
        return (*state, *(np.stack(stack) if stack else nothing(declared)
                          for stack, declared in zip(stacks, self._scanned, strict=True)))


def nothing(declared: Any) -> Any:
    """Return the scan output of no steps."""
    dtype = tensor_dtype_to_np_dtype(declared.elem_type) if declared.elem_type else np.dtype(np.float32)
    return np.empty((0, *(dim.dim_value for dim in declared.shape.dim)), dtype)
