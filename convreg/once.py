"""Attributes that are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class once(Generic[Value]):
    """A method whose result replaces it as an attribute of the instance, without a lock.

    `functools.cached_property` holds a lock in Python 3.10 and 3.11, one for all instances. A process that is forked
    while another thread computes has the lock but not the thread, and waits for ever. Here two threads may both
    compute; the values must be equal.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> once[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> once[Value] | Value:
        """Compute the value and keep it in the instance's dictionary, where it is found first from then on."""
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.compute(instance)
        return value
