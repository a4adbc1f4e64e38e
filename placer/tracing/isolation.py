"""The state of torch and of Python in which a step is traced, whatever the script has set around ``choose``."""

from __future__ import annotations

import contextlib
import importlib
import random
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

from placer.tracing.python_calls import Uncounted


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Run the body with gradients on, autocast off, compiled modules eager, and no mode of the script's active."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_disable_current_modes())
        stack.enter_context(_without_function_modes())
        sys.meta_path.insert(0, _Untraced)
        stack.callback(sys.meta_path.remove, _Untraced)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # Compiled submodules run eagerly. Importing the compiler only to say so would cost seconds.
        if _compiler_is_loaded():
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        else:
            stack.callback(lambda: torch.compiler.set_stance("default") if _compiler_is_loaded() else None)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(True))
        for kind in ("cpu", "cuda", "xpu", "mps", torch._C._get_privateuse1_backend_name()):
            # Not by ``torch.autocast``, which asks the device what it can do.
            if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                torch.set_autocast_enabled(kind, False)
                stack.callback(torch.set_autocast_enabled, kind, True)
        for _ in range(torch.autocast_increment_nesting()):  # the script's regions do not count
            torch.autocast_decrement_nesting()
            stack.callback(torch.autocast_increment_nesting)
        stack.callback(torch.autocast_decrement_nesting)
        # Anomaly mode would look for NaN in tensors that have no values.
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
        yield


def _compiler_is_loaded() -> bool:
    """Whether the compiler itself is loaded, not what stands for it in a child."""
    return "torch._dynamo" in sys.modules and not isinstance(sys.modules["torch._dynamo"], _Light)


@contextlib.contextmanager
def same_state() -> Iterator[None]:
    """Leave random generators and defaults as they were: for a step that is traced in the user's own process.

    CUDA's random state is left alone on purpose: the copies are on the CPU, and reading it would create a context.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(torch.random.set_rng_state, torch.random.get_rng_state())
        stack.callback(random.setstate, random.getstate())
        if generator := numpy_random():
            stack.callback(generator.set_state, generator.get_state())
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        threads = torch.get_num_threads()
        stack.callback(lambda: None if torch.get_num_threads() == threads else torch.set_num_threads(threads))
        yield


def numpy_random() -> Any:
    """numpy's module of random numbers. None before its first use loads it, and while another thread is doing so."""
    module = sys.modules.get("numpy.random")
    return module if hasattr(module, "get_bit_generator") else None


def without_compiler() -> None:
    """In a child: let meta kernels written in Python run without torch's compiler, whose import takes up to 2 seconds.

    They ask it to leave them alone, and shapes whether they are symbols, which they are not. Whoever asks for anything
    else gets the modules themselves.
    """
    compiler = {
        "disable": lambda function, *_, **__: function,
        "graph_break": lambda *_, **__: None,
        "config": _Light("torch._dynamo.config", {"error_on_nested_fx_trace": True}),  # asked for by checkpointing
    }
    symbols = dict.fromkeys(("Basic", "Expr", "Integer", "Number", "Symbol"), _NoSymbol)
    stand_ins: dict[str, dict[str, Any]] = {"torch._dynamo": compiler, **SIZES_ARE_NUMBERS, "sympy": symbols}
    for name, answers in stand_ins.items():
        if name not in sys.modules:
            sys.modules[name] = _Light(name, answers)
            if name == "torch._dynamo":
                vars(torch)["_dynamo"] = sys.modules[name]


#: What the kernels of torch 2.9 to 2.13 ask two modules of a size, and the answers of one that is no symbol.
SIZES_ARE_NUMBERS: dict[str, dict[str, Callable[..., Any]]] = {
    "torch.fx.experimental.symbolic_shapes": {
        "definitely_true": bool, "expect_true": bool, "guard_or_false": bool, "guard_or_true": bool,
        "guard_size_oblivious": bool, "statically_known_true": bool,
        "guard_int": int, "guarding_hint_or_throw": int, "size_hint": lambda size, fallback=None: size,
        "has_guarding_hint": lambda size: True, "has_hint": lambda size: True, "is_nested_int": lambda size: False,
        "free_unbacked_symbols": lambda sizes: set(),
        "sym_and": lambda *conditions: all(conditions), "sym_or": lambda *conditions: any(conditions),
        "sym_eq": lambda a, b: tuple(a) == tuple(b) if isinstance(a, (tuple, list)) else a == b,
    },
    "torch.utils._sympy.functions": {"Max": max},
}  # fmt: skip


class _NoSymbol:
    """The class of nothing: no size of a trace is a symbol."""


#: Those of them that have modules inside.
_PACKAGES = ("torch._dynamo", "sympy")


class _Light(types.ModuleType):
    """Stands for a module until more is asked of it than ``answers``, or a module inside of it is imported."""

    def __init__(self, name: str, answers: dict[str, Any]) -> None:
        super().__init__(name)
        self.__dict__.update(answers)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and (name != "__path__" or self.__name__ not in _PACKAGES):
            raise AttributeError(name)
        for stands in [stands for stands, module in sys.modules.items() if isinstance(module, _Light)]:
            del sys.modules[stands]  # the module may want the others that something stands for
        if isinstance(vars(torch).get("_dynamo"), _Light):
            del torch._dynamo
        return getattr(importlib.import_module(self.__name__), name)


class _OfThread(threading.local):
    """What holds for one thread: whether it runs a step that is traced."""

    traced = False


_thread = _OfThread()


@contextlib.contextmanager
def follow_threads() -> Iterator[None]:
    """In the body, threads that the step starts run in the modes of the thread that starts them, and so on.

    A pool's work is done at once, in the thread that submits it: the pool's own threads may not exist here.
    """
    threads: Any = threading.Thread
    start, run = threads.start, threads._bootstrap_inner
    modes_of: dict[threading.Thread, list[Any]] = {}

    def start_in_modes(thread: threading.Thread) -> None:
        modes_of[thread] = [*_get_current_dispatch_mode_stack(), *_get_current_function_mode_stack()]
        start(thread)

    def run_in_modes(thread: threading.Thread) -> None:
        modes = modes_of.pop(thread, [])
        _thread.traced = bool(modes)
        with contextlib.ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode)
            run(thread)

    def submit(pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)
        return future

    before, _thread.traced = _thread.traced, True
    threads._bootstrap_inner = run_in_modes
    try:
        with replaced(threads, "start", start_in_modes), replaced(ThreadPoolExecutor, "submit", submit):
            yield
    finally:
        threads._bootstrap_inner = run
        _thread.traced = before


@contextlib.contextmanager
def replaced(place: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """``place.name`` is ``function`` in the body, for this thread and those that the step starts in it."""
    before = getattr(place, name)

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (function if _thread.traced else before)(*args, **kwargs)

    setattr(place, name, chosen)
    try:
        yield
    finally:
        setattr(place, name, before)


class _Untraced:
    """Finds modules as Python does, and has them run untraced: what one computes as it loads is no part of the step."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            load = loader.exec_module

            def untraced(module: types.ModuleType) -> None:
                with Uncounted(), _disable_current_modes(), _without_function_modes():
                    load(module)
                if name == "torch._dynamo":  # what the step compiles runs eagerly, as if it had been there before
                    torch.compiler.set_stance("force_eager")

            loader.exec_module = untraced
        return spec


@contextlib.contextmanager
def _without_function_modes() -> Iterator[None]:
    """No function mode is active, and new ones work: a module may enter its own while it is imported."""
    modes = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    try:
        with torch._C._EnableTorchFunction():
            yield
    finally:
        for mode in reversed(modes):
            torch._C._push_on_torch_function_stack(mode)


_NOTE = "the step draws random numbers of {0}: this is what one draw runs, another may run more or less"


class PythonDraws:
    """Tells whether Python's or numpy's global generator has been drawn from since this was made."""

    def __init__(self) -> None:
        self._before = _states()

    def notes(self) -> tuple[str, ...]:
        """A sentence for each that was."""
        now = _states()
        return tuple(_NOTE.format(name) for name, state in self._before.items() if now.get(name) != state)


def _states() -> dict[str, Any]:
    """The generators' states; numpy's where it is imported."""
    states: dict[str, Any] = {"Python": random.getstate()}
    if generator := numpy_random():
        kind, keys, *rest = generator.get_state()
        states["numpy"] = (kind, keys.tobytes(), *rest)
    return states
