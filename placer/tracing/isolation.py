"""The state of torch and of Python in which a step is traced, whatever the script has set around ``choose``."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from placer.tracing.python_calls import Uncounted


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Run the body with gradients on, autocast off, compiled modules eager, and no mode of the script's active."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_disable_current_modes())
        stack.enter_context(_without_function_modes())
        stack.enter_context(_imports_untraced())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # Compiled submodules run eagerly. Importing the compiler only to say so would cost seconds.
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(True))
        stack.enter_context(torch.autocast("cpu", enabled=False))
        for kind in _accelerator_kinds():  # not by ``torch.autocast``, which asks the device what it can do
            if torch.is_autocast_enabled(kind):
                torch.set_autocast_enabled(kind, False)
                stack.callback(torch.set_autocast_enabled, kind, True)
        # Anomaly mode would look for NaN in tensors that have no values.
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
        yield


@contextlib.contextmanager
def same_state() -> Iterator[None]:
    """Leave random generators and defaults as they were: for a step that is traced in the user's own process.

    CUDA's random state is left alone on purpose: the copies are on the CPU, and reading it would create a context.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(torch.random.set_rng_state, torch.random.get_rng_state())
        stack.callback(random.setstate, random.getstate())
        numpy_random: Any = sys.modules.get("numpy.random")  # numpy loads it on first use
        if numpy_random is not None:
            stack.callback(numpy_random.set_state, numpy_random.get_state())
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        threads = torch.get_num_threads()
        stack.callback(lambda: None if torch.get_num_threads() == threads else torch.set_num_threads(threads))
        yield


@contextlib.contextmanager
def in_every_thread(*modes: Any) -> Iterator[None]:
    """Enter ``modes`` in every thread that the body starts, too.

    A pool's work is done at once, in the thread that submits it: the pool's own threads may not exist here.
    """
    start = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def begin(thread: threading.Thread) -> None:
        with contextlib.ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode)
            start(thread)

    def submit(pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)
        return future

    with replaced(threading.Thread, "_bootstrap_inner", begin), replaced(ThreadPoolExecutor, "submit", submit):
        yield


@contextlib.contextmanager
def replaced(place: Any, name: str, value: Any) -> Iterator[None]:
    """``place.name`` is ``value`` in the body."""
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


def _accelerator_kinds() -> Iterator[str]:
    """Kinds of accelerators whose autocast this torch can switch."""
    for kind in ("cuda", "xpu", "mps", torch._C._get_privateuse1_backend_name()):
        if torch.amp.is_autocast_available(kind):
            yield kind


@contextlib.contextmanager
def _imports_untraced() -> Iterator[None]:
    """Run imports inside the step untraced: what a module computes as it loads is no part of the step."""

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

    with (
        replaced(builtins, "__import__", untraced(builtins.__import__)),
        replaced(importlib, "import_module", untraced(importlib.import_module)),
    ):
        yield


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
