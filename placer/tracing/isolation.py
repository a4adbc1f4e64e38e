"""Restores the global state that a user's forward may change.

CUDA's random state is left alone on purpose: meta tensors never draw from it, and reading it would create a context.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as module_globals
from torch.utils._python_dispatch import _disable_current_modes

from placer.tracing.python_calls import Uncounted

# Hooks registered for every module in the process: they belong to the user, and would run on the copy.
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_forward_hooks_always_called",
    "_global_forward_hooks_with_kwargs",
)


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Run the body with gradients on and autocast off; restore the process-wide state on the way out."""
    with contextlib.ExitStack() as stack:
        stack.callback(torch.random.set_rng_state, torch.random.get_rng_state())
        stack.callback(random.setstate, random.getstate())
        numpy_random: Any = sys.modules.get("numpy.random")  # numpy loads it on first use
        if numpy_random is not None:
            stack.callback(numpy_random.set_state, numpy_random.get_state())
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        threads = torch.get_num_threads()
        stack.callback(lambda: None if torch.get_num_threads() == threads else torch.set_num_threads(threads))
        stack.enter_context(_without_global_hooks())
        stack.enter_context(_imports_untraced())
        # Python shows most warnings once per place: the tracer must not use up the one the user would see.
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # Compiled submodules run eagerly. Importing the compiler only to say so would cost seconds.
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(True))
        stack.enter_context(torch.autocast("cpu", enabled=False))
        stack.enter_context(_without_autocast())
        # Anomaly mode would look for NaN in tensors that have no values.
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
        yield


@contextlib.contextmanager
def _without_autocast() -> Iterator[None]:
    """Accelerators' autocast off. Not by ``torch.autocast``, which asks the device what it can do."""
    on = [kind for kind in _accelerator_kinds() if torch.is_autocast_enabled(kind)]
    for kind in on:
        torch.set_autocast_enabled(kind, False)
    try:
        yield
    finally:
        for kind in on:
            torch.set_autocast_enabled(kind, True)


def _accelerator_kinds() -> Iterator[str]:
    """Kinds of accelerators whose autocast this torch can switch."""
    for kind in ("cuda", "xpu", "mps", torch._C._get_privateuse1_backend_name()):
        if torch.amp.is_autocast_available(kind):
            yield kind


@contextlib.contextmanager
def _without_global_hooks() -> Iterator[None]:
    kept = []
    for name in _GLOBAL_HOOKS:
        hooks = getattr(module_globals, name, None)
        if hooks:
            kept.append((hooks, dict(hooks)))
            hooks.clear()
    try:
        yield
    finally:
        for hooks, entries in kept:
            hooks.clear()
            hooks.update(entries)


@contextlib.contextmanager
def _imports_untraced() -> Iterator[None]:
    """Run imports inside the step untraced: what a module computes as it loads is no part of the step, and outlives it.

    Traced, the constants of a solver imported inside forward would stay meta tensors.
    """

    loading = threading.local()

    def untraced(original: Callable[..., Any]) -> Callable[..., Any]:
        def load(*args: Any, **kwargs: Any) -> Any:
            if getattr(loading, "now", False):  # modules import others, and switching modes off imports too
                return original(*args, **kwargs)
            loading.now = True
            try:
                with Uncounted():
                    if _loaded(*args, **kwargs):
                        return original(*args, **kwargs)
                    with _disable_current_modes(), _without_function_modes():
                        return original(*args, **kwargs)
            finally:
                loading.now = False

        return load

    places = ((builtins, "__import__"), (importlib, "import_module"))
    originals = [(place, name, getattr(place, name)) for place, name in places]
    try:
        for place, name, original in originals:
            setattr(place, name, untraced(original))
        yield
    finally:
        for place, name, original in originals:
            setattr(place, name, original)


@contextlib.contextmanager
def _without_function_modes() -> Iterator[None]:
    """No function mode is active, and new ones work: the compiler of torch 2.6 enters its own while it is imported."""
    modes = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    try:
        with torch._C._EnableTorchFunction():
            yield
    finally:
        for mode in reversed(modes):
            torch._C._push_on_torch_function_stack(mode)


def _loaded(name: str, *given: Any, **named: Any) -> bool:
    """Whether an import runs no code, as everything it names is loaded. Functions of torch import at every call.

    Arguments as for ``__import__`` (globals, locals, fromlist, level) or ``import_module`` (package).
    """
    fromlist = given[2] if len(given) > 2 else named.get("fromlist")
    level = given[3] if len(given) > 3 else named.get("level", 0)
    module = None if level else sys.modules.get(name)
    return module is not None and all(item in vars(module) for item in fromlist or ())
