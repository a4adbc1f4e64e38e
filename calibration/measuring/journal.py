"""What calibration has measured so far: one line of JSON per probe, so that an interrupt loses nothing.

The first line holds the format and the machine's fingerprint. A journal of another machine, of other settings or of
another format is not resumed but put aside, until a calibration with these runs again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from placer.calibration.measuring.failures import PROCESS_ENDED, Failure
from placer.calibration.measuring.observation import StepObservation
from placer.errors import CalibrationError
from placer.profile import json_values as checked

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
