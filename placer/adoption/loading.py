"""Calls back when the script imports torch: not before, as a script may set what torch reads while it is loaded."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_loaded(name: str, call: Callable[[], None]) -> None:
    """Call once the module ``name`` has been imported; at once where it has been."""
    if name in sys.modules:
        call()
    else:
        sys.meta_path.insert(0, _Finder(name, call))


class _Finder:
    """Finds one module as all others do, and adds a call to its loading."""

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self._name = name
        self._call = call

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            return None
        original = loader.exec_module

        def load(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # the loader is again what it was, also where two wait for one module
            original(module)
            self._call()

        loader.exec_module = load
        return spec
