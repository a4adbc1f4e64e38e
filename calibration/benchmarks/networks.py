"""Random networks: what composition adds, learnt from whole steps.

Depth, width, kind of layer, activation, normalization, batch and mode are drawn at random. No network of the validation
suite is ever built here: a model fitted on what it is scored with would only remember.

Most networks are wrapped, layers within layers, as libraries of models write them: that is the Python around an op. A
function that has just run costs a fraction of one whose code has to come back from memory. Torch's own functions run
around every layer, those of a library once for each of its ops. So wrappers are other code than the next, or all alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.functions import DRAWN_LOSSES, loss_named
from placer.calibration.benchmarks.kinds import (
    Layers,
    cnn,
    graph,
    mlp,
    pieces,
    recurrent,
    single,
    small,
    solver,
    transformer,
)
from placer.calibration.benchmarks.probe import Limit, Probe, log_uniform

Kind = Callable[[Random], tuple[Layers, Tensor]]

#: All kinds, as often as they are drawn. A network's name begins with that of its kind.
KINDS = (mlp, mlp, single, small, small, cnn, cnn, transformer, transformer, recurrent, graph, pieces, solver)
OPTIMIZERS = ("adam", "adam", "adam", "adamw", "sgd", "rmsprop")
#: Networks drawn before the smallest of them is taken, however small the limit; of so many that fit, the largest is:
#: most that are drawn are far smaller than what they may be, and where only small ones were seen, what a step's other
#: ops do to an op of a millisecond is a guess.
DRAWS, FITTING = 60, 2
#: Smallest share of the limit that a step may be held to.
LEAST_SHARE = 3e-4


def propose(random: Random, limit: Limit) -> Probe:
    """A network whose step stays within ``limit``, of all sizes below it."""
    train = random.random() < 0.55
    allowed = limit.share(log_uniform(random, LEAST_SHARE, 1.0) / (3 if train else 1))
    kind = random.choice(KINDS)
    seed = _fitting(random, kind, allowed)
    # Python between the ops comes in all amounts: without it, an op's own share could not be told from a function's.
    depth = random.choice((0, 0, 0, 1, 2, 4))
    loss = random.choice(DRAWN_LOSSES) if train else ""

    def build() -> nn.Module:
        drawn = Random(seed)
        layers = wrap(kind(drawn)[0], depth, drawn)
        # Called as it is, one layer shows what a step costs beside the modules in it.
        return layers[0] if len(layers) == 1 else nn.Sequential(*layers)

    return Probe(
        family="network",
        name=f"{kind.__name__} {seed:x} {loss}".rstrip(),
        build=build,
        example=partial(_input, kind, seed),
        mode="train" if train else "infer",
        optimizer=random.choice(OPTIMIZERS) if train else None,
        loss=loss_named(loss),
    )


def _input(kind: Kind, seed: int) -> tuple[Tensor]:
    return (kind(Random(seed))[1],)


def _fitting(random: Random, kind: Kind, allowed: Limit) -> int:
    """The seed of the largest of ``FITTING`` networks of this kind that are allowed; of the smallest where none is."""
    taken: dict[int, float] = {}
    fit: list[int] = []
    for _ in range(DRAWS):
        seed = random.getrandbits(48)
        with torch.device("meta"):  # sizes only: no weight is drawn for a network that is too large
            layers, _ = kind(Random(seed))
        taken[seed] = allowed.taken(layers.flops, layers.bytes)
        if taken[seed] <= 1.0:
            fit.append(seed)
            if len(fit) == FITTING:
                break
    return max(fit, key=taken.__getitem__) if fit else min(taken, key=taken.__getitem__)


class Wrapper(nn.Module):
    """A layer inside a layer."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


class Merging(Wrapper):
    """Options are merged, the input is looked at."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.defaults = {"scale": 1.0, "return_mask": False}

    def forward(self, x: Tensor, mask: Tensor | None = None, **options: Any) -> Any:
        settings = self._merged(options)
        if not self._expects(x) or (settings["return_mask"] and mask is not None):
            raise ValueError(f"a tensor of at least one dimension is needed, got {x.shape}")
        return self.inner(x)

    def _merged(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**self.defaults, **{name: value for name, value in options.items() if value is not None}}

    def _expects(self, x: Tensor) -> bool:
        return isinstance(x, Tensor) and x.dim() > 0


class Config:
    """Settings of a model, read by name."""

    def __init__(self, **settings: Any) -> None:
        self.__dict__.update(settings)

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


class Configured(Wrapper):
    """What to return is looked up in a configuration; the result travels in a tuple."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.config = Config(output_states=False, use_return_dict=True, chunk_size=0)

    def forward(self, x: Tensor, states: Tensor | None = None, output_states: bool | None = None) -> Any:
        wanted = output_states if output_states is not None else self.config.get("output_states")
        outputs = self._layer(x, states)
        if wanted:
            outputs = (*outputs, x)
        return self._unpacked(outputs, self.config.get("use_return_dict", True))

    def _layer(self, x: Tensor, states: Tensor | None) -> tuple[Any, ...]:
        chunk = self.config.get("chunk_size", 0)
        if chunk > 0 and states is not None:
            raise ValueError("chunks and states exclude each other")
        return (self.inner(x),)

    def _unpacked(self, outputs: tuple[Any, ...], as_dict: bool) -> Any:
        named = dict(zip(("last", "states"), outputs, strict=False)) if as_dict else {"last": outputs[0]}
        return named["last"]


class Collecting(Wrapper):
    """Arguments are collected by the names that each stage asks for, then handed out."""

    STAGES: ClassVar[dict[str, tuple[str, ...]]] = {
        "message": ("x", "size"), "aggregate": ("inputs", "dim"), "update": ("inputs",),
    }  # fmt: skip

    def forward(self, x: Tensor) -> Any:
        collected = self._collect({"x": x, "size": tuple(x.shape), "dim": -1})
        collected["inputs"] = self._message(**self._handed(self.STAGES["message"], collected))
        collected["inputs"] = self._aggregate(**self._handed(self.STAGES["aggregate"], collected))
        return self._update(**self._handed(self.STAGES["update"], collected))

    def _collect(self, given: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for names in self.STAGES.values():
            for name in names:
                if name in given and name not in found:
                    found[name] = given[name]
        return found

    def _handed(self, names: tuple[str, ...], collected: dict[str, Any]) -> dict[str, Any]:
        handed = {}
        for name in names:
            value = collected.get(name)
            if value is None:
                raise TypeError(f"{name} is needed")
            handed[name] = value
        return handed

    def _message(self, x: Tensor, size: tuple[int, ...]) -> Any:
        if len(size) != x.dim():
            raise ValueError(f"sizes of {x.dim()} dimensions are needed, got {size}")
        return self.inner(x)

    def _aggregate(self, inputs: Tensor, dim: int) -> Tensor:
        return inputs if dim < 0 else inputs.flatten(dim)

    def _update(self, inputs: Tensor) -> Tensor:
        return inputs


class Watched(Wrapper):
    """Callbacks are told before and after, inside a context."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.callbacks: list[Any] = [Config(name="first"), Config(name="second")]
        self.depth = 0

    def forward(self, x: Tensor) -> Tensor:
        self._tell("before", x)
        with self._inside(type(self.inner).__name__):
            result: Tensor = self.inner(x)
        self._tell("after", result)
        return result

    def _tell(self, event: str, x: Tensor) -> None:
        for callback in self.callbacks:
            handler = callback.get(f"on_{event}")
            if handler is not None:
                handler(x)

    @contextlib.contextmanager
    def _inside(self, name: str) -> Iterator[str]:
        self.depth += 1
        try:
            yield name
        finally:
            self.depth -= 1


class Checked(Wrapper):
    """Shapes, dtype and mode are checked, sizes put together, as functional layers do before they call a kernel."""

    def forward(self, x: Tensor, size: int | None = None, affine: bool = True) -> Any:
        self._check_dimensions(x)
        padded = self._sizes(x, size)
        if self.training and affine and padded and min(padded) < 0:
            raise ValueError(f"sizes from 0 on are needed, got {padded}")
        if x.is_floating_point() and x.requires_grad and not affine:
            raise ValueError("a layer without weights takes no gradient")
        return self.inner(x)

    def _check_dimensions(self, x: Tensor) -> None:
        if x.dim() not in (1, 2, 3, 4, 5):
            raise ValueError(f"1 to 5 dimensions are needed, got {x.dim()}")

    def _sizes(self, x: Tensor, size: int | None) -> list[int]:
        sizes = []
        for d in range(min(x.dim(), 3)):
            wanted = size if size is not None else x.size(d)
            sizes.append(max(wanted, x.size(d)) - x.size(d))
        return sizes


STYLES: tuple[type[Wrapper], ...] = (Merging, Configured, Collecting, Watched, Checked)


def wrap(layers: Iterable[nn.Module], depth: int, random: Random) -> list[nn.Module]:
    """Each of ``layers`` inside ``depth`` wrappers (at most 5): of as many kinds or, half the time, all of one."""
    alike = random.choice(STYLES) if random.random() < 0.5 else None
    result = []
    for layer in layers:
        for style in [alike] * depth if alike else random.sample(STYLES, depth):
            layer = style(layer)
        result.append(layer)
    return result
