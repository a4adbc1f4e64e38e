"""What calibration has measured so far: one line of JSON per probe, so that an interrupt loses nothing.

The first line holds the format and the machine's fingerprint. A journal of another machine, of other settings or of
another format is not resumed but put aside, until a calibration with these runs again.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from placer.errors import CalibrationError
from placer.pricing import CONTEXT_SIZES, FAMILIES, Work, feature_names
from placer.profile import json_values as checked

HUNG = "it did not come back"
TOO_LARGE = "it did not fit in memory"
NOT_MATCHED = "the device ran other ops than were traced"
KERNELS_LOST = "the recorder saw its launches and not its kernels"
NO_NUMBER = "its time was no number"
#: The process was ended from outside, perhaps by this probe.
PROCESS_ENDED = "the process ended while it ran"
#: Reasons that are told whatever the number of probes. All others are of ops that a device has not for some dtype: a
#: few are normal.
_ALWAYS_TOLD = (HUNG, TOO_LARGE, KERNELS_LOST)
#: Share of a family's probes that must have failed for the others to be told.
NOTABLE = 0.1


class KernelsLostError(CalibrationError):
    """The recorder saw what was launched, and none of the kernels."""


@dataclass(frozen=True)
class Failure:
    """A probe that could not be measured on one device at one number of CPU threads, and why."""

    device: str
    threads: int
    family: str
    name: str
    reason: str

    @classmethod
    def from_json(cls, value: Any) -> Failure:
        """Out of plain containers, every value checked; raises ``json_values.UnfitError`` (a ValueError)."""
        values = checked.json_object(value, "a failure", tuple(f.name for f in fields(cls)))
        texts = {name: checked.text(values[name], name) for name in ("device", "family", "name", "reason")}
        return cls(threads=checked.integer(values["threads"], "threads", 1), **texts)


def infeasible(failures: Sequence[Failure], measured: Mapping[tuple[str, str], int] | None = None) -> tuple[str, ...]:
    """A sentence per family, device and reason: how many probes failed, and why.

    ``measured``: the number of probes that were measured, by device and family. What few of a family's probes lack is
    left out, and so are those whose cause is unknown.
    """
    known = [f for f in failures if f.reason != PROCESS_ENDED]
    told = Counter((f.device, f.family, f.reason) for f in known if f.reason in _ALWAYS_TOLD)
    others: dict[tuple[str, str], Counter[str]] = {}
    for f in known:
        if f.reason not in _ALWAYS_TOLD:
            others.setdefault((f.device, f.family), Counter())[f.reason] += 1
    for key, reasons in others.items():
        count = reasons.total()
        if count >= NOTABLE * (count + (measured or {}).get(key, 0)):
            told[(*key, _most(reasons))] = count
    return tuple(
        f"{count} probe{'s' * (count > 1)} of {family} on {device} left out: {reason}"
        for (device, family, reason), count in told.items()
    )


def _most(reasons: Counter[str]) -> str:
    """The most frequent reason, and how many others there are."""
    reason = reasons.most_common(1)[0][0]
    others = len(reasons) - 1
    return f"{reason} (and {others} other reason{'s' * (others > 1)})" if others else reason


@dataclass(frozen=True)
class OpObservation:
    """One distinct op of a probe: its features, and the mean of its corrected times over ``count`` calls.

    ``seconds`` on the device is None where no event matched: the op was priced, not measured. ``host_seconds`` is the
    median on the host; ``spread`` the inter-quartile range of the calls over their median.
    """

    family: str
    op: str
    dtype: str
    features: tuple[float, ...]
    seconds: float | None
    host_seconds: float
    spread: float
    count: int
    #: Kernels that a call runs in, on average; 0 where none was recorded. A tensor's share of an update may be a part.
    kernels: float = 0.0

    def work(self) -> Work:
        """The op as pricing describes it."""
        sizes = len(FAMILIES[self.family].sizes) + len(CONTEXT_SIZES)
        flops, moved, *rest = self.features
        return Work(self.family, self.op, self.dtype, flops, moved, tuple(rest[:sizes]), tuple(rest[sizes:]))


@dataclass(frozen=True)
class StepObservation:
    """One probe, measured on one device at one number of CPU threads; ``seconds`` is a whole step."""

    device: str
    threads: int
    family: str
    name: str
    seconds: float
    spread: float
    counts: Mapping[str, float]
    ops: tuple[OpObservation, ...]
    #: The median reading of the speed probe (seconds) around what was timed; 0 without a probe.
    reading: float = 0.0
    #: What forward and backward took beyond their ops, and the update with its ops (seconds). A phase is missing where
    #: the step does not tell its phases apart, or where one of the phase's ops was not found.
    gaps: Mapping[str, float] = field(default_factory=dict)

    def is_finite(self) -> bool:
        """Whether every time is a finite number: a clock or a recorder may be wrong."""
        times = [self.seconds, self.spread, self.reading, *self.gaps.values()]
        times += [t for op in self.ops for t in (op.seconds or 0.0, op.host_seconds, op.spread)]
        return all(map(math.isfinite, times))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> StepObservation:
        """The inverse of ``to_json``. Checks every value; raises ``json_values.UnfitError`` (a ValueError)."""
        values = checked.json_object(data, "step", tuple(f.name for f in fields(cls)))
        return cls(
            device=checked.text(values["device"], "device"),
            threads=checked.integer(values["threads"], "threads", 1),
            family=checked.text(values["family"], "family"),
            name=checked.text(values["name"], "name"),
            seconds=checked.number(values["seconds"], "seconds", 0.0),
            spread=checked.number(values["spread"], "spread", 0.0),
            counts=checked.numbers(values["counts"], "counts", 0.0),
            ops=tuple(_op_from_json(op) for op in checked.json_list(values["ops"], "ops")),
            reading=checked.number(values["reading"], "reading", 0.0),
            gaps=checked.numbers(values["gaps"], "gaps"),
        )


def _op_from_json(data: Any) -> OpObservation:
    data = {"kernels": 0.0, **data} if isinstance(data, dict) else data  # journals of before have none
    values = checked.json_object(data, "op", tuple(f.name for f in fields(OpObservation)))
    family = checked.text(values["family"], "family")
    if family not in FAMILIES:
        raise checked.UnfitError(f"family: {family!r} is none")
    features = checked.vector(values["features"], "features", 2 + len(feature_names(family)))
    seconds = values["seconds"]
    return OpObservation(
        family=family,
        op=checked.text(values["op"], "op"),
        dtype=checked.text(values["dtype"], "dtype"),
        features=tuple(features.tolist()),
        seconds=None if seconds is None else checked.number(seconds, "seconds"),
        host_seconds=checked.number(values["host_seconds"], "host_seconds"),
        spread=checked.number(values["spread"], "spread"),
        count=checked.integer(values["count"], "count", 1),
        kernels=checked.number(values["kernels"], "kernels", 0.0),
    )


#: Format of the lines. 2 added the reading around a step, 3 its phases, 4 renamed features and counts.
_VERSION = 4
#: A journal is a few MB; a larger file is started anew.
_MAX_BYTES = 256 * 2**20
#: Characters of a first line: a fingerprint takes one or two thousand.
_MOST_HEAD = 2**20


class Journal:
    """Observations, failures and rates in a file that is only appended to.

    Damaged lines (a crash mid-write) are dropped, the rest is kept. A file that is no journal is started anew. Another
    head's journal is put aside first, and this head's is taken back from there. With ``existing`` the journal has to be
    there: nothing is moved or started.

    Raises CalibrationError where an existing journal is not this head's, where the file cannot be written, and where it
    is a symbolic link.
    """

    #: What was being measured when the file ended.
    _running: Failure | None = None
    #: Where the journal of another head is now that stood here.
    put_aside: Path | None = None

    def __init__(self, path: Path, fingerprint: Mapping[str, Any], *, existing: bool = False) -> None:
        self.path = path
        self.observations: list[StepObservation] = []
        self.failures: list[Failure] = []
        self.rates: dict[tuple[str, int], dict[str, float]] = {}
        self.seconds: dict[tuple[str, int], float] = {}
        #: Why a device could not be used, or not to the end, by its name.
        self.broken: dict[str, str] = {}
        #: What the ops of an accelerator were timed by.
        self.timers: dict[tuple[str, int], str] = {}
        head = _head(fingerprint)
        if path.is_symlink():
            raise CalibrationError(f"{path} is a symbolic link, which is refused: remove it")
        if not existing:
            self._exchange(head)
        if not self._read(head):
            if existing:
                raise CalibrationError(self._refusal())
            self._write(json.dumps(head) + "\n", mode="w")
        if self._running is not None:
            self.add_failure(self._running)

    def _exchange(self, head: Mapping[str, Any]) -> None:
        """Put another head's journal aside, and take back the one of ``head`` if it was put aside."""
        found = self._head_found()
        if found == head:
            return
        with suppress(OSError):  # what cannot be moved cannot be written either, which is reported then
            if found is not None:
                self.put_aside = self._aside(found)
                self.path.replace(self.put_aside)
            own = self._aside(head)
            if own.is_file() and not own.is_symlink():
                own.replace(self.path)

    def _head_found(self) -> dict[str, Any] | None:
        """The first line of the file; None where there is no file, or it is no journal."""
        try:
            with self.path.open(encoding="utf-8") as file:
                line = json.loads(file.readline(_MOST_HEAD))
            found = checked.json_object(line, "a head", ("version", "fingerprint"))
            checked.integer(found["version"], "version", 1)
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        return found

    def _refusal(self) -> str:
        found = self._head_found()
        if found is not None and found["version"] != _VERSION:
            return (
                f"{self.path} has journal format {found['version']}, and this version of placer reads format "
                f"{_VERSION}: remove the file and measure again"
            )
        return f"{self.path} is no journal of this machine with these settings"

    def _aside(self, head: Mapping[str, Any]) -> Path:
        """Where the journal with this head is kept while others are written."""
        digest = zlib.crc32(json.dumps(head, sort_keys=True).encode())
        return self.path.with_stem(f"{self.path.stem}-{digest:08x}")

    def _read(self, head: Mapping[str, Any]) -> bool:
        """Take every sound line of the file; False where it is not a journal with this head."""
        if self._head_found() != head or self.path.stat().st_size > _MAX_BYTES:
            return False
        try:
            content = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return False
        for line in content.splitlines()[1:]:
            with suppress(KeyError, TypeError, ValueError, RecursionError):
                self._take(json.loads(line))
        if not content.endswith("\n"):  # the next line must not be joined to one that a crash cut short
            self._write("\n")
        return True

    def _take(self, entry: Any) -> None:
        entry = checked.json_object(entry, "a line", None)
        if "starting" in entry:
            self._running = Failure.from_json(entry["starting"])
            return
        if "failed" in entry:
            self.failures.append(Failure.from_json(entry["failed"]))
            self._running = None
            return
        if "broken" in entry:
            self.broken[checked.text(entry["broken"], "broken")] = checked.text(entry["reason"], "reason")
            return
        key = (checked.text(entry["device"], "device"), checked.integer(entry["threads"], "threads", 1))
        if "timer" in entry:
            self.timers[key] = checked.text(entry["timer"], "timer")
            kept = [o for o in self.observations if (o.device, o.threads) != key]
            if len(kept) < len(self.observations):  # its time is free again
                self.seconds.pop(key, None)
            self.observations = kept
            return
        took = checked.number(entry["took"], "took", 0.0)
        if "rates" in entry:
            self.rates[key] = checked.numbers(entry["rates"], "rates", 0.0)
        else:
            self.observations.append(StepObservation.from_json(entry["step"]))
            self._running = None
        self.seconds[key] = self.seconds.get(key, 0.0) + took

    def starting(self, device: str, threads: int, family: str, name: str) -> None:
        """Note what is measured next: if the process ends meanwhile, the next run knows."""
        self._append({"starting": asdict(Failure(device, threads, family, name, PROCESS_ENDED))})

    def add_failure(self, failure: Failure) -> None:
        """Keep a probe that could not be measured; the caller counts the time it took."""
        self._append({"failed": asdict(failure)})

    def add_broken(self, device: str, reason: str) -> None:
        """Note that a device cannot be used, or not any more. What was measured on it before is kept."""
        self._append({"broken": device, "reason": reason})

    def use_timer(self, device: str, threads: int, timer: str) -> None:
        """Note what the ops of an accelerator are timed by from now on.

        What was timed by another timer is forgotten: two kinds of samples of one device do not fit together.
        """
        if self.timers.get((device, threads)) != timer:
            self._append({"timer": timer, "device": device, "threads": threads})

    def add_rates(self, device: str, threads: int, rates: Mapping[str, float], took: float) -> None:
        self._append({"device": device, "threads": threads, "rates": dict(rates), "took": took})

    def add(self, observation: StepObservation, took: float, clocks: Mapping[str, float] | None = None) -> None:
        """Keep one measured probe, which took ``took`` seconds.

        ``clocks``: an accelerator's clock and power right after it. They are for whoever studies the file.
        """
        entry = {
            "device": observation.device, "threads": observation.threads, "step": observation.to_json(), "took": took,
        }  # fmt: skip
        self._append({**entry, "clocks": dict(clocks)} if clocks else entry)

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, allow_nan=False)
        self._write(line + "\n")
        self._take(json.loads(line))

    def _write(self, content: str, mode: str = "a") -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open(mode, encoding="utf-8") as file:
                file.write(content)
        except OSError as error:
            raise CalibrationError(
                f"cannot write {self.path}: {error.strerror or error}; what was measured before is kept. Give another "
                "file (placer calibrate --output FILE) or folder (PLACER_HOME)"
            ) from error

    def of(self, device: str, threads: int) -> list[StepObservation]:
        """The observations of one device at one number of threads, in the order they were taken."""
        return [o for o in self.observations if o.device == device and o.threads == threads]

    def attempts(self, device: str, threads: int) -> int:
        """The number of probes that were measured or failed: the next run draws others."""
        failed = sum(f.device == device and f.threads == threads for f in self.failures)
        return len(self.of(device, threads)) + failed

    def close(self) -> None:
        """Remove the file: a saved profile holds its content."""
        self.path.unlink(missing_ok=True)


def _head(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    return {"version": _VERSION, "fingerprint": json.loads(json.dumps(fingerprint))}
