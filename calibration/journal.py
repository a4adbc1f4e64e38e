"""What calibration has measured so far, a line of JSON per probe, so that an interrupt loses nothing.

The first line names the machine's fingerprint: a journal of another machine, or of other settings, is not resumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placer.calibration.observation import StepObservation

_VERSION = 1


class Journal:
    """Observations and rates in an append-only file. Damaged lines (a crash mid-write) are dropped, the rest kept."""

    def __init__(self, path: Path, fingerprint: Mapping[str, Any]) -> None:
        self.path = path
        self.observations: list[StepObservation] = []
        self.rates: dict[tuple[str, int], dict[str, float]] = {}
        self.seconds: dict[tuple[str, int], float] = {}
        head = {"version": _VERSION, "fingerprint": json.loads(json.dumps(fingerprint))}
        if not self._read(head):
            self.observations, self.rates, self.seconds = [], {}, {}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")

    def _read(self, head: Mapping[str, Any]) -> bool:
        try:
            content = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return False
        lines = content.splitlines()
        try:
            if not lines or json.loads(lines[0]) != head:
                return False
        except json.JSONDecodeError:
            return False
        for line in lines[1:]:
            try:
                self._take(json.loads(line))
            except (json.JSONDecodeError, KeyError, TypeError, ValueError):
                continue
        if not content.endswith("\n"):  # what comes next must not be joined to a line a crash cut short
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n")
        return True

    def _take(self, entry: Mapping[str, Any]) -> None:
        key = (str(entry["device"]), int(entry["threads"]))
        if "rates" in entry:
            self.rates[key] = dict(entry["rates"])
        else:
            self.observations.append(StepObservation.from_json(entry["step"]))
        self.seconds[key] = self.seconds.get(key, 0.0) + float(entry["took"])

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
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
        self._take(json.loads(line))

    def of(self, device: str, threads: int) -> list[StepObservation]:
        """The observations of one device at one number of threads, in the order they were taken."""
        return [o for o in self.observations if o.device == device and o.threads == threads]

    def close(self) -> None:
        """Remove the file: its content is in a saved profile now."""
        self.path.unlink(missing_ok=True)
