"""``make published``: fits everything that ships about GPUs nobody here owns, and writes it with what it rests on."""

from __future__ import annotations

import json
import math
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from placer.calibration.lab.published import shared
from placer.calibration.lab.published.samples import (
    Sample,
    Table,
    count,
    op_samples,
    problem_samples,
    rows_counted,
    step_sample,
    step_samples,
)
from placer.calibration.lab.published.table import Use, read_ops, read_problems, read_steps
from placer.calibration.lab.published.training import EPOCHS, Trainer, written_numbers
from placer.pricing.gpu import FILE, Row, row_name, row_size

#: Where counted steps are kept between runs.
CACHE = Path("build/published")
#: Samples that show a label as much as is needed to believe half of what was learnt of it.
HALF_TRUSTED = 6.0
#: The share of a sample from which it tells of one label; least samples for a label and for a kind to have a spread.
MOST, LEAST_OF_LABEL, LEAST_OF_KIND = 0.5, 12, 50
#: How much is believed of what its family says of an op that no sample shows.
BY_FAMILY = 0.7
#: The least share of a sample's physical seconds from which it counts as a row of an op.
NOTICED = 0.02


def main(cache: Path = CACHE, epochs: int = EPOCHS, file: Path = FILE) -> None:
    """Read, fit and write the numbers that ship into ``file``; print what went in."""
    torch.set_num_threads(min(torch.get_num_threads(), 2))
    samples = read_samples(cache)
    trainer = Trainer(samples, Table(samples))
    chosen = fit_to(samples)
    print(f"fitting to {len(chosen):,} of {len(samples):,} samples", file=sys.stderr)
    trainer.fit(chosen, epochs=epochs)
    file.write_text(document(trainer, chosen, spread(trainer)), encoding="utf-8")
    for source, rows in Counter(samples[i].source for i in chosen).most_common():
        print(f"{rows:8,} rows of {source}")
    print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")


def read_samples(cache: Path) -> list[Sample]:
    """All published operators and steps, and steps of shared records.

    Raises ImportError where a package that builds networks is missing.
    """
    steps = (step for step in read_steps() if step.use != "compiled")
    published = [*op_samples(read_ops()), *problem_samples(read_problems()), *step_samples(steps, cache)]
    held_out = {sample.gpu for sample in published if sample.use == "held-out GPU"}
    return [*published, *shared_samples(shared.files(), held_out)]


def shared_samples(paths: Sequence[Path], held_out: Container[str] = ()) -> list[Sample]:
    """Samples of steps in shared records. GPUs that are ``held_out`` stay so."""
    found = []
    for step, trace in shared.gpu_steps(paths):
        use: Use = "held-out GPU" if step.gpu in held_out else "fit"
        counted = count(trace.on("cuda"))
        found.append(step_sample(replace(step, use=use), counted, rows_counted(counted)))
    return found


def fit_to(samples: Sequence[Sample]) -> list[int]:
    """Numbers of the samples that are fitted to."""
    return [i for i, sample in enumerate(samples) if sample.use == "fit"]


def spread(trainer: Trainer) -> dict[str, dict[str, tuple[float, float]]]:
    """Standard deviation of log(seconds) by kind and label ("": any of the kind), on what was held out.

    The first is with the GPU's own numbers, the second without. A GPU that was never published is further off than one
    whose numbers are only hidden: by half as much again. A sample counts for the label that takes most of it.
    """
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, sample in enumerate(trainer.samples):
        if sample.use not in ("held out", "held-out network") or sample.offset > sample.seconds / 2.0:
            continue
        row, share = _most_of(trainer.table, i)
        if share >= MOST:
            members[row.kind, ""].append(i)
            members[row.kind, row.label].append(i)
    found: dict[str, dict[str, tuple[float, float]]] = {kind: {"": (0.3, 0.45)} for kind in trainer.kinds}
    for (kind, label), own in members.items():
        if len(own) < (LEAST_OF_LABEL if label else LEAST_OF_KIND):
            continue
        truth = np.array([trainer.samples[i].device_seconds for i in own])
        known, hidden = (
            float(np.quantile(np.abs(np.log(trainer.predicted(own, known=k) / truth)), 0.9) / 1.645)
            for k in (True, False)
        )
        found[kind][label] = (round(known, 4), round(max(1.5 * hidden, known), 4))
    return found


def _most_of(table: Table, sample: int) -> tuple[Row, float]:
    """(The row that takes most of a sample by physics, the share that rows of its label take.)"""
    rows = [table.instances[j][0] for j, _ in table.members[sample]]
    seconds = [n * (table.floor.launch[j] + table.floor.seconds[j]) for j, n in table.members[sample]]
    most = rows[int(np.argmax(seconds))]
    of_label = sum(each for row, each in zip(rows, seconds, strict=True) if row.label == most.label)
    return most, of_label / sum(seconds)


def document(trainer: Trainer, chosen: Sequence[int], sigma: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    """The file's text: networks by kind, and the number of published rows by GPU."""
    seen: dict[str, set[str]] = {kind: set() for kind in trainer.kinds}
    labels: dict[str, set[str]] = {kind: {""} for kind in trainer.kinds}
    for i in chosen:
        for j, _ in trainer.table.members[i]:
            row, gpu, _ = trainer.table.instances[j]
            seen[row.kind].add(gpu)
            labels[row.kind] |= {row.label, _family(row.label)}
    believed = trust(trainer.table, chosen)
    networks = {}
    for kind, net in trainer.nets.items():
        trusted = {name: believed[name] for name in sorted(labels[kind])}
        devices = {name: i for i, name in enumerate(trainer.gpus) if name in seen[kind]}
        of_labels = {name: i for i, name in enumerate(trainer.labels) if name in labels[kind]}
        networks[kind] = {
            **trainer.scales[kind].written(),
            "devices": written_numbers(net.device, devices),
            "labels": written_numbers(net.label, of_labels),
            "layers": net.written_layers(),
            "sigma": sigma[kind],
            "trust": trusted,
        }
    rows = Counter(trainer.samples[i].gpu for i in chosen)
    found = {
        "edition": zlib.crc32(json.dumps(networks).encode()),
        "rows": dict(sorted(rows.items())),
        "ranges": ranges(trainer.table, chosen),
        "networks": networks,
    }
    return json.dumps(found, separators=(",", ":")) + "\n"


def ranges(table: Table, chosen: Sequence[int]) -> dict[str, dict[str, dict[str, tuple[int, int]]]]:
    """The sizes of what was fitted (log2, rounded outwards): lowest and highest by GPU, kind of row and dtype.

    A sample is a row of each op that takes a noticed share of its physical seconds. The halves of a gradient that a
    library computes in two calls are rows of the gradient.
    """
    sizes: dict[tuple[str, str, str], list[float]] = {}
    for i in chosen:
        seconds = [n * table.floor.seconds[j] for j, n in table.members[i]]
        for (j, _), each in zip(table.members[i], seconds, strict=True):
            if each >= NOTICED * sum(seconds):
                row, gpu, dtype = table.instances[j]
                name = row_name(row).removesuffix("_input").removesuffix("_weight")
                sizes.setdefault((gpu, name, dtype), []).append(row_size(row))
    found: dict[str, dict[str, dict[str, tuple[int, int]]]] = {}
    for (gpu, name, dtype), each in sorted(sizes.items()):
        found.setdefault(gpu, {}).setdefault(name, {})[dtype] = math.floor(min(each)), math.ceil(max(each))
    return found


def trust(table: Table, chosen: Sequence[int]) -> dict[str, float]:
    """How much of the learnt part is believed of each label, family and "" (any op): near 1 where many samples show it.

    A sample shows a label by the label's share of its physical seconds: an operator in full, a step in part.
    """
    shown: Counter[str] = Counter()
    for i in chosen:
        seconds = [n * (table.floor.launch[j] + table.floor.seconds[j]) for j, n in table.members[i]]
        total = sum(seconds)
        for (j, _), each in zip(table.members[i], seconds, strict=True):
            label = table.instances[j][0].label
            for name in (label, _family(label), ""):
                shown[name] += each / total
    believed = {}
    for name, each in sorted(shown.items()):
        most = BY_FAMILY if not name or name.endswith(":") else 1.0
        believed[name] = round(each / (each + HALF_TRUSTED) * most, 4)
    return believed


def _family(label: str) -> str:
    return f"{label.partition(':')[0]}:"


if __name__ == "__main__":
    main()
