"""How a part of pricing is switched off: something else stands under its name, and pricing knows nothing of it."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

#: What stands under a name -> what stands there while a mechanism is off; and such changes by name.
Change = Callable[[Any], Any]
Changes = Mapping[str, Change]


def changed(changes: Changes) -> Callable[[], AbstractContextManager[None]]:
    """Switches off: what stands under each name (``package.module.name``, or a method's) is changed."""

    @contextmanager
    def off() -> Iterator[None]:
        with ExitStack() as stack:
            for name, change in changes.items():
                owner, _, attribute = name.rpartition(".")
                found = pkgutil.resolve_name(owner)
                stack.enter_context(mock.patch.object(found, attribute, change(getattr(found, attribute))))
            yield

    return off


def to(value: Any) -> Change:
    """Whatever stood there, ``value`` stands there instead."""
    return lambda _: value
