"""``placer validate --suite held-out``: networks drawn at random that no fit ever saw.

Some are drawn as calibration draws its own, most are of other structures.

The latter are of the kinds whose predictions have been furthest off: recurrent layers, graphs, perceptrons and long
chains of elementwise ops on thousands of rows, convolutions whose results are concatenated and pooled, and steps with
much Python in them. No network of the validation suite is among them, and calibration never builds one of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.benchmarks import PROPOSERS
from placer.calibration.benchmarks.probe import Limit, Probe, log_int
from placer.calibration.suite import Entry
from placer.calibration.suite.entry import Mode

#: Networks of each kind, and those that are drawn as calibration draws them.
OF_EACH_KIND, AS_CALIBRATION = 20, 40
#: The most work of the latter's forward, FLOPs and bytes: some hundredths of a second on two cores.
LIMIT = Limit(2e9, 4e8)
#: Share of the networks that are trained.
TRAINED = 0.7

Drawn = tuple[Callable[[], nn.Module], Callable[[], Any]]


def held_out_entries(*, of_each: int = OF_EACH_KIND, as_calibration: int = AS_CALIBRATION) -> list[Entry]:
    """The networks, the same on every machine; each has one batch and one mode."""
    found = []
    for kind in (recurrent, graph, perceptron, elementwise, concatenating, distributions):
        for number in range(of_each):
            random = Random(f"{kind.__name__} {number}")
            mode: Mode = "train" if random.random() < TRAINED else "infer"
            found.append(_entry(f"{kind.__name__}_{number}", kind.__name__, kind(random), mode))
    for number in range(as_calibration):
        probe: Probe = PROPOSERS["network"][0](Random(f"as calibration {number}"), LIMIT)
        entry = _entry(f"generated_{number}", "generated", (probe.build, probe.example), probe.mode)
        found.append(replace(entry, optimizer=probe.optimizer or entry.optimizer, loss=probe.loss))
    return found


def _entry(name: str, family: str, drawn: Drawn, mode: Mode) -> Entry:
    build, example = drawn
    shape = next(t.shape for t in example() if isinstance(t, Tensor))
    return Entry(name, family, build, lambda _: example(), (shape[0] if shape else 1,), (mode,))


class _Recurrent(nn.Module):
    def __init__(self, layer: nn.RNNBase, out: int, last: bool) -> None:
        super().__init__()
        self.layer, self.last = layer, last
        self.head = nn.Linear(layer.hidden_size * (2 if layer.bidirectional else 1), out)

    def forward(self, x: Tensor) -> Tensor:
        states = self.layer(x)[0]
        result: Tensor = self.head(states[:, -1] if self.last else states)
        return result


def recurrent(random: Random) -> Drawn:
    """Plain, GRU and LSTM layers, a third in both directions, with a head on the last state or on all of them."""
    kind = random.choice((nn.RNN, nn.RNN, nn.GRU, nn.GRU, nn.LSTM))
    width, hidden, layers = log_int(random, 1, 256), log_int(random, 8, 512), random.choice((1, 1, 2, 3))
    both, last, out = random.random() < 0.35, random.random() < 0.5, log_int(random, 1, 64)
    batch, length = log_int(random, 1, 256), log_int(random, 4, 128)
    while batch * length * layers * (1 + both) * (width + 2 * hidden) * hidden > 3e8:
        batch, hidden = max(batch // 2, 1), max(hidden // 2, 8)
    return (
        lambda: _Recurrent(kind(width, hidden, num_layers=layers, bidirectional=both, batch_first=True), out, last),
        lambda: (torch.randn(batch, length, width),),
    )


class _Messages(nn.Module):
    """One round of messages: rows are gathered along edges, weighed, and put together at their targets."""

    def __init__(self, width: int, how: str) -> None:
        super().__init__()
        self.linear, self.how, self.score = nn.Linear(width, width), how, nn.Linear(2 * width, 1)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        h = self.linear(x)
        if self.how == "attention":
            weights = F.leaky_relu(self.score(torch.cat([h[source], h[target]], -1))).exp()
            total = torch.zeros(len(x), 1).index_add(0, target, weights)
            return torch.zeros_like(h).index_add(0, target, weights * h[source]) / (total + 1e-9)
        index = target.unsqueeze(-1).expand(-1, h.shape[-1])
        messages = h.index_select(0, source)
        if self.how == "sum":
            return torch.zeros_like(h).scatter_add(0, index, messages)
        return torch.zeros_like(h).scatter_reduce(0, index, messages, self.how, include_self=False)


class _Graph(nn.Module):
    def __init__(self, inputs: int, width: int, rounds: int, how: str, out: int) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(inputs, width), nn.Linear(width, out)
        self.rounds = nn.ModuleList(_Messages(width, how) for _ in range(rounds))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = torch.relu(self.first(x))
        for messages in self.rounds:
            h = torch.relu(h + messages(h, edges))
        result: Tensor = self.head(h)
        return result


def graph(random: Random) -> Drawn:
    """Messages along edges: summed, averaged, the largest of them, or weighed by attention."""
    how = random.choice(("sum", "mean", "amax", "attention"))
    nodes, inputs, width = log_int(random, 64, 8192), log_int(random, 4, 256), log_int(random, 4, 128)
    edges, rounds, out = nodes * random.randint(2, 12), random.randint(1, 3), log_int(random, 1, 32)

    def example() -> tuple[Tensor, Tensor]:
        return torch.randn(nodes, inputs), torch.randint(0, nodes, (2, edges))

    return lambda: _Graph(inputs, width, rounds, how, out), example


def perceptron(random: Random) -> Drawn:
    """Two to six layers on 500 to 16,000 rows."""
    rows, widths = log_int(random, 500, 16384), [log_int(random, 8, 512) for _ in range(random.randint(3, 7))]
    activation = random.choice((nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.ELU))
    norm = random.choice((None, None, nn.LayerNorm, nn.BatchNorm1d))
    while rows * sum(a * b for a, b in pairwise(widths)) > 1e9:
        rows //= 2

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for i, (a, b) in enumerate(pairwise(widths)):
            layers.append(nn.Linear(a, b))
            if i < len(widths) - 2:
                layers += [norm(b)] if norm is not None else []
                layers.append(activation())
        return nn.Sequential(*layers)

    return build, lambda: (torch.randn(rows, widths[0]),)


_ARITHMETIC: tuple[Callable[[Tensor, Tensor, Tensor], Tensor], ...] = (
    lambda x, w, y: x * w,
    lambda x, w, y: x + y,
    lambda x, w, y: torch.tanh(x),
    lambda x, w, y: x - 0.5 * y,
    lambda x, w, y: torch.sigmoid(x) * y,
    lambda x, w, y: x / (y.abs() + 1.0),
    lambda x, w, y: torch.sin(x),
    lambda x, w, y: torch.where(x > 0, x, y),
    lambda x, w, y: (x * x + y * y + 1e-3).sqrt(),
    lambda x, w, y: torch.clamp(x, -2, 2),
    lambda x, w, y: x - x.mean(0),
    lambda x, w, y: F.softplus(x) - w,
    lambda x, w, y: torch.cat([x[:, 1:], y[:, :1]], -1),
    lambda x, w, y: torch.exp(-x.abs()),
)
#: Those with a weight.
_WEIGHED = {0, 11}


class _Arithmetic(nn.Module):
    def __init__(self, width: int, chosen: list[int]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(width)) for _ in chosen)
        self.chosen = chosen

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for number, w in zip(self.chosen, self.weights, strict=True):
            x, y = _ARITHMETIC[number](x, w, y), x
        return x


def elementwise(random: Random) -> Drawn:
    """Four to forty ops on single numbers, on 1,000 to 10,000 rows."""
    rows, width = log_int(random, 1000, 10000), log_int(random, 2, 128)
    chosen = [random.randrange(len(_ARITHMETIC)) for _ in range(random.randint(4, 40))]
    if not _WEIGHED & set(chosen):
        chosen[0] = min(_WEIGHED)  # something must be trained
    return lambda: _Arithmetic(width, chosen), lambda: (torch.randn(rows, width),)


class _Block(nn.Module):
    """Branches of convolutions whose results are concatenated, or are put beside what came in."""

    def __init__(self, inputs: int, growth: int, branches: int, dense: bool) -> None:
        super().__init__()
        self.dense = dense
        self.branches = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, growth, 1 + 2 * (i % 2), padding=i % 2))
            for i in range(branches)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([*([x] if self.dense else []), *(branch(x) for branch in self.branches)], 1)


def concatenating(random: Random) -> Drawn:
    """Convolutional networks that concatenate and pool, as DenseNet and Inception do."""
    growth, blocks, size = random.choice((8, 12, 16, 24, 32)), random.randint(2, 8), random.choice((16, 24, 32, 48))
    branches, dense = random.randint(1, 4), random.random() < 0.6
    batch, pool = log_int(random, 1, 32), random.choice((nn.MaxPool2d, nn.AvgPool2d))
    dense = dense or branches == 1

    def build() -> nn.Module:
        width, side = 2 * growth, size
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
        for i in range(blocks):
            layers.append(_Block(width, growth, branches, dense))
            width = branches * growth + (width if dense else 0)
            if i % 2 and side >= 8:
                layers.append(pool(3, stride=2, padding=1) if i % 4 == 1 else pool(2))
                side //= 2
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))

    return build, lambda: (torch.randn(batch, 3, size, size),)


class _Policy(nn.Module):
    """The loss of a policy's update, with distributions and much Python."""

    def __init__(self, inputs: int, hidden: int, actions: int, discrete: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.mean, self.value = nn.Linear(hidden, actions), nn.Linear(hidden, 1)
        self.log_scale, self.discrete = nn.Parameter(torch.zeros(actions)), discrete

    def forward(self, x: Tensor, action: Tensor, before: Tensor, advantage: Tensor, target: Tensor) -> Tensor:
        h = self.body(x)
        logits = self.mean(h)
        if self.discrete:
            likely: torch.distributions.Distribution = torch.distributions.Categorical(logits=logits)
            log_probability, entropy = likely.log_prob(action[:, 0]), likely.entropy()
        else:
            likely = torch.distributions.Normal(logits, self.log_scale.exp().expand_as(logits))
            log_probability, entropy = likely.log_prob(action).sum(-1), likely.entropy().sum(-1)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = torch.exp(log_probability - before)
        surrogate = torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage)
        return F.mse_loss(self.value(h).squeeze(-1), target) * 0.5 - surrogate.mean() - 0.01 * entropy.mean()


def distributions(random: Random) -> Drawn:
    """Updates of policies: small networks, distributions, and more Python than arithmetic."""
    inputs, hidden, actions = log_int(random, 2, 64), log_int(random, 16, 256), log_int(random, 2, 16)
    discrete, batch = random.random() < 0.5, log_int(random, 16, 2048)

    def example() -> tuple[Tensor, ...]:
        action = torch.randint(0, actions, (batch, actions)) if discrete else torch.randn(batch, actions)
        return torch.randn(batch, inputs), action, torch.randn(batch), torch.randn(batch), torch.randn(batch)

    return lambda: _Policy(inputs, hidden, actions, discrete), example
