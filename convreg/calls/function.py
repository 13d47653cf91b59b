"""The Python function of an operator, made from its declaration."""

from __future__ import annotations

from typing import Any, cast

from ..guard import thread_count
from ..spec import OpSpec, snake_case
from ._likeness import likeness
from .binding import asking, bind
from .execution import Result, perform, refer
from .outputs import allocate, new_arrays
from .repeated import find, remember
from .signature import Operator, positional_names, reader_of, signature_of
from .text import docstring


def function_of(spec: OpSpec) -> Operator:
    """Return the Python function that a declaration describes."""
    read, signature = reader_of(spec), signature_of(spec)
    positional = positional_names(signature)
    tensor_names = frozenset(map(snake_case, spec.tensor_names))

    def function(*args: Any, **kwargs: Any) -> Result:
        alike = likeness(positional, tensor_names, args, kwargs)
        if (known := find((spec, alike))) is not None:
            call, plan, room, inputs, workers = known
            return perform(call, plan, inputs((*args, *kwargs.values(), None)), new_arrays(call, room), workers)
        places = {name: place for place, name in enumerate([*positional[:len(args)], *kwargs])}
        tensors, attributes, conformance, out, threads = read(args, kwargs)
        bound = bind(spec, tensors, attributes, conformance=conformance, out=out)
        workers = thread_count(bound.call, threads)
        if alike is not None:
            remember((spec, alike), bound, tensors,
                     [places.get(snake_case(name), -1) for name in spec.input_names], workers)
        return perform(bound.call, bound.plan, bound.inputs, allocate(bound.call, bound.plan, bound.outputs), workers)

    def referee(*args: Any, **kwargs: Any) -> Result:
        """Compute the same call in float64 and return it unrounded, as float64.

        Parameters
        ----------
        *args, **kwargs
            The arguments of the function, without ``out``. `threads` changes no bit of the result.

        Returns
        -------
        ndarray or tuple
            The results of the function as new float64 arrays. Nothing is rounded: neither results to their formats, nor
            operands, as Ascend's cubeMathType does. Scales apply.

        Raises
        ------
        OpError, OpTypeError
            As the function, and if ``out`` is given.
        """
        tensors, attributes, conformance, out, threads = read(args, kwargs)
        if out is not None:
            raise asking(spec, spec.conformances[0]).refuse(
                "out", "given", "None: the reference returns new arrays in float64", "arguments", wrong_type=True)
        workers = thread_count(asking(spec, spec.conformances[0]), threads)
        return refer(spec, tensors, attributes, conformance=conformance, threads=workers)

    function.__name__ = function.__qualname__ = spec.function_name
    function.__module__ = f"convreg.{spec.vendor}"
    function.__doc__ = docstring(spec)
    referee.__name__, referee.__qualname__ = "reference", f"{spec.function_name}.reference"
    referee.__module__ = function.__module__
    vars(referee)["__signature__"] = signature.replace(
        parameters=[parameter for name, parameter in signature.parameters.items() if name != "out"])
    vars(function).update(__signature__=signature, spec=spec, reference=referee)
    return cast(Operator, function)
