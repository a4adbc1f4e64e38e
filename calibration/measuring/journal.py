"""What calibration has measured so far: one line of JSON per probe, so that an interrupt loses nothing.

The first line holds the format and the machine's fingerprint. A journal of another machine, of other settings or of
another format lies in another file (``journal_file``), and is not resumed.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from placer.errors import CalibrationError
from placer.pricing import FAMILIES, Work, feature_names, work_of_features
from placer.pricing.ops import Effort
from placer.profile import working_file

HUNG = "it did not come back"
TOO_LARGE = "it did not fit in memory"
NOT_MATCHED = "the device ran other ops than were traced"
NO_NUMBER = "its time was no number"
#: The process was ended from outside, perhaps by this probe.
PROCESS_ENDED = "the process ended while it ran"
#: Reasons that are told however few probes have them. All others are of ops that a device has not for some dtype: a few
#: are normal.
_ALWAYS_TOLD = (HUNG, TOO_LARGE)
#: Share of a family's probes that must have failed for the others to be told.
NOTABLE = 0.1

#: One line of text without what steers a terminal.
_PRINTABLE = "^[^\\x00-\\x1f\\x7f-\\x9f\\u200b-\\u200f\\u2028-\\u202e\\ufeff]*$"
_Text = Annotated[str, Meta(max_length=1000, pattern=_PRINTABLE)]
_Amount = Annotated[float, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True)
class Failure:
    """A probe that could not be measured on one device at one number of CPU threads, and why."""

    device: _Text
    threads: _Count
    family: _Text
    name: _Text
    reason: _Text


def infeasible(failures: Sequence[Failure], measured: Mapping[tuple[str, str], int] | None = None) -> tuple[str, ...]:
    """A sentence per family and device of whose probes many failed: how many, and why most of them.

    Those that hung or did not fit have a sentence of their own, however few they are. ``measured``: the number of
    probes that were measured, by device and family. Failures whose cause is unknown do not count.
    """
    always: Counter[tuple[str, str, str]] = Counter()
    reasons: dict[tuple[str, str], Counter[str]] = {}
    for f in failures:
        if f.reason in _ALWAYS_TOLD:
            always[f.device, f.family, f.reason] += 1
        elif f.reason != PROCESS_ENDED:
            reasons.setdefault((f.device, f.family), Counter())[f.reason] += 1
    told = [_left_out(count, *what) for what, count in always.items()]
    for (device, family), counted in reasons.items():
        count, more = counted.total(), len(counted) - 1
        if count >= NOTABLE * (count + (measured or {}).get((device, family), 0)):
            reason = counted.most_common(1)[0][0] + (f" (and {more} other reason{'s' * (more > 1)})" if more else "")
            told.append(_left_out(count, device, family, reason))
    return tuple(told)


def _left_out(count: int, device: str, family: str, reason: str) -> str:
    return f"{count} probe{'s' * (count > 1)} of {family} on {device} left out: {reason}"


@dataclass(frozen=True)
class OpObservation:
    """One distinct op of a probe: its features, and the mean of its corrected times over ``count`` calls.

    ``seconds`` on the device is None where no event matched: the op was priced, not measured. ``host_seconds`` is the
    median on the host; ``spread`` the inter-quartile range of the calls over their median. ``kernels`` is the number
    that a call runs in, on average; 0 where none was recorded. A tensor's share of an update may be a part of one.
    ``effort`` and ``loads`` are the work's; journals of earlier versions have none.
    """

    family: _Text
    op: _Text
    dtype: _Text
    features: tuple[float, ...]
    seconds: float | None
    host_seconds: float
    spread: float
    count: _Count
    kernels: _Amount = 0.0
    effort: Effort | None = None
    loads: _Amount = 0.0

    def work(self) -> Work:
        """The op as pricing describes it."""
        return work_of_features(self.family, self.op, self.dtype, self.features, self.effort, self.loads)


@dataclass(frozen=True)
class StepObservation:
    """One probe, measured on one device at one number of CPU threads; ``seconds`` is a whole step.

    ``gaps``: what forward and backward took beyond their ops, and the update with its ops (seconds). A phase is missing
    where the step does not tell its phases apart, or where one of the phase's ops was not found.
    """

    device: _Text
    threads: _Count
    family: _Text
    name: _Text
    seconds: _Amount
    spread: _Amount
    counts: Mapping[_Text, _Amount]
    ops: tuple[OpObservation, ...]
    gaps: Mapping[_Text, float] = field(default_factory=dict)

    def is_finite(self) -> bool:
        """Whether every time is a finite number: a clock or a recorder may be wrong."""
        times = [self.seconds, self.spread, *self.gaps.values()]
        for op in self.ops:
            times += [op.seconds or 0.0, op.host_seconds, op.spread]
        return all(map(math.isfinite, times))


#: Format of the lines. 2 added a reading around a step (read no more), 3 its phases, 4 renamed features and counts.
_VERSION = 4
#: A journal is a few MB; a larger file is started anew.
_MAX_BYTES = 256 * 2**20
#: Characters of a first line: a fingerprint takes one or two thousand.
_MOST_HEAD = 2**20


@dataclass(frozen=True)
class _Line:
    """One line of a journal. What it tells is one of the last seven; ``took``: the seconds that that took."""

    device: _Text = ""
    threads: _Count = 1
    took: _Amount = 0.0
    reason: _Text = ""
    starting: Failure | None = None
    failed: Failure | None = None
    broken: _Text | None = None
    timer: _Text | None = None
    rates: dict[_Text, _Amount] | None = None
    step: StepObservation | None = None
    others: float | None = None


def _head_of(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """The first line of a machine's journal, as it is read back."""
    return {"version": _VERSION, "fingerprint": json.loads(json.dumps(fingerprint))}


def journal_file(target: Path, fingerprint: Mapping[str, Any]) -> Path:
    """Where what is measured for the profile ``target`` is kept: of other settings, or another format, elsewhere."""
    head = json.dumps(_head_of(fingerprint), sort_keys=True)
    return working_file(target, f"-{zlib.crc32(head.encode()):08x}.journal")


class Journal:
    """Observations, failures and rates in a file that is only appended to.

    Damaged lines (a crash mid-write) are dropped, the rest is kept. A file that is no journal is started anew; with
    ``existing`` nothing is.

    Raises CalibrationError where an existing journal is not this head's, where the file cannot be written, and where it
    is a symbolic link.
    """

    #: What was being measured when the file ended.
    _running: Failure | None = None

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
        #: Of each run: the share of the cores' time that other programs had (0 to 1), and its seconds.
        self.beside: list[tuple[float, float]] = []
        head = _head_of(fingerprint)
        if path.is_symlink():
            raise CalibrationError(f"{path} is a symbolic link, which is refused: remove it")
        found = self._head()
        if found == head and self._read():
            if self._running is not None:
                self.add_failure(self._running)
            return
        if existing or found not in (None, head):
            raise CalibrationError(self._refusal(found))
        self._write(json.dumps(head) + "\n", mode="w")

    def _head(self) -> dict[str, Any] | None:
        """The first line of the file; None where there is no file, or it is no journal."""
        try:
            with self.path.open(encoding="utf-8") as file:
                found = json.loads(file.readline(_MOST_HEAD))
        except (OSError, ValueError, RecursionError):
            return None
        is_head = isinstance(found, dict) and found.keys() == {"version", "fingerprint"}
        return found if is_head and type(found["version"]) is int else None

    def _refusal(self, found: Mapping[str, Any] | None) -> str:
        if found is not None and found["version"] != _VERSION:
            return (
                f"{self.path} has journal format {found['version']}, and this version of placer reads format "
                f"{_VERSION}: remove the file and measure again"
            )
        return f"{self.path} is no journal of this machine with these settings"

    def _read(self) -> bool:
        """Take every sound line of the file; False where it cannot be read."""
        try:
            if self.path.stat().st_size > _MAX_BYTES:
                return False
            content = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return False
        for line in content.splitlines()[1:]:
            with suppress(ValueError, RecursionError):
                self._take(line)
        if not content.endswith("\n"):  # the next line must not be joined to one that a crash cut short
            self._write("\n")
        return True

    def _take(self, line: str) -> None:
        """Raises ValueError for a line with a wrong value."""
        entry = msgspec.json.decode(line, type=_Line)
        key = (entry.device, entry.threads)
        if entry.starting is not None:
            self._running = entry.starting
        elif entry.failed is not None:
            self.failures.append(entry.failed)
            self._running = None
        elif entry.others is not None:
            self.beside.append((entry.others, entry.took))
        elif entry.broken is not None:
            self.broken[entry.broken] = entry.reason
        elif entry.timer is not None:
            self.timers[key] = entry.timer
            kept = [o for o in self.observations if (o.device, o.threads) != key]
            if len(kept) < len(self.observations):  # its time is free again
                self.seconds.pop(key, None)
            self.observations = kept
        elif entry.rates is not None or entry.step is not None:
            if entry.rates is not None:
                self.rates[key] = entry.rates
            if entry.step is not None:
                if not all(map(_has_its_features, entry.step.ops)):
                    raise ValueError(f"{entry.step.name}: an op has not the features of its family")
                self.observations.append(entry.step)
                self._running = None
            self.seconds[key] = self.seconds.get(key, 0.0) + entry.took

    def starting(self, device: str, threads: int, family: str, name: str) -> None:
        """Note what is measured next: if the process ends meanwhile, the next run knows."""
        self._append({"starting": asdict(Failure(device, threads, family, name, PROCESS_ENDED))})

    def add_failure(self, failure: Failure) -> None:
        """Keep a probe that could not be measured; the caller counts the time it took."""
        self._append({"failed": asdict(failure)})

    def add_others(self, share: float, took: float) -> None:
        """Note what other programs had of the cores, from 0 to 1, while a run measured for ``took`` seconds."""
        self._append({"others": share, "took": took})

    def others_share(self) -> float | None:
        """What other programs had of the cores' time in all runs, from 0 to 1; None where nobody looked."""
        seconds = sum(took for _, took in self.beside)
        return sum(share * took for share, took in self.beside) / seconds if seconds else None

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

    def add(self, observation: StepObservation, took: float) -> None:
        """Keep one measured probe, which took ``took`` seconds."""
        where = {"device": observation.device, "threads": observation.threads}
        self._append({**where, "step": asdict(observation), "took": took})

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, allow_nan=False)
        self._write(line + "\n")
        self._take(line)

    def _write(self, content: str, mode: str = "a") -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open(mode, encoding="utf-8") as file:
                file.write(content)
        except OSError as error:
            raise CalibrationError(
                f"cannot write {self.path}: {error.strerror or error}; what was measured before is kept. Give another "
                "folder (PLACER_HOME)"
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


def _has_its_features(op: OpObservation) -> bool:
    return op.family in FAMILIES and len(op.features) == 2 + len(feature_names(op.family))
