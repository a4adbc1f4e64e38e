"""Random small training scripts: what people write round a model, and what a library that looks at it could disturb."""

from __future__ import annotations

import contextlib
import copy
import functools
import random as python_random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
from process_state import process_state
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from users_modules import AROUND, CLASSES, HEADS, lazy, plain

ROWS = 4


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
        seed_all(1)
        losses = [self.step(self.batch, self.target).detach().clone() for _ in range(2)]
        tensors = [t for module in self.modules for t in (*module.parameters(), *module.buffers())]
        return [*losses, *(t.detach().clone() for t in tensors)]


def seed_all(seed: int) -> None:
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


# --- the model --------------------------------------------------------------------------------------------------------


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


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.GRU(8, 12, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)[0]
        return found


def of_features() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Mish(), nn.Dropout(0.1), nn.Linear(8, 12), nn.PReLU())


def of_images() -> nn.Module:
    first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, padding=1, groups=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(first, nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8), nn.GroupNorm(2, 8), nn.GELU())


def of_sequences() -> nn.Module:
    return nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.LayerNorm(8), nn.Softmax(-1))


#: Bodies, and the shape of a row for each.
BODIES: tuple[tuple[Callable[[], nn.Module], tuple[int, ...]], ...] = (
    (of_features, (12,)), (of_images, (3, 8, 8)), (of_sequences, (5, 8)), (Recurrent, (5, 8)),
)  # fmt: skip


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
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
)
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
    "plainly": contextlib.nullcontext,
    "without gradients": torch.no_grad,
    "in inference mode": torch.inference_mode,
    "in autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "beside a thread": _beside_a_thread,
    "detecting anomalies": torch.autograd.detect_anomaly,
    "deterministic": _deterministic,
}


# --- the script -------------------------------------------------------------------------------------------------------


def random_script(seed: int) -> Script:
    """The script of a seed: the same each time, in all its numbers."""
    random = Random(seed)
    seed_all(seed)
    records: list[Any] = []
    name = random.choice(OPTIMIZERS)
    of_words = name == "SparseAdam" or random.random() < 0.1
    drawn = [name]
    if of_words:
        body: nn.Module = Words(sparse=name == "SparseAdam")
        x, width = torch.randint(0, 50, (ROWS, 5)), 8
    else:
        build, shape = random.choice(BODIES)
        body = build()
        x = _odd(random, torch.randn(ROWS, *shape))
        with torch.no_grad():
            width = copy.deepcopy(body)(x.to_dense()).flatten(1).shape[1]
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            kind = random.choice(AROUND)
            body = kind(body, records)
            drawn.append(kind.__name__)
    head = random.choice(HEADS if name != "SparseAdam" else (plain,))
    model = Net(body, head(width), random.choice(("tensor", "tuple", "dict")))
    batch = _batch(random, x)
    loss = _loss(random, records)
    surroundings = random.choice(sorted(SURROUNDINGS))
    is_function = random.random() < 0.3
    if head is lazy and (is_function or name == "Adagrad" or random.random() < 0.7):
        call(model, batch)  # it has weights once a batch was seen
    drawn += [head.__name__, model.form, type(batch).__name__, type(loss).__name__, surroundings]
    script = Script(
        model,
        batch,
        torch.randint(0, CLASSES, (ROWS,)),
        loss,
        _trained(random, name, model, loss),
        drawn,
        records,
        SURROUNDINGS[surroundings],
        is_function,
    )
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


ODD = ("dense", "dense", "transposed", "expanded", "offset", "with gradient", "of a class", "sparse")


class Sample(Tensor):
    """A tensor as some data sets give it."""


def _odd(random: Random, x: Tensor) -> Tensor:
    """A tensor as data pipelines give it: not always dense, at times with a gradient."""
    kind = random.choice(ODD)
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
    return random.choice(
        [
            x,
            x,
            (x, mask),
            {"x": x, "mask": mask},
            {"x": x, "notes": ["a", "b"]},
            (Row(x, "first"),),
            (Item(x, {"origin": "here"}),),
            ([x, [None, "padding"]],),
            (x, None, ("a",)),
        ]
    )
