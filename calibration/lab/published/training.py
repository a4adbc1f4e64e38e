"""Fits the networks of the device model: every kind of kernel at once, to operators and to whole steps.

An operator tells what its own kernels take, a step only what the sum of its kernels takes. Both are compared with the
same networks, so a step teaches the ops that nobody published alone. The numbers of a GPU are dropped for a share of
the samples, so that what all GPUs have in common answers for one that was never published; those of an op are
replaced by its family's now and then, for the same reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from placer.calibration.lab.published.samples import Sample, Table
from placer.pricing.gpu import USUAL, Floor, kernel_seconds
from placer.pricing.networks import packed, packed_layer

#: Units of the two hidden layers by kind of kernel, and numbers of a GPU and of an op.
HIDDEN = {"product": 96, "convolution": 64, "depthwise": 32, "attention": 64, "recurrent": 24, "memory": 64}
GPU_NUMBERS = LABEL_NUMBERS = 6
#: Passes over the operators, samples of a batch of operators and of steps, and batches of operators for one of steps.
EPOCHS, BATCH, STEP_BATCH, STEP_EVERY = 55, 2048, 48, 2
_RATE, _DECAY, _NUMBERS_DECAY = 4e-3, 1e-2, 0.05
#: Weights of sources whose few samples would be known by heart: 135 problems on five GPUs.
_WEIGHT_OF = {"kernelbench": 0.25}
#: Shares of samples that see no GPU, an op's family instead of the op, and neither.
_NO_GPU, _ONLY_FAMILY, _NO_LABEL = 0.35, 0.08, 0.03
#: Errors of log(seconds) beyond which they count linearly.
_LINEAR_FROM = 0.3
#: How strongly an op is drawn to what is usual beyond physics where a step alone tells.
_PULL = 0.02
#: Most samples of one operator, GPU and dtype; a quarter of it where memory bounds. Most steps alike that count fully.
_MOST_ALIKE, _STEPS_ALIKE = 8000, 150
_QUANTILES = 0.0005


class Net(nn.Module):
    """One network of what is learnt of kernels or of a family of ops, on whichever devices.

    It has numbers of each device (so many, how many of each) and of each label, and with ``offsets`` one for each pair;
    ``placer.pricing`` evaluates it without torch.
    """

    def __init__(
        self, width: int, hidden: int, devices: tuple[int, int], labels: tuple[int, int], *, offsets: bool = False
    ) -> None:
        super().__init__()
        self.device, self.label = nn.Embedding(*devices), nn.Embedding(*labels)
        self.offset = nn.Embedding(devices[0] * labels[0], 1) if offsets else None
        self.labels = labels[0]
        nn.init.normal_(self.device.weight, std=0.1)
        nn.init.normal_(self.label.weight, std=0.3)
        if self.offset is not None:
            nn.init.zeros_(self.offset.weight)
        self.first = nn.Linear(width + devices[1] + labels[1], hidden)
        self.second, self.last = nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor, device: Tensor, label: Tensor, shown: Tensor | None = None) -> Tensor:
        """log(measured / physics) of n rows; ``shown`` 0 hides the numbers of a row's device."""
        numbers = self.device(device) if shown is None else self.device(device) * shown[:, None]
        z = torch.cat([x, numbers, self.label(label)], 1)
        z = functional.silu(self.second(functional.silu(self.first(z))))
        out: Tensor = self.last(z)[:, 0]
        return out if self.offset is None else out + self.offset(device * self.labels + label)[:, 0]

    @property
    def offsets(self) -> Tensor:
        """The offsets of a network that has some."""
        assert self.offset is not None
        return self.offset.weight

    def written_layers(self) -> list[dict[str, Any]]:
        """The layers as a file has them."""
        layers = (self.first, self.second, self.last)
        return [packed_layer(each.weight.detach().numpy().T, each.bias.detach().numpy()) for each in layers]


def written_numbers(numbers: nn.Embedding, places: Mapping[str, int]) -> dict[str, str]:
    """Numbers of devices or labels as a file has them, by name."""
    values = numbers.weight.detach().numpy()
    return {name: packed(values[place]) for name, place in places.items()}


@dataclass(frozen=True)
class Scale:
    """How the inputs of a kind are cut and scaled."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def of(cls, x: NDArray[np.float32]) -> Scale:
        """From all inputs of a kind."""
        low, high = np.quantile(x, _QUANTILES, axis=0), np.quantile(x, 1.0 - _QUANTILES, axis=0)
        cut = np.clip(x, low, high)
        deviation = cut.std(axis=0)
        return cls(low, high, cut.mean(axis=0), np.where(deviation < 1e-3, 1.0, deviation))

    def written(self) -> dict[str, str]:
        """As a file has it."""
        named = {"low": self.low, "high": self.high, "mean": self.mean, "scale": self.deviation}
        return {name: packed(values) for name, values in named.items()}

    def apply(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """``x`` cut and scaled."""
        return (np.clip(x, self.low, self.high) - self.mean) / self.deviation


class Trainer:
    """Samples as tensors, and the networks that are fitted to some of them. Times are in microseconds throughout."""

    def __init__(self, samples: Sequence[Sample], table: Table) -> None:
        self.samples, self.table = samples, table
        self.kinds = list(table.inputs)
        self.gpus = sorted({gpu for _, gpu, _ in table.instances})
        labels = sorted({row.label for row, _, _ in table.instances})
        families = sorted({label.partition(":")[0] for label in labels})
        #: The names of labels, then those of families with a colon, then "" for any op.
        self.labels = [*labels, *(f"{family}:" for family in families), ""]
        number = {name: i for i, name in enumerate(self.labels)}
        gpu_number = {name: i for i, name in enumerate(self.gpus)}
        rows = [row for row, _, _ in table.instances]
        self._kind = torch.tensor([self.kinds.index(row.kind) for row in rows])
        self._gpu = torch.tensor([gpu_number[gpu] for _, gpu, _ in table.instances])
        self._label = torch.tensor([number[row.label] for row in rows])
        self._family = torch.tensor([number[f"{row.label.partition(':')[0]}:"] for row in rows])
        self._position = torch.tensor(table.position)
        self._physics = torch.tensor(table.floor.seconds * 1e6, dtype=torch.float32)
        self._launch = torch.tensor(table.floor.launch * 1e6, dtype=torch.float32)
        self.scales = {kind: Scale.of(x) for kind, x in table.inputs.items()}
        self._x = {
            kind: torch.tensor(self.scales[kind].apply(x), dtype=torch.float32) for kind, x in table.inputs.items()
        }
        self._log_seconds = torch.tensor([np.log(s.seconds * 1e6) for s in samples], dtype=torch.float32)
        self._offset = torch.tensor([s.offset * 1e6 for s in samples], dtype=torch.float32)
        self.nets: dict[str, Net] = {}

    def fit(self, chosen: Sequence[int], *, epochs: int = EPOCHS, seed: int = 0) -> None:
        """Fit new networks to the samples with the numbers ``chosen``."""
        torch.manual_seed(seed)
        self._random = torch.Generator().manual_seed(seed)
        gpus, labels = (len(self.gpus), GPU_NUMBERS), (len(self.labels), LABEL_NUMBERS)
        self.nets = {kind: Net(x.shape[1], HIDDEN[kind], gpus, labels) for kind, x in self._x.items()}
        alone = {i for i in chosen if len(self.table.members[i]) == 1 and not self.samples[i].is_step}
        single = self._thinned([i for i in chosen if i in alone], seed)
        whole = sorted(set(chosen) - alone)
        ops, weights = torch.tensor(single), self._weights(single, _MOST_ALIKE / 2)
        whole_weights = self._weights(whole, _STEPS_ALIKE)
        batches = epochs * -(-len(single) // BATCH)
        optimizer = self._optimizer()
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=max(batches, 2))
        drawn = 0
        waiting: list[int] = []
        for _ in range(epochs):
            for batch in torch.randperm(len(ops), generator=self._random).split(BATCH):
                loss = self._loss(ops[batch].tolist(), weights[batch])
                drawn += 1
                if whole and drawn % STEP_EVERY == 0:
                    if len(waiting) < STEP_BATCH:
                        waiting = torch.randperm(len(whole), generator=self._random).tolist()
                    picked, waiting = waiting[:STEP_BATCH], waiting[STEP_BATCH:]
                    loss = loss + self._loss([whole[i] for i in picked], whole_weights[picked])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()

    def _optimizer(self) -> torch.optim.Optimizer:
        numbers: list[Tensor] = []
        parameters: list[Tensor] = []
        for net in self.nets.values():
            numbers += [net.device.weight, net.label.weight]
            parameters += net.parameters()
        own = {id(p) for p in numbers}
        rest = [p for p in parameters if id(p) not in own]
        groups = [{"params": rest, "weight_decay": _DECAY}, {"params": numbers, "weight_decay": _NUMBERS_DECAY}]
        return torch.optim.AdamW(groups, lr=_RATE)

    def _thinned(self, numbers: Sequence[int], seed: int) -> list[int]:
        """At most so many samples of each operator, GPU and dtype."""
        seen: Counter[tuple[str, ...]] = Counter()
        kept = []
        for i in np.random.default_rng(seed).permutation(np.array(numbers)).tolist():
            row, gpu, dtype = self.table.instances[self.table.members[i][0][0]]
            key = (self.samples[i].group[1], gpu, dtype)
            seen[key] += 1
            if seen[key] <= (_MOST_ALIKE // 4 if row.kind == "memory" else _MOST_ALIKE):
                kept.append(i)
        return sorted(kept)

    def _weights(self, numbers: Sequence[int], alike: float) -> Tensor:
        """Weights of samples: of a group larger than ``alike``, each counts less."""
        keys = [(self.samples[i].gpu, *self.samples[i].group[1:]) for i in numbers]
        sizes = Counter(keys)
        of_source = [_WEIGHT_OF.get(self.samples[i].source, 1.0) for i in numbers]
        return torch.tensor([w * min(1.0, alike / sizes[key]) ** 0.5 for w, key in zip(of_source, keys, strict=True)])

    def _members(self, numbers: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """The instances of samples by number, the count of each, and the position in ``numbers`` of its sample."""
        instances, counts, positions = [], [], []
        for position, number in enumerate(numbers):
            for instance, count in self.table.members[number]:
                instances.append(instance)
                counts.append(count)
                positions.append(position)
        return instances, counts, positions

    def _loss(self, numbers: Sequence[int], weights: Tensor) -> Tensor:
        members, counted, positions = self._members(numbers)
        instances, of = torch.tensor(members), torch.tensor(positions)
        counts = torch.tensor([float(count) for count in counted])
        known = (torch.rand(len(numbers), generator=self._random) > _NO_GPU).float()[of]
        learnt = self._learnt(instances, known, self._drawn_labels(instances))
        each = counts * (self._launch[instances] + self._physics[instances] * torch.exp(learnt))
        total = torch.zeros(len(numbers)).index_add(0, of, each)
        which = torch.tensor(numbers)
        error = torch.log(self._offset[which] + total) - self._log_seconds[which]
        loss = (huber(error, _LINEAR_FROM) * weights).sum() / weights.sum()
        if len(instances) == len(numbers):
            return loss
        share = (each / total[of]).detach()
        return loss + _PULL * (share * huber(learnt - USUAL, 1.0) * weights[of]).sum() / weights.sum()

    def _drawn_labels(self, instances: Tensor) -> Tensor:
        drawn = torch.rand(len(instances), generator=self._random)
        labels = torch.where(drawn < _ONLY_FAMILY, self._family[instances], self._label[instances])
        return torch.where(drawn > 1.0 - _NO_LABEL, torch.tensor(len(self.labels) - 1), labels)

    def _learnt(self, instances: Tensor, known: Tensor, labels: Tensor) -> Tensor:
        found = torch.zeros(len(instances))
        kinds = self._kind[instances]
        for number, kind in enumerate(self.kinds):
            own = torch.nonzero(kinds == number)[:, 0]
            if len(own):
                at = instances[own]
                values = self.nets[kind](self._x[kind][self._position[at]], self._gpu[at], labels[own], known[own])
                found = found.index_put((own,), values)
        return found

    @torch.no_grad()
    def predicted(self, numbers: Sequence[int], *, known: bool) -> NDArray[np.float64]:
        """Device seconds of samples by number, with their GPU's own numbers or (``known`` False) without."""
        instances, counts, positions = self._members(numbers)
        used, place = np.unique(instances, return_inverse=True)
        learnt = self._learnt(torch.tensor(used), torch.full((len(used),), float(known)), self._label[used])
        above, each = learnt.numpy().astype(float), np.zeros(len(used))
        for number, kind in enumerate(self.kinds):
            own = np.nonzero(self._kind[used].numpy() == number)[0]
            floor = Floor(*(values[used[own]] for values in self.table.floor))
            each[own] = kernel_seconds(kind, floor, above[own])
        found = np.zeros(len(numbers))
        np.add.at(found, positions, each[place] * counts)
        return found


def huber(error: Tensor, linear_from: float) -> Tensor:
    """The loss of each error: squared, and linear from ``linear_from`` on."""
    return functional.huber_loss(error, torch.zeros_like(error), delta=linear_from, reduction="none")
