"""Tells of calls of whole models, without a hook, a wrapper or a frame of its own around them.

``nn.Module.__call__`` first reads ``_compiled_call_impl``, which is None for all but compiled modules. While somebody
watches, a descriptor stands there. It is None as well, and while somebody looks, it looks at the frame that reads it:
its arguments are those of the call. So a call takes the way through torch that it takes without placer, whatever
traces, transforms or compiles it; torch's compiler, which follows Python, is told that the descriptor does nothing.

Nothing is told of a call that something records: a traced one would be another program's.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from placer.compiler import never_compiled

#: What runs as ``nn.Module.__call__``.
_CALL: types.CodeType = nn.Module._wrapped_call_impl.__code__
_PLACE = "_compiled_call_impl"


#: Who is told that a module is about to run on these arguments. It runs no op, raises nothing, and leaves all as it is.
Listener = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]


def recorded() -> bool:
    """Whether something records, transforms or compiles what runs now.

    These are ``torch.jit.trace`` and what exports by it, ``torch.compile`` and ``torch.export``, the transforms of
    ``torch.func``, modes that see every op (``make_fx``, fake tensors, counters), profilers and CUDA graphs.
    """
    return (
        torch._C._get_tracing_state() is not None
        or torch._C._dynamo.eval_frame.get_eval_frame_callback() is not None
        or torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._autograd._profiler_enabled()
        or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
    )


def unseen_by_compiler(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: torch's compiler takes the function for one that does nothing, and compiles nothing it calls."""

    def nothing(*args: Any, **kwargs: Any) -> None:
        """In the place of the function, in what is compiled."""

    function._torchdynamo_inline = nothing  # type: ignore[attr-defined]
    return never_compiled(function)


class _Descriptor:
    """Is None for everybody, and tells its listener of the calls that read it."""

    listener: Listener | None = None

    @unseen_by_compiler
    def __get__(self, module: nn.Module | None, kind: type | None = None) -> None:
        if self.listener is not None and module is not None:
            frame = sys._getframe(1)
            if frame.f_code is _CALL and _is_outermost(frame) and not recorded():
                self.listener(module, frame.f_locals["args"], frame.f_locals["kwargs"])


def _is_outermost(call: types.FrameType) -> bool:
    """Whether no other module's call made this one."""
    frame = call.f_back
    while frame is not None:
        if frame.f_code is _CALL:
            return False
        frame = frame.f_back
    return True


_descriptor = _Descriptor()


def watch() -> None:
    """Stand where calls can be seen, and stay: what has been compiled meanwhile would notice a change.

    Raises NotImplementedError where this torch calls modules in another way, or somebody watches already.
    """
    parameters = list(inspect.signature(nn.Module._wrapped_call_impl).parameters)
    stands_there = vars(nn.Module).get(_PLACE, "missing")
    if stands_there is _descriptor:
        raise NotImplementedError("placer watches this process already")
    if _PLACE not in _CALL.co_names or parameters != ["self", "args", "kwargs"] or stands_there is not None:
        raise NotImplementedError(f"torch {torch.__version__} calls modules in a way that placer does not know")
    setattr(nn.Module, _PLACE, _descriptor)


def unwatch() -> None:
    """Undo ``watch``."""
    listen(None)
    setattr(nn.Module, _PLACE, None)


def listen(listener: Listener | None) -> None:
    """Tell of calls from now on; None: tell nobody."""
    _descriptor.listener = listener
