"""Random small training scripts: what people write round a model, and what a library that looks at it could disturb."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import os
import random as python_random
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
from process_state import process_state
from random_modules import random_module
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint

ROWS = 4
CLASSES = 3


@dataclass
class Script:
    """A model, what trains it, one batch, and all that the user could find changed.

    ``drawn`` names what is in it. ``records`` are containers that the model or the loss writes to, generators of random
    numbers included. ``step`` trains once, on a batch and a target like those here, and returns the loss.
    """

    model: nn.Module
    batch: Any
    target: Tensor
    loss: Callable[..., Tensor]
    optimizer: torch.optim.Optimizer
    drawn: list[str]
    records: list[Any]
    surroundings: Callable[[], contextlib.AbstractContextManager[Any]]
    is_function: bool = False
    scheduler: Any = None

    def step(self, batch: Any, target: Tensor) -> Tensor:
        def evaluate() -> Tensor:
            self.optimizer.zero_grad()
            loss = self.loss(call(self.model, batch), target)
            loss.backward()
            return loss

        if isinstance(self.optimizer, torch.optim.LBFGS):
            return self.optimizer.step(evaluate)
        loss = evaluate()
        self.optimizer.step()
        return loss

    def question(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of ``choose`` and ``explain``."""
        if self.is_function:
            return (self.step, (self.batch, self.target)), {"modules": self.modules, "optimizer": self.optimizer}
        loss = functools.partial(loss_of_output, self.loss)
        return (self.model, self.batch), {"loss": loss, "target": self.target, "optimizer": self.optimizer}

    @property
    def modules(self) -> list[nn.Module]:
        return [self.model, self.loss] if isinstance(self.loss, nn.Module) else [self.model]

    def state(self) -> dict[str, Any]:
        """All there is to see of the user's objects and of the process."""
        watched = [*self.modules, self.optimizer, *([self.scheduler] if self.scheduler else [])]
        tensors = [t for t in (self.target, *flat(self.batch)) if isinstance(t, Tensor)]
        return {
            **process_state(*watched),
            "records": [_record(record) for record in self.records],
            "batch": [(id(t), t._version, t.requires_grad, t.grad, t.detach().clone()) for t in tensors],
        }

    def results(self) -> list[Tensor]:
        """What two steps on the CPU come to: the losses, then all parameters and buffers."""
        _seed(1)
        losses = [self.step(self.batch, self.target).detach().clone() for _ in range(2)]
        tensors = [t for module in self.modules for t in (*module.parameters(), *module.buffers())]
        return [*losses, *(t.detach().clone() for t in tensors)]


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    python_random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


class Row(NamedTuple):
    """A batch as data sets of one's own give it."""

    x: Tensor
    name: str


@dataclass
class Item:
    """The same with a dataclass."""

    x: Tensor
    about: dict[str, str]


def flat(batch: Any) -> list[Any]:
    """What a batch holds, at any depth."""
    if isinstance(batch, Item):
        batch = (batch.x, batch.about)
    if isinstance(batch, dict):
        batch = tuple(batch.values())
    return [leaf for item in batch for leaf in flat(item)] if isinstance(batch, (tuple, list)) else [batch]


def moved(batch: Any, device: str) -> Any:
    """A batch on a device, as its user would write it."""
    if isinstance(batch, Item):
        return Item(batch.x.detach().to(device), batch.about)
    return tree_map_only(Tensor, lambda t: t.detach().to(device), batch)


def call(model: nn.Module, batch: Any) -> Tensor:
    """What a model makes of a batch that trains it."""
    if isinstance(batch, dict):
        return loss_input(model(**batch))
    return loss_input(model(*batch) if type(batch) is tuple else model(batch))


def loss_input(output: Any) -> Tensor:
    """The part of a model's output that trains it."""
    if isinstance(output, dict):
        output = output["logits"]
    while isinstance(output, (tuple, list)):
        output = output[0]
    found: Tensor = output
    return found


def loss_of_output(loss: Callable[..., Tensor], output: Any, target: Tensor) -> Tensor:
    """The loss of an output in any form."""
    return loss(loss_input(output), target)


def _record(record: Any) -> Any:
    if callable(record):
        return record()
    if isinstance(record, torch.Generator):
        return record.get_state()
    if isinstance(record, np.random.Generator):
        return repr(record.bit_generator.state)
    return copy.deepcopy(record)


# --- what surrounds a layer -------------------------------------------------------------------------------------------


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
        records += [lambda: (self.file.seek(0), self.file.read()), lambda: os.environ.get("USERS_CALLS"),
                    lambda: Logging.calls]  # fmt: skip

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

    @functools.lru_cache(maxsize=None)  # noqa: B019 - users write it
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
        return nn.functional.leaky_relu(z, inplace=True).add_(2)


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


AROUND = (
    Counted, Cached, Closure, Noisy, Suspended, Threaded, Locked, Checkpointed, CheckpointedAgain, Autocast, Centred,
    Branching, Dropping, OwnGradient, Forwarding, Hooked, Frozen, Logging, Growing, Remembered, OnArrays, Sharing,
    Toggling, Patched, Referring, Caught, Functional, InPlace, Pruned, Averaged,
)  # fmt: skip


# --- heads ------------------------------------------------------------------------------------------------------------


def _plain(width: int) -> nn.Module:
    return nn.Linear(width, CLASSES)


def _lazy(width: int) -> nn.Module:
    return nn.LazyLinear(CLASSES)


def _tied(width: int) -> nn.Module:
    first, second = nn.Linear(width, width), nn.Linear(width, width)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Linear(width, CLASSES))


def _one_layer_twice(width: int) -> nn.Module:
    layer = nn.Linear(width, width)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(width, CLASSES))


def _weight_norm(width: int) -> nn.Module:
    return parametrizations.weight_norm(nn.Linear(width, CLASSES))


def _spectral_norm(width: int) -> nn.Module:
    return parametrizations.spectral_norm(nn.Linear(width, CLASSES))


def _orthogonal(width: int) -> nn.Module:
    return nn.Sequential(parametrizations.orthogonal(nn.Linear(width, width)), nn.Linear(width, CLASSES))


def _scripted(width: int) -> nn.Module:
    return torch.jit.script(nn.Linear(width, CLASSES))


HEADS = (_plain, _lazy, _tied, _one_layer_twice, _weight_norm, _spectral_norm, _orthogonal, _scripted)


class Net(nn.Module):
    """A body, what the user wrote round it, and a head. Takes a batch in any form and gives an output in any form."""

    def __init__(self, body: nn.Module, head: nn.Module, output: str) -> None:
        super().__init__()
        self.body, self.head, self.form = body, head, output

    def forward(self, x: Any, mask: Tensor | None = None, notes: Sequence[str] = ()) -> Any:
        if isinstance(x, (Row, Item)):
            x = x.x
        elif isinstance(x, list):
            x = x[0]
        if x.is_sparse:
            x = x.to_dense()
        y = self.head(self.body(x).flatten(1))
        if mask is not None:
            y = y * mask
        return {"tensor": y, "tuple": (y, x), "dict": {"logits": y, "notes": list(notes)}}[self.form]


class Words(nn.Module):
    """The body of a model of words: its gradients are sparse."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8, sparse=sparse)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.table(x).mean(1)
        return found


# --- losses -----------------------------------------------------------------------------------------------------------


class Remembering(nn.Module):
    """A loss with a parameter, a buffer and Python state."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))
        self.register_buffer("usual", torch.zeros(()))
        self.history: list[float] = []

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(output / self.temperature, target)
        self.usual.mul_(0.9).add_(0.1 * loss.detach())
        self.history.append(len(self.history))
        return loss + 0 * self.usual


def _loss(random: Random, records: list[Any]) -> Callable[..., Tensor]:
    kind = random.choice(("function", "module", "weighted", "remembering", "closure"))
    if kind == "function":
        return nn.functional.cross_entropy
    if kind == "module":
        return nn.CrossEntropyLoss(label_smoothing=0.1)
    if kind == "weighted":
        return nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]))
    if kind == "remembering":
        loss = Remembering()
        records.append(loss.history)
        return loss
    losses: list[int] = []
    records.append(losses)

    def smoothed(output: Tensor, target: Tensor) -> Tensor:
        losses.append(len(output))
        return nn.functional.cross_entropy(output, target) + 0.01 * output.square().mean()

    return smoothed


# --- optimizers -------------------------------------------------------------------------------------------------------

OPTIMIZERS = sorted(
    name for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
)  # fmt: skip
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
_WITHOUT_FOREACH = ("LBFGS", "Muon", "SparseAdam", "Adafactor")


def _optimizer(random: Random, name: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """One of torch's, in one of its forms, of one or two groups."""
    settings: dict[str, Any] = {}
    form = random.choice(("plain", "foreach", "loop", "fused"))
    if form == "fused" and name in _FUSED:
        settings["fused"] = True
    elif form in ("foreach", "loop") and name not in _WITHOUT_FOREACH:
        settings["foreach"] = form == "foreach"
    if name == "SGD":
        settings |= {"lr": 0.01, "momentum": random.choice((0.0, 0.9))}
    if name in ("Adam", "AdamW"):
        settings["amsgrad"] = random.random() < 0.3
    if name == "LBFGS":
        settings["max_iter"] = 3
    kind = getattr(torch.optim, name)
    if len(parameters) > 1 and name != "LBFGS" and random.random() < 0.4:
        groups = [{"params": parameters[:1], "lr": 0.02}, {"params": parameters[1:]}]
        made: torch.optim.Optimizer = kind(groups, **settings)
    else:
        made = kind(parameters, **settings)
    return made


# --- what a script calls placer in ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _beside_a_thread() -> Iterator[None]:
    """Another thread of the user's computes all the while."""
    done = threading.Event()

    def compute() -> None:
        while not done.wait(0.001):
            torch.ones(8, 8).mm(torch.ones(8, 8))

    thread = threading.Thread(target=compute, name="user's work")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


SURROUNDINGS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "plainly": contextlib.nullcontext, "without gradients": torch.no_grad, "in inference mode": torch.inference_mode,
    "in autocast": lambda: torch.autocast("cpu", torch.bfloat16), "beside a thread": _beside_a_thread,
    "detecting anomalies": torch.autograd.detect_anomaly, "deterministic": _deterministic,
}  # fmt: skip


# --- the script -------------------------------------------------------------------------------------------------------


def random_script(seed: int) -> Script:
    """The script of a seed: the same each time, in all its numbers."""
    random = Random(seed)
    _seed(seed)
    records: list[Any] = []
    name = random.choice(OPTIMIZERS)
    of_words = name == "SparseAdam" or random.random() < 0.1
    drawn = [name]
    if of_words:
        body: nn.Module = Words(sparse=name == "SparseAdam")
        x, width = torch.randint(0, 50, (ROWS, 5)), 8
    else:
        body, shape = random_module(random)
        x = _odd(random, torch.randn(ROWS, *shape))
        with torch.no_grad():
            width = copy.deepcopy(body)(x.to_dense()).flatten(1).shape[1]
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            kind = random.choice(AROUND)
            body = kind(body, records)
            drawn.append(kind.__name__)
    head = random.choice(HEADS if name != "SparseAdam" else (_plain,))
    model = Net(body, head(width), random.choice(("tensor", "tuple", "dict")))
    batch = _batch(random, x)
    loss = _loss(random, records)
    surroundings = random.choice(sorted(SURROUNDINGS))
    is_function = random.random() < 0.3
    if head is _lazy and (is_function or name == "Adagrad" or random.random() < 0.7):
        call(model, batch)  # it has weights once a batch was seen
    drawn += [head.__name__.strip("_"), model.form, type(batch).__name__, type(loss).__name__, surroundings]
    script = Script(
        model, batch, torch.randint(0, CLASSES, (ROWS,)), loss, _trained(random, name, model, loss), drawn, records,
        SURROUNDINGS[surroundings], is_function,
    )  # fmt: skip
    if random.random() < 0.3:
        script.scheduler = torch.optim.lr_scheduler.StepLR(script.optimizer, 2)
    if random.random() < 0.4:  # in the middle of a training
        script.step(batch, script.target)
        drawn.append("after a step")
    return script


def _trained(random: Random, name: str, model: nn.Module, loss: Any) -> torch.optim.Optimizer:
    parameters = [p for p in model.parameters() if p.requires_grad]
    if isinstance(loss, nn.Module):
        parameters += list(loss.parameters())
    if name == "Muon":
        parameters = [p for p in parameters if not nn.parameter.is_lazy(p) and p.ndim == 2]
    elif name == "SparseAdam":
        parameters = [p for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()]
    if not parameters:
        name, parameters = "SGD", [p for p in model.parameters() if p.requires_grad]
    return _optimizer(random, name, parameters)


class Sample(Tensor):
    """A tensor as some data sets give it."""


def _odd(random: Random, x: Tensor) -> Tensor:
    """A tensor as data pipelines give it: not always dense, at times with a gradient."""
    kind = random.choice(("dense", "dense", "transposed", "expanded", "offset", "with gradient", "of a class", "sparse"))
    if kind == "of a class":
        return x.as_subclass(Sample)
    if kind == "sparse":
        return x.to_sparse()
    if kind == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if kind == "expanded":
        return x[:1].expand_as(x)
    if kind == "offset":
        return torch.cat([x, x])[1 : 1 + ROWS]
    return x.requires_grad_() if kind == "with gradient" else x


def _batch(random: Random, x: Tensor) -> Any:
    mask = torch.ones(ROWS, 1)
    return random.choice([
        x, x, (x, mask), {"x": x, "mask": mask}, {"x": x, "notes": ["a", "b"]}, (Row(x, "first"),),
        (Item(x, {"origin": "here"}),), ([x, [None, "padding"]],), (x, None, ("a",)),
    ])  # fmt: skip
