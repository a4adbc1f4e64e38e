"""What users write round a layer and in place of one: state, hooks, caches, threads, modes, shared and lazy weights."""

from __future__ import annotations

import contextvars
import functools
import os
import random as python_random
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint

CLASSES = 3


class Around(nn.Module):
    """A layer and something of the user's round it. ``records``: what that writes to."""

    def __init__(self, inner: nn.Module, records: list[Any]) -> None:
        super().__init__()
        self.inner = inner
        self.begin(records)

    def begin(self, records: list[Any]) -> None:
        """Make what it needs besides the layer."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)
        return found


class Counted(Around):
    def begin(self, records: list[Any]) -> None:
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(1), persistent=False)
        self.total = 0

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * y.detach().mean()  # another tensor each time
        self.total += 1
        return y


class Cached(Around):
    def begin(self, records: list[Any]) -> None:
        self.tables: dict[Any, Tensor] = {}
        records.append(self.tables)

    def forward(self, x: Tensor) -> Tensor:
        key = (x.shape[-1], x.dtype, str(x.device))
        if key not in self.tables:
            self.tables[key] = torch.linspace(0.5, 1.5, x.shape[-1], dtype=x.dtype, device=x.device)
        return super().forward(x * self.tables[key])


class Closure(Around):
    def begin(self, records: list[Any]) -> None:
        seen: list[int] = []
        records.append(seen)

        def scale(x: Tensor) -> Tensor:
            seen.append(len(seen))
            return x / (1 + len(seen) % 3)

        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.scale(x))


class Noisy(Around):
    def begin(self, records: list[Any]) -> None:
        self.generator, self.numbers = torch.Generator().manual_seed(3), np.random.default_rng(3)
        records += [self.generator, self.numbers]

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn(x.shape, generator=self.generator).to(x.device, x.dtype)
        return super().forward(x + 0.1 * noise * float(self.numbers.random()))


class Suspended(Around):
    """A generator that waits for its next turn cannot be copied."""

    def begin(self, records: list[Any]) -> None:
        taken: list[float] = []
        records.append(taken)

        def factors() -> Iterator[float]:
            while True:
                for factor in (0.5, 1.0, 2.0):
                    taken.append(factor)
                    yield factor

        self.factors = factors()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * next(self.factors))


class Threaded(Around):
    """The layer runs in a thread of its own, which is started by the first call."""

    def begin(self, records: list[Any]) -> None:
        self.pool = ThreadPoolExecutor(1, "user")

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.pool.submit(self.inner, x).result()
        return found


class Locked(Around):
    def begin(self, records: list[Any]) -> None:
        self.lock = threading.RLock()

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            return super().forward(x)


class Checkpointed(Around):
    def begin(self, records: list[Any]) -> None:
        self.reentrant = False

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return found


class CheckpointedAgain(Checkpointed):
    def begin(self, records: list[Any]) -> None:
        self.reentrant = True


class Autocast(Around):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            y = super().forward(x)
        return y.to(x.dtype)


class Centred(Around):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            mean = x.mean()
        return super().forward(x - mean)


class Branching(Around):
    """What runs depends on a value."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y * 2 if y.sum() > 0 else y + 1


class Dropping(Around):
    """What runs depends on Python's and numpy's global generators."""

    def forward(self, x: Tensor) -> Tensor:
        if python_random.random() < 0.3:
            x = x * 0.5
        return super().forward(x * float(np.random.random()))  # noqa: NPY002


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return gradients[0] * 2 + 0 * x


class OwnGradient(Around):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = _Twice.apply(super().forward(x))
        return found


class Forwarding(Around):
    """Attributes that it lacks are those of the layer."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


class Hooked(Around):
    def begin(self, records: list[Any]) -> None:
        before: list[Any] = []
        after: list[Any] = []
        backward: list[Any] = []
        records += [before, after, backward]
        self.register_forward_pre_hook(lambda module, args: before.append(tuple(args[0].shape)))
        self.register_forward_hook(lambda module, args, output: after.append(tuple(output.shape)))
        self.register_full_backward_hook(lambda module, given, found: backward.append(len(found)))
        for parameter in self.inner.parameters():
            if parameter.requires_grad and type(parameter) is nn.Parameter:
                parameter.register_hook(lambda grad: grad * 0.5)
                parameter.register_post_accumulate_grad_hook(lambda p: backward.append(p.ndim))


class Logging(Around):
    """Writes to an open file, to the environment and to a class."""

    calls = 0

    def begin(self, records: list[Any]) -> None:
        self.file = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as a logger of a script holds one
        records += [
            lambda: (self.file.seek(0), self.file.read()),
            lambda: os.environ.get("USERS_CALLS"),
            lambda: Logging.calls,
        ]

    def forward(self, x: Tensor) -> Tensor:
        Logging.calls += 1
        os.environ["USERS_CALLS"] = str(Logging.calls)
        self.file.write(f"{tuple(x.shape)}\n")
        self.file.flush()
        return super().forward(x)


class Growing(Around):
    """Makes its weight and a layer when it is first called, as many models of old do."""

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "scale"):
            self.scale = nn.Parameter(torch.ones(x.shape[-1], device=x.device))
            self.after = nn.LayerNorm(x.shape[-1], device=x.device)
        return super().forward(self.after(x * self.scale))


class Remembered(Around):
    """What it computes once it keeps: an attribute, a cached property and a method with a cache."""

    def begin(self, records: list[Any]) -> None:
        records.append(lambda: (sorted(vars(self)), self.table.cache_info().currsize))

    @functools.cached_property
    def factor(self) -> float:
        return 0.5

    @functools.cache  # noqa: B019 - users write it
    def table(self, width: int, device: str) -> Tensor:
        return torch.arange(width, device=device) / width

    def forward(self, x: Tensor) -> Tensor:
        self.last = x.detach()
        return super().forward(x * self.factor + self.table(x.shape[-1], str(x.device)))


class OnArrays(Around):
    """A buffer in the memory of an array of numpy, and one in memory that processes share."""

    def begin(self, records: list[Any]) -> None:
        self.array = np.zeros(3, dtype=np.float32)
        self.register_buffer("counts", torch.from_numpy(self.array))
        self.register_buffer("shared", torch.zeros(2).share_memory_())
        records += [lambda: self.array.tolist(), lambda: self.shared.is_shared()]

    def forward(self, x: Tensor) -> Tensor:
        self.counts += 1
        self.shared.add_(1)
        return super().forward(x)


class Sharing(Around):
    """Weights that are views of one flat parameter's memory, and a buffer that is expanded."""

    def begin(self, records: list[Any]) -> None:
        self.flat = nn.Parameter(torch.ones(6))
        self.register_buffer("part", self.flat.detach()[2:4])
        self.register_buffer("wide", torch.ones(1).expand(5))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * self.flat.mean() * self.wide.mean() + 0 * self.part.sum())


class Toggling(Around):
    """Sets modes while it runs: of modules, of gradients, of its parameters, of torch's random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        was = self.inner.training
        self.inner.train(not was)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            y = super().forward(x)
        self.inner.train(was)
        with torch.set_grad_enabled(False):
            x.detach().mean()
        return y


class Patched(Around):
    """Its ``forward`` and ``__call__`` are functions of the instance and of the class."""

    def begin(self, records: list[Any]) -> None:
        seen: list[int] = []
        records.append(seen)
        original = self.inner.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            seen.append(1)
            return original(*args, **kwargs)

        if not isinstance(self.inner, torch.jit.ScriptModule):
            self.inner.forward = forward  # type: ignore[method-assign]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


class Referring(Around):
    """Refers to itself, weakly and strongly, and to a thread's own values."""

    def begin(self, records: list[Any]) -> None:
        self.others = [self]
        self.me = weakref.ref(self)
        self.local = threading.local()
        self.local.calls = 0
        self.variable: contextvars.ContextVar[int] = contextvars.ContextVar("calls", default=0)
        records += [lambda: self.local.calls, self.variable.get, lambda: self.me() is self]

    def forward(self, x: Tensor) -> Tensor:
        self.local.calls = getattr(self.local, "calls", 0) + 1
        self.variable.set(self.variable.get() + 1)
        found: Tensor = self.inner(x)
        return found


class Caught(Around):
    """Raises and catches, warns, and imports."""

    def forward(self, x: Tensor) -> Tensor:
        try:
            torch.ones(2, 3).mm(torch.ones(2, 3))
        except RuntimeError:
            warnings.warn("the user's own warning", stacklevel=1)
        import colorsys

        return super().forward(x * (1.0 + 0.0 * colorsys.rgb_to_hls(0.1, 0.2, 0.3)[0]))


class Functional(Around):
    """Calls the layer with weights of its own making, and maps over the rows."""

    def forward(self, x: Tensor) -> Tensor:
        weights = {name: weight * 1.0 for name, weight in self.inner.named_parameters()}
        y: Tensor = functional_call(self.inner, weights, (x,))
        return torch.vmap(lambda row: row * 2)(y)


class InPlace(Around):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x * 1.0)
        z = y * 1.0
        z[..., 0] = 0
        return nn.functional.leaky_relu(z.add_(2), inplace=True)


class Pruned(Around):
    def begin(self, records: list[Any]) -> None:
        for module in self.inner.modules():
            if type(module) is nn.Linear and not parametrize.is_parametrized(module):
                prune.random_unstructured(module, "weight", 0.5)
                break


class Averaged(Around):
    """An average of its weights, kept by hand in plain attributes, as exponential moving averages are."""

    def begin(self, records: list[Any]) -> None:
        self.shadow = {name: weight.detach().clone() for name, weight in self.inner.named_parameters()}
        records.append(self.shadow)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            for name, weight in self.inner.named_parameters():
                self.shadow[name] = 0.9 * self.shadow[name].to(weight.device) + 0.1 * weight
        return super().forward(x)


class Frozen(Around):
    def begin(self, records: list[Any]) -> None:
        self.inner.requires_grad_(False)
        self.inner.eval()


class RefusesMeta(Around):
    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "meta":
            raise NotImplementedError("no meta tensors")
        return super().forward(x)


class RefusesCopies(Around):
    def __deepcopy__(self, memo: Any) -> Any:
        raise KeyError("there is only one of me")


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 2)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 2 * context.saved_tensors[0]


class LeavesTorch(Around):
    """Computes in numpy, in an autograd function of its own."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = _Square.apply(super().forward(x))
        return found


AROUND = (
    Counted, Cached, Closure, Noisy, Suspended, Threaded, Locked, Checkpointed, CheckpointedAgain, Autocast, Centred,
    Branching, Dropping, OwnGradient, Forwarding, Hooked, Frozen, Logging, Growing, Remembered, OnArrays, Sharing,
    Toggling, Patched, Referring, Caught, Functional, InPlace, Pruned, Averaged, RefusesMeta, RefusesCopies,
    LeavesTorch,
)  # fmt: skip


# --- heads ------------------------------------------------------------------------------------------------------------


def plain(width: int) -> nn.Module:
    return nn.Linear(width, CLASSES)


def lazy(width: int) -> nn.Module:
    return nn.LazyLinear(CLASSES)


def tied(width: int) -> nn.Module:
    first, second = nn.Linear(width, width), nn.Linear(width, width)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Linear(width, CLASSES))


def one_layer_twice(width: int) -> nn.Module:
    layer = nn.Linear(width, width)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(width, CLASSES))


def weight_norm(width: int) -> nn.Module:
    return parametrizations.weight_norm(nn.Linear(width, CLASSES))


def spectral_norm(width: int) -> nn.Module:
    return parametrizations.spectral_norm(nn.Linear(width, CLASSES))


def orthogonal(width: int) -> nn.Module:
    return nn.Sequential(parametrizations.orthogonal(nn.Linear(width, width)), nn.Linear(width, CLASSES))


def scripted(width: int) -> nn.Module:
    return torch.jit.script(nn.Linear(width, CLASSES))


HEADS = (plain, lazy, tied, one_layer_twice, weight_norm, spectral_norm, orthogonal, scripted)
