"""Values that are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast, overload

Value = TypeVar("Value")


class cached_property(Generic[Value]):  # noqa: N801 - named as functools' is
    """As ``functools.cached_property`` of Python 3.12 and later, which takes no lock.

    Earlier ones hold one lock for all instances: a process that is forked meanwhile finds it taken for ever.
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> cached_property[Value] | Value:
        if instance is None:
            return self
        # What is kept in the instance's dictionary is found before this is asked again.
        return cast(Value, instance.__dict__.setdefault(self.name, self.function(instance)))
