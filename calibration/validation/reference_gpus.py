"""The reference systems on a GPU that is not here: what a step takes there, and from which batch on it is ahead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import nn

from placer.calibration.suite.reference.account import Reference
from placer.calibration.validation.cells import build_model, cell_workload
from placer.calibration.validation.elsewhere import priced_elsewhere
from placer.calibration.validation.record import Cell
from placer.decision import decide
from placer.errors import PlacerError
from placer.explanation import Explanation, Sweep, device_row
from placer.pricing import Prediction, gpu_profile
from placer.profile import Profile
from placer.tracing import Trace, trace

#: A sweep goes to this batch at least.
_LARGEST_BATCH = 4096


@dataclass(frozen=True)
class Hardware:
    """A CPU with a number of threads, and the GPU of the catalog that it drives.

    ``title`` is what the CPU is called where it is another than that of the report.
    """

    title: str
    cpu: Profile
    threads: int
    gpu: str

    @cached_property
    def profiles(self) -> Mapping[str, Profile]:
        """The profile of each device. Raises UnknownGPU."""
        other = gpu_profile(self.gpu, self.cpu)
        return {"cpu": self.cpu, other.devices()[0]: other}

    @property
    def accelerator(self) -> str:
        """What torch calls the GPU."""
        return list(self.profiles)[1]


class Steps:
    """The steps of one reference system, each traced once."""

    def __init__(self, entry: Reference) -> None:
        self.entry = entry
        self._traces: dict[int, Trace | PlacerError] = {}

    @cached_property
    def _model(self) -> nn.Module:
        return build_model(self.entry)

    def price(self, batch: int, hardware: Hardware) -> dict[str, Prediction]:
        """Predictions by device. Raises TraceError where there is no trace of such a batch."""
        data = self.entry.data or "host"
        traced = self._traced(batch)
        return {
            device: priced_elsewhere(traced, profile, device, hardware.threads, data)
            for device, profile in hardware.profiles.items()
        }

    def sweep(self, hardware: Hardware) -> Sweep:
        """Powers of two around the batch where the choice for a long run turns. It is taken to turn once.

        Raises TraceError where not one of them has a trace.
        """
        rows: dict[int, Explanation] = {}

        def choice(batch: int) -> str:
            if batch not in rows:
                rows[batch] = _explained(self.price(batch, hardware))
            return rows[batch].decision.device

        sizes = self._sizes()
        low, high = self._smallest(sizes), len(sizes) - 1
        first, last = choice(sizes[low]), choice(sizes[high])
        while first != last and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if choice(sizes[middle]) == first else (low, middle)
        return Sweep("batch", dict(sorted(rows.items())))

    def _sizes(self) -> list[int]:
        largest = max(_LARGEST_BATCH, *self.entry.batches)
        return [2**n for n in range(math.ceil(math.log2(largest)) + 1)]

    def _smallest(self, sizes: list[int]) -> int:
        """The index of the first size that has a trace: some networks cannot train on a single row."""
        for index, size in enumerate(sizes[:-1]):
            try:
                self._traced(size)
            except PlacerError:
                continue
            return index
        return len(sizes) - 1

    def _traced(self, batch: int) -> Trace:
        if batch not in self._traces:
            cell = Cell(self.entry.name, self.entry.family, batch, self.entry.modes[0], "cpu", 1)
            try:
                self._traces[batch] = trace(cell_workload(self.entry, self._model, cell, self.entry.data or "host"))
            except PlacerError as error:
                self._traces[batch] = error
        found = self._traces[batch]
        if isinstance(found, PlacerError):
            raise found
        return found


def _explained(predictions: Mapping[str, Prediction]) -> Explanation:
    """What a sweep asks of an explanation: the decision for a long run, and a row for each device."""
    rows = {name: device_row(prediction) for name, prediction in predictions.items()}
    return Explanation({}, decide(predictions, None), rows, (), ())
