"""What calibration has measured so far, a line of JSON per probe, so that an interrupt loses nothing.

The first line names the machine's fingerprint: a journal of another machine, or of other settings, is not resumed but
put aside, until there is a calibration with these again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placer.calibration.measuring.observation import StepObservation
from placer.errors import CalibrationError
from placer.profile import json_values

#: 2: steps know the reading around them. 3: and their phases.
_VERSION = 4
#: A journal is a few MB; a larger file is started anew.
_MAX_BYTES = 256 * 2**20
#: Characters of a first line: a fingerprint takes one or two thousand.
_MOST_HEAD = 2**20
#: What ended the process that was measuring is not known: it may have been this probe.
_NEVER_SEEN_AGAIN = "the process ended while it ran"


@dataclass(frozen=True)
class Failure:
    """A probe that could not be measured on one device at one number of CPU threads, and why."""

    device: str
    threads: int
    family: str
    name: str
    reason: str


class Journal:
    """Observations, failures and rates in an append-only file.

    Damaged lines (a crash mid-write) are dropped, the rest kept. What is no journal is started anew; that of another
    machine or of other settings is put aside first, and this one's taken back from there. Where it has to be an
    ``existing`` one, neither is touched, and CalibrationError raised; likewise where the file cannot be written or is a
    symbolic link.
    """

    #: What was being measured when the file ended.
    _running: Failure | None = None
    #: Where the journal is now that stood here, of another machine or other settings.
    put_aside: Path | None = None

    def __init__(self, path: Path, fingerprint: Mapping[str, Any], *, existing: bool = False) -> None:
        self.path = path
        self.observations: list[StepObservation] = []
        self.failures: list[Failure] = []
        self.rates: dict[tuple[str, int], dict[str, float]] = {}
        self.seconds: dict[tuple[str, int], float] = {}
        head = _head(fingerprint)
        if path.is_symlink():
            raise CalibrationError(f"{path} is a symbolic link, which is refused: remove it")
        if not existing:
            self._exchange(head)
        if not self._read(head):
            if existing:
                raise CalibrationError(f"{path} is no journal of this machine with these settings")
            self.observations, self.failures, self.rates, self.seconds = [], [], {}, {}
            self._write(json.dumps(head) + "\n", mode="w")
        if self._running is not None:
            self.add_failure(self._running)

    def _exchange(self, head: Mapping[str, Any]) -> None:
        """Put another head's journal aside, and take back the one of ``head`` that was."""
        found = self._head_found()
        if found == head:
            return
        with suppress(OSError):  # what cannot be moved cannot be written either, which is told then
            if found is not None and found.get("version") == _VERSION:
                self.put_aside = self._aside(found)
                self.path.replace(self.put_aside)
            own = self._aside(head)
            if own.is_file() and not own.is_symlink():
                own.replace(self.path)

    def _head_found(self) -> dict[str, Any] | None:
        """The first line of the file that is there; None where there is none, or it is no journal."""
        try:
            with self.path.open(encoding="utf-8") as file:
                return json_values.json_object(json.loads(file.readline(_MOST_HEAD)), "a head", None)
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def _aside(self, head: Mapping[str, Any]) -> Path:
        """Where the journal with this head is while others are written."""
        digest = zlib.crc32(json.dumps(head, sort_keys=True).encode())
        return self.path.with_stem(f"{self.path.stem}-{digest:08x}")

    def _read(self, head: Mapping[str, Any]) -> bool:
        try:
            if self.path.stat().st_size > _MAX_BYTES:
                return False
            content = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return False
        lines = content.splitlines()
        try:
            if not lines or json.loads(lines[0]) != head:
                return False
        except (ValueError, RecursionError):
            return False
        for line in lines[1:]:
            try:
                self._take(json.loads(line))
            except (KeyError, TypeError, ValueError, RecursionError):
                continue
        if not content.endswith("\n"):  # what comes next must not be joined to a line a crash cut short
            self._write("\n")
        return True

    def _take(self, entry: Any) -> None:
        entry = json_values.json_object(entry, "a line", None)
        if "starting" in entry:
            self._running = _failure(entry["starting"])
            return
        if "failed" in entry:
            self.failures.append(_failure(entry["failed"]))
            self._running = None
            return
        key = (json_values.text(entry["device"], "device"), json_values.integer(entry["threads"], "threads", 1))
        took = json_values.number(entry["took"], "took", 0.0)
        if "rates" in entry:
            self.rates[key] = json_values.numbers(entry["rates"], "rates", 0.0)
        else:
            self.observations.append(StepObservation.from_json(entry["step"]))
            self._running = None
        self.seconds[key] = self.seconds.get(key, 0.0) + took

    def starting(self, device: str, threads: int, family: str, name: str) -> None:
        """What is measured next: if the process ends with it, the next run knows."""
        self._append({"starting": asdict(Failure(device, threads, family, name, _NEVER_SEEN_AGAIN))})

    def add_failure(self, failure: Failure) -> None:
        """Keep a probe that hung or did not fit; the time it took is the caller's to count."""
        self._append({"failed": asdict(failure)})

    def add_rates(self, device: str, threads: int, rates: Mapping[str, float], took: float) -> None:
        """Keep the rates of one device."""
        self._append({"device": device, "threads": threads, "rates": dict(rates), "took": took})

    def add(self, observation: StepObservation, took: float) -> None:
        """Keep one measured probe that took ``took`` seconds."""
        self._append(
            {"device": observation.device, "threads": observation.threads, "step": observation.to_json(), "took": took}
        )

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
        """Probes measured and probes that failed: the next run draws others."""
        failed = sum(f.device == device and f.threads == threads for f in self.failures)
        return len(self.of(device, threads)) + failed

    def close(self) -> None:
        """Remove the file: its content is in a saved profile now."""
        self.path.unlink(missing_ok=True)


def _head(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    return {"version": _VERSION, "fingerprint": json.loads(json.dumps(fingerprint))}


def _failure(value: Any) -> Failure:
    fields = json_values.json_object(value, "a failure", ("device", "threads", "family", "name", "reason"))
    words = {name: json_values.text(fields[name], name) for name in ("device", "family", "name", "reason")}
    return Failure(threads=json_values.integer(fields["threads"], "threads", 1), **words)


def infeasible(failures: Sequence[Failure]) -> tuple[str, ...]:
    """What a reader of the profile should know: how many probes of a family failed on which device, and why."""
    counts: dict[tuple[str, str, str], int] = {}
    for f in failures:
        if f.reason != _NEVER_SEEN_AGAIN:
            counts[f.device, f.family, f.reason] = counts.get((f.device, f.family, f.reason), 0) + 1
    return tuple(
        f"{count} probe{'s' * (count > 1)} of {family} on {device} left out: {reason}"
        for (device, family, reason), count in counts.items()
    )
