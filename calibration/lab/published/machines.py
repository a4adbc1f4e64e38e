"""Published times of ops and of whole steps on CPUs of many cores, on Apple's chips and on some GPUs, and the machines.

The tables lie beside the repository, not in it: ``ops.csv.gz`` of CPUs, ``accelerator_ops.csv.gz`` of MPS and CUDA, and
``steps.csv.gz``, most of which are eager forward passes of inductor's CPU dashboards. Rows of ops that their own notes
tell to leave out are left out. What is known of the machines is known without a calibration.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from placer.errors import PlacerError, UnknownCPU, UnknownGPU
from placer.fleets import cpu_class
from placer.pricing import cpu_profile as catalog_profile
from placer.pricing import gpu_profile
from placer.pricing.physics import FRESH_FROM
from placer.profile import Profile, find_gpu, named_cores

#: What a note begins with that tells to leave a row out, and the reason in a word.
FLAGS = {
    "ARTEFACT": "artefact", "WRONG DEVICE": "on the wrong device", "the process had about one core": "about one core",
    "host loaded": "host loaded", "ERROR in the source": "error in the source",
    "the machine was disturbed": "machine disturbed", "in place over and over": "in place over and over",
    "no-op": "does nothing", "a view": "a view", "pathological": "pathological", "stale": "stale",
    "quantisation": "quantised",
}  # fmt: skip
#: Ops of quantised tensors or of quantisation-aware training.
_QUANTISED = re.compile(r"quantized|qat |q(?:u?int)\d")
#: Seconds above those of a row without a figure: its source prints hundredths of a millisecond, and printed 0.00.
UNPRINTED = 5e-6
#: What the sources begin with that name their cases, first of the notes.
NAMING = ("pytorch operator_benchmark", "mlx-benchmark")
#: The harness names what it differentiates by; the rows of one case measure the same thing.
_GRADIENTS = re.compile(r"_bwd(all|\d+)_BACKWARD$")
#: Cores of a socket of CPUs whose rows say "all of a socket", and of a CPU that the catalog does not know.
_SOCKETS, USUAL_CORES = {"8488C": 48}, 8
#: Sources that do not say how their torch was built, and those of their tables whose products run in Accelerate: a
#: batch of 1,000 of 64 x 1,024 x 32 at 160 to 354 GFLOP/s. In the others it runs at 7 to 123.
BY_ACCELERATE_OR_NOT = ("mlx-benchmark", "chsasank/device-benchmarks")
BY_ACCELERATE = frozenset((
    ("Apple M1 Max", "2024-02-15"), ("Apple M1 Ultra", "2026-03-08"), ("Apple M2 Max", "2024-03-04"),
    ("Apple M2 Ultra", "2024-03-20"), ("Apple M3", "2026-01-04"), ("Apple M4 Pro", "2025-04-10"),
))  # fmt: skip
#: Sources whose processes run with jemalloc, which keeps memory that glibc would give back.
BY_JEMALLOC = ("pytorch operator_benchmark", "pytorch inductor CPU")


@dataclass(frozen=True)
class MachineRow:
    """One published time, in seconds.

    ``device`` is "cpu", "mps" or "cuda"; ``machine`` the CPU, or the accelerator; ``host`` the CPU of the same machine.
    ``cores`` and ``threads`` are those of ``machine``, 0 where they are not known.
    """

    source: str
    date: str
    device: str
    machine: str
    host: str
    cores: int
    threads: int
    dtype: str
    seconds: float


@dataclass(frozen=True)
class MachineOp(MachineRow):
    """One published time of one op. ``name`` is the source's own name of the case.

    ``shapes`` has the shapes ``in``, that of the weight ``w``, and arguments. ``is_bound``: the op took less than this.
    """

    name: str
    op: str
    phase: str
    shapes: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    is_bound: bool = False

    @property
    def call(self) -> str:
        """Equal for rows that call the same."""
        what = [self.op, self.phase, self.dtype, self.shapes, self.channels_last, self.weight_transposed]
        return json.dumps(what, sort_keys=True)

    @property
    def channels_last(self) -> bool:
        """Whether input and weight of a convolution are permuted views of memory with the channels last."""
        return any("views (channels last" in note for note in self.notes)

    @property
    def weight_transposed(self) -> bool:
        """Whether the weight of a linear layer is a transposed view."""
        return any(note.startswith("weight is a transposed view") for note in self.notes)


@dataclass(frozen=True)
class MachineStep(MachineRow):
    """One published time of a whole step, as the table has it."""

    network: str
    batch: int
    input: str
    mode: str
    compiled: bool
    notes: str


def read_machine_ops(folder: Path) -> tuple[list[MachineOp], Counter[str]]:
    """The rows of both tables of ops, and how many are left out by reason. Raises PlacerError where there are none."""
    left_out: Counter[str] = Counter()
    rows = []
    for file in ("ops.csv.gz", "accelerator_ops.csv.gz"):
        for row in _table(folder / file):
            reason = left_out_as(row)
            if reason:
                left_out[reason] += 1
            else:
                rows.append(_op(row))
    return rows, left_out


def read_machine_steps(folder: Path) -> list[MachineStep]:
    """All rows of the table of steps. Raises PlacerError where it is not in ``folder``."""
    return [_step(row) for row in _table(folder / "steps.csv.gz")]


def _table(path: Path) -> Iterator[dict[str, str]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)
    except OSError as error:
        raise PlacerError(
            f"no published measurements in {path}: {error.strerror or error}; give the folder of ops.csv.gz, "
            "accelerator_ops.csv.gz and steps.csv.gz"
        ) from error


def _number(text: str) -> int:
    """The number that a cell begins with; 0 where it tells none."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0


def left_out_as(row: Mapping[str, str]) -> str:
    """Why a row of ops is left out; "" where it is not."""
    for note in row["notes"].split("; "):
        for flag, reason in FLAGS.items():
            if note.startswith(flag):
                return reason
    return "quantised" if _QUANTISED.match(row["op"]) or _QUANTISED.match(row["dtype"]) else ""


def _device(gpu: str) -> str:
    return "cpu" if not gpu else "mps" if "MPS" in gpu else "cuda"


def _accelerator(gpu: str) -> str:
    return gpu.replace(" GPU", "").replace(" (MPS)", "")


def _op(row: Mapping[str, str]) -> MachineOp:
    gpu = row.get("gpu", "")
    case, *notes = row["notes"].split("; ")
    named = row["source"].startswith(NAMING)
    return MachineOp(
        source=row["source"],
        date=row["date"],
        device=_device(gpu),
        machine=_accelerator(gpu) if gpu else row["cpu"],
        host=row.get("host", row.get("cpu", "")).partition(" (")[0],
        cores=_number(row["cores"]),
        threads=_number(row["threads"]),
        dtype=row["dtype"].partition(" ")[0],
        seconds=float(row["microseconds"] or UNPRINTED * 1e6) * 1e-6,
        name=_GRADIENTS.sub("_BACKWARD", case) if named else f"{row['op']} {row['dtype']} {row['shapes']}",
        op=row["op"],
        phase=row["phase"],
        shapes=json.loads(row["shapes"]),
        notes=tuple(notes if named else (case, *notes)),
        is_bound=not row["microseconds"],
    )


def _step(row: Mapping[str, str]) -> MachineStep:
    gpu, cpu = row["gpu"], row["cpu"].partition(" (")[0]
    socket = next((cores for name, cores in _SOCKETS.items() if name in cpu), 0)
    told = re.search(r"(\d+)-core", gpu)  # of an Apple's, where its name tells them
    return MachineStep(
        source=row["source"],
        date=row["date"][:7],
        device=_device(gpu),
        machine=_accelerator(gpu) or cpu,
        host=cpu,
        cores=(int(told[1]) if told else 0) if gpu else _number(row["cores"]) or socket,
        threads=_number(row["threads"]) or socket,
        dtype=row["dtype"],
        seconds=float(row["step_ms"]) * 1e-3,
        network=row["network"],
        batch=_number(row["batch"]),
        input=row["input"],
        mode=row["mode"],
        compiled=row["compiled"] == "yes",
        notes=row["notes"],
    )


def profile_of(row: MachineRow) -> Profile:
    """What is known of a row's machine. Raises UnknownGPU."""
    if row.device != "cpu":
        return gpu_profile(gpu_name(row), cpu_profile(row.host, 0))
    slower = row.source.startswith(BY_ACCELERATE_OR_NOT) and (row.machine, row.date) not in BY_ACCELERATE
    profile = cpu_profile(row.machine, row.threads, accelerate=not slower)
    if not row.source.startswith(BY_JEMALLOC):
        return profile
    (fit,) = profile.fits
    return replace(profile, fits=(replace(fit, rates={**fit.rates, FRESH_FROM: math.inf}),))


@cache
def cpu_profile(name: str, threads: int, *, accelerate: bool = True) -> Profile:
    """What is known of a CPU by its name, run with so many threads; 0: all cores of a socket.

    ``accelerate``: torch multiplies with Accelerate on Apple's.
    """
    try:
        sheet, cores = named_cores(name)
    except UnknownCPU:
        return cpu_class(2.0 * (threads or USUAL_CORES))  # two vCPUs of a core
    if sheet.kind == "apple-accelerate" and not accelerate:
        sheet = replace(sheet, kind="apple")
    return catalog_profile(sheet, threads or cores)


def gpu_name(row: MachineRow) -> str:
    """What the catalog calls a row's GPU; Apple's chips have several numbers of GPU cores. Raises UnknownGPU."""
    name = row.machine.removesuffix(f" {row.cores}-core").replace("(NVLink) ", "")
    if row.device == "mps" and row.cores:
        try:
            return find_gpu(f"{name} ({row.cores}-core GPU)").name
        except UnknownGPU:
            pass
    return find_gpu(name).name


def is_held(name: str) -> bool:
    """Whether nothing may be chosen by a row of this name: every fourth."""
    return zlib.crc32(name.encode()) % 4 == 0
