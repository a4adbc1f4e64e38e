"""Fits what is learnt of ops on CPUs, and writes it: ``python -m placer.calibration.lab.published.cpu_networks``.

Rows are prices of single ops by machines that were measured at length (``data/cpu_ops.csv.xz``). A family's network is
fitted to all of them at once; what a machine differs in is its own numbers, and an offset of each op. The former come
with placer in the networks' file, both in the machines' shipped profiles.
"""

from __future__ import annotations

import csv
import json
import lzma
import math
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from torch import Tensor

from placer import profile
from placer.calibration.lab.published import shared
from placer.calibration.lab.published.table import DATA
from placer.calibration.lab.published.training import Net, Scale, huber, written_numbers
from placer.pricing import FAMILIES, Work, cpu_from_sheet, op_label, work_of_features
from placer.pricing.networks import CPU_FILE, cpu_document
from placer.pricing.physics import cpu_inputs, cut_of, fresh_seconds, share_of, shared_seconds, start_share
from placer.profile import Device, FamilyFit, named_cores

#: Units of the two hidden layers by family.
HIDDEN = {
    "matmul": 112,
    "convolution": 112,
    "convolution_backward": 128,
    "elementwise": 128,
    "reduction": 80,
    "recurrent": 80,
    **dict.fromkeys(("view", "optimizer", "indexing", "attention", "normalization", "pooling"), 64),
}
USUAL_HIDDEN = 48
DEVICE_NUMBERS, LABEL_NUMBERS = 6, 8
#: Share of an op's rows that take less than it is said to take at the least.
AT_START = 0.03
#: Passes over the rows, rows of a batch, and the highest learning rate of the one cycle.
EPOCHS, BATCH, RATE = 100, 1536, 6e-3
#: Share of rows in which an op's numbers are those of any op, so that its shape tells what it can; and of ops that are
#: held out.
NO_LABEL, HELD_OUT = 0.03, 0.03
#: The kind of CPU of which a machine was measured at length. What others published of its products are small ones,
#: which teach the networks, but say less of large ones than that machine does: its products stay that machine's.
MEASURED = "x86-avx512"
#: How much a row counts by where its op is from: layers of real networks are few, and are what people ask for.
WEIGHTS = {"network": 6.0, "probe": math.sqrt(6.0), "benchmark": 2.0, "profile": 1.0, "published": 3.0}
#: Errors of log(seconds) beyond which they count linearly.
LINEAR_FROM = 0.3
#: How strongly offsets are drawn to 0, and all weights.
OFFSET_PULL, DECAY = 1e-3, 1e-3


@dataclass(frozen=True)
class ClassOp:
    """One published time of an op on ``threads`` cores of a CPU of the catalog, in seconds.

    ``kind``: of the CPU (``CpuKind``). ``keeps_memory``: the allocator keeps that of large results.
    """

    kind: str
    cpu: str
    threads: int
    keeps_memory: bool
    work: Work
    seconds: float

    def inputs(self) -> tuple[NDArray[np.float64], float]:
        """(the d inputs of the network, log(seconds / physics)): of what one core does, as the cores share the op."""
        sheet, _ = named_cores(self.cpu)
        fit = cpu_from_sheet(replace(sheet, kind=self.kind), self.threads)
        assert fit.cores is not None
        cores, cut = fit.cores, cut_of(self.work)
        share = share_of(self.work, min(self.threads, cut.pieces))
        core = replace(fit, threads=1, rates=cores.rates)
        physics, x = cpu_inputs([share], core)
        of_core = float(physics[0])
        together = shared_seconds(self.work, cut, of_core, of_core * start_share(share, core), cores, self.threads)
        at_least = 0.0 if self.keeps_memory else fresh_seconds(self.work, fit)
        return x[0], math.log(self.seconds / max(together, at_least))


@dataclass(frozen=True)
class Ops:
    """Ops of a family, and log(seconds) of each by machine (``NAME@threads``); nan where the machine does not know it.

    ``weights``: how much each counts; those of ``shared`` machines, which users calibrated, count less.
    """

    family: str
    works: list[Work]
    weights: NDArray[np.float32]
    log_seconds: Mapping[str, NDArray[np.float32]]
    published: list[ClassOp]
    shared: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trained:
    """A family's network, its ops by number, the machines, how inputs are scaled, and its error on held-out ops."""

    net: Net
    labels: list[str]
    devices: list[str]
    scale: Scale
    error: float


def read_ops(leave_out: str = "", users: Mapping[str, tuple[Device, float]] | None = None) -> list[Ops]:
    """The rows by family; without machines whose names begin with ``leave_out``.

    ``users``: what calibrations in shared records say of the same ops (``shared.cpu_fits``).
    """
    users = users or {}
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    of_classes: dict[str, list[ClassOp]] = defaultdict(list)
    with (DATA / "cpu_class_ops.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            of_classes[row["family"]].append(_class_op(row))
    text = lzma.decompress((DATA / "cpu_ops.csv.xz").read_bytes()).decode()
    for row in csv.DictReader(text.splitlines()):
        rows[row["family"]].append(row)
    found = []
    for family, members in rows.items():
        machines = [name for name in members[0] if "@" in name and not (leave_out and name.startswith(leave_out))]
        works = []
        for row in members:
            features = [float(v) for v in row["features"].split()]
            works.append(work_of_features(family, row["op"], row["dtype"], features))
        prices = {}
        for name in machines:
            seconds = [float(row[name] or "nan") * 1e-6 for row in members]
            prices[name] = np.log(seconds).astype(np.float32)
        for name, (fit, slower) in users.items():
            prices[name] = shared.log_seconds(works, fit, slower)
        weights = np.array([WEIGHTS[row["origin"]] for row in members], dtype=np.float32)
        known = {op_label(work) for work in works}
        published = [op for op in of_classes[family] if op_label(op.work) in known]
        found.append(Ops(family, works, weights, prices, published, tuple(users)))
    return found


def _class_op(row: Mapping[str, str]) -> ClassOp:
    features = [float(value) for value in row["features"].split()]
    work = work_of_features(row["family"], row["op"], row["dtype"], features)
    return ClassOp(
        row["kind"],
        row["cpu"],
        int(row["threads"]),
        row["keeps_memory"] == "1",
        replace(work, fresh=float(row["fresh_bytes"])),
        float(row["microseconds"]) * 1e-6,
    )


def train(ops: Ops, fits: Mapping[str, Device], epochs: int = EPOCHS) -> Trained:
    """The network of a family; ``fits`` have the rates of the machines."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    kinds = sorted({op.kind for op in ops.published})
    devices, names = [*ops.log_seconds, *kinds], [op_label(work) for work in ops.works]
    labels = [*sorted(set(names)), ""]
    number = {name: i for i, name in enumerate(labels)}
    label = np.array([number[name] for name in names])
    held = np.random.default_rng(0).random(len(label)) < HELD_OUT
    x, device, of_op, y, weight, taught = [], [], [], [], [], []
    for i, name in enumerate(ops.log_seconds):
        physics, inputs = cpu_inputs(ops.works, fits[name])
        known = np.flatnonzero(np.isfinite(ops.log_seconds[name]))
        x.append(inputs[known].astype(np.float32))
        device.append(np.full(len(known), i))
        of_op.append(label[known])
        y.append((ops.log_seconds[name] - np.log(physics))[known].astype(np.float32))
        weight.append(ops.weights[known] * np.float32(shared.WEIGHT if name in ops.shared else 1.0))
        taught.append(~held[known])
    for op in ops.published:
        inputs, off = op.inputs()
        x.append(inputs[None, :].astype(np.float32))
        device.append(np.array([devices.index(op.kind)]))
        of_op.append(np.array([number[op_label(op.work)]]))
        y.append(np.array([off], dtype=np.float32))
        weight.append(np.array([WEIGHTS["published"]], dtype=np.float32))
        taught.append(np.array([True]))
    scale = Scale.of(np.concatenate(x))
    of = {
        "x": torch.tensor(scale.apply(np.concatenate(x)), dtype=torch.float32),
        "device": torch.tensor(np.concatenate(device)),
        "label": torch.tensor(np.concatenate(of_op)),
        "y": torch.tensor(np.concatenate(y)),
        "weight": torch.tensor(np.concatenate(weight)),
    }
    hidden = HIDDEN.get(ops.family, USUAL_HIDDEN)
    of_devices, of_labels = (len(devices), DEVICE_NUMBERS), (len(labels), LABEL_NUMBERS)
    net = Net(of["x"].shape[1], hidden, of_devices, of_labels, offsets=True)
    shown = np.concatenate(taught)
    _fit(net, of, torch.tensor(np.flatnonzero(shown)), epochs)
    with torch.no_grad():
        off = (net(of["x"], of["device"], of["label"]) - of["y"]).numpy()[~shown]
    return Trained(net, labels, devices, scale, float(np.sqrt(np.mean(off**2))))


def _fit(net: Net, of: Mapping[str, Tensor], some: Tensor, epochs: int) -> None:
    layers = [*net.first.parameters(), *net.second.parameters(), *net.last.parameters()]
    optimizer = torch.optim.AdamW(
        [
            {"params": [*layers, net.device.weight, net.label.weight], "weight_decay": DECAY},
            {"params": [net.offsets], "weight_decay": 0.0},
        ],
        lr=RATE,
    )
    steps = epochs * math.ceil(len(some) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.15)
    for _ in range(epochs):
        for batch in some[torch.randperm(len(some))].split(BATCH):
            any_op = torch.rand(len(batch)) < NO_LABEL
            label = torch.where(any_op, torch.tensor(net.labels - 1), of["label"][batch])
            error = net(of["x"][batch], of["device"][batch], label) - of["y"][batch]
            weight = of["weight"][batch]
            loss = (weight * huber(error, LINEAR_FROM)).sum() / weight.sum()
            loss = loss + OFFSET_PULL * (net.offsets**2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def document(trained: Mapping[str, Trained], ops: Sequence[Ops]) -> dict[str, Any]:
    """What the file holds."""
    networks = {}
    for family, found in trained.items():
        net = found.net
        networks[family] = {
            **found.scale.written(),
            "layers": net.written_layers(),
            "labels": written_numbers(net.label, {name: i for i, name in enumerate(found.labels)}),
            "devices": written_numbers(net.device, {name: i for i, name in enumerate(found.devices)}),
            "sigma": {"": (round(found.error, 4), round(2.0 * found.error, 4))},
        }
    classes = {}
    kinds: set[str] = set()
    for rows in ops:
        kinds.update(op.kind for op in rows.published)
    for kind in sorted(kinds):
        families = families_of(trained, ops, kind)
        if kind == MEASURED:
            families = {name: fit for name, fit in families.items() if not FAMILIES[name].multiplies}
        classes[kind] = {name: _written(fit) for name, fit in families.items()}
    return {"edition": zlib.crc32(json.dumps(networks).encode()), "networks": networks, "classes": classes}


def _written(fit: FamilyFit) -> dict[str, Any]:
    offsets = {name: round(offset, 3) for name, offset in fit.offsets.items()}
    return {"numbers": [round(number, 3) for number in fit.numbers], "offsets": offsets, "sigma": CLASS_SIGMA}


def families_of(trained: Mapping[str, Trained], ops: Iterable[Ops], machine: str) -> dict[str, FamilyFit]:
    """What the networks know of a machine, or a kind of CPU, that they were fitted to, by family."""
    found = {}
    for rows in ops:
        family, each = rows.family, trained[rows.family]
        if machine not in each.devices:
            continue
        net, device = each.net, each.devices.index(machine)
        offsets = net.offsets.detach().numpy().reshape(len(each.devices), -1)[device]
        names = {op_label(op.work) for op in rows.published if op.kind == machine}
        if machine in rows.log_seconds:
            seen = np.isfinite(rows.log_seconds[machine])
            names |= {op_label(work) for work, here in zip(rows.works, seen, strict=True) if here}
        found[family] = FamilyFit(
            numbers=tuple(net.device.weight[device].tolist()),
            offsets={label: float(o) for label, o in zip(each.labels, offsets, strict=True) if label in names},
            sigma=SIGMA,
            measured=0,
        )
    return found


#: Standard deviation of log(seconds) of an op that no features tell, as the machines' sessions show it.
SIGMA = 0.2
#: The same of an op on a CPU of whose kind others published times.
CLASS_SIGMA = 0.4


def machines() -> dict[str, Device]:
    """The fits of the machines that come with placer, by name and threads."""
    return {f"{name}@{fit.threads}": fit for name in profile.shipped() for fit in profile.load(name).fits}


def trained_on(ops: Sequence[Ops], fits: Mapping[str, Device], epochs: int = EPOCHS) -> dict[str, Trained]:
    """The networks of all families, each in a process of its own."""
    found = Parallel(n_jobs=-1)(delayed(train)(each, fits, epochs) for each in ops)
    return dict(zip((each.family for each in ops), found, strict=True))


def starts_of(ops: Ops, fits: Mapping[str, Device]) -> dict[str, float]:
    """How many times a machine's start of an op each of these takes where it does next to nothing, by name."""
    found: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
    names = np.array([op_label(work) for work in ops.works])
    inside = np.array([work.shape.ops_inside for work in ops.works])
    for machine, logs in ops.log_seconds.items():
        if machine in ops.shared:
            continue
        times = np.exp(logs) / (inside * fits[machine].rates["dispatch_seconds"])
        for name in set(names):
            found[name].append(times[(names == name) & np.isfinite(logs)])
    return {
        name: round(float(np.quantile(np.concatenate(each), AT_START)), 3)
        for name, each in sorted(found.items())
        if sum(map(len, each))
    }


def write(content: Mapping[str, Any]) -> None:
    """Write what is learnt of CPUs into the file that comes with placer."""
    CPU_FILE.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    cpu_document.cache_clear()


def main() -> int:
    """Fit all networks, and write them, the shipped profiles and the fits of shared records; the exit code."""
    records = shared.calibrations(shared.files())
    users = shared.cpu_fits(records)
    ops, fits = read_ops(users=users), {**machines(), **{name: fit for name, (fit, _) in users.items()}}
    starts = {each.family: starts_of(each, fits) for each in ops}
    write({"edition": 0, "starts": starts, "networks": {}, "classes": {}})  # physics ask for the starts
    trained = trained_on(ops, fits)
    found = {**document(trained, ops), "starts": starts}
    write(found)
    for name in profile.shipped():
        known = profile.load(name)
        adapted = [refitted(fit, f"{name}@{fit.threads}", trained, ops, found["edition"]) for fit in known.fits]
        profile.save(replace(known, fits=tuple(adapted)), profile.shipped_folder() / f"{name}.json")
    calibrated = {}
    for name, (fit, slower) in users.items():
        calibrated[name] = refitted(fit, name, trained, ops, found["edition"], slower)
    for path in records:
        shared.write_fits(path, calibrated)
    for family, each in trained.items():
        print(f"{family}: held-out error of log(seconds) {each.error:.3f}")
    print(f"{CPU_FILE}: {CPU_FILE.stat().st_size / 1e6:.2f} MB")
    return 0


def refitted(
    fit: Device, name: str, trained: Mapping[str, Trained], ops: Sequence[Ops], edition: int, slower: float = 1.0
) -> Device:
    """The fit of a machine that the networks were fitted to as ``slower`` than it is, with its numbers in them."""
    families = families_of(trained, ops, name)
    for family, before in fit.families.items():  # how many samples the machine's sessions took stays as it is
        families[family] = replace(families[family], measured=before.measured)
    if slower != 1.0:  # what its steps told: its calibration predicts them, and must not know them
        families = {family: each.times(1.0 / slower) for family, each in families.items()}
    return replace(fit, families=families, edition=edition)


if __name__ == "__main__":
    sys.exit(main())
