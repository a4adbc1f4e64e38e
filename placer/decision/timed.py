"""What a decision asks of a prediction: its times, and which of them count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

#: Below this relative difference two times are equal.
EQUAL = 1e-9
#: Two devices are about the same where the time that counts differs by no more than this share: predictions, and
#: measurements on a shared machine, are not more exact than that.
TIE = 0.10


class Timed(Protocol):
    """What a decision asks of a ``Prediction``, or of the row that an explanation keeps of one."""

    @property
    def device(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def step_seconds(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def one_time_seconds(self) -> float: ...
    @property
    def components(self) -> Mapping[str, float]: ...
    @property
    def peak_memory_bytes(self) -> int: ...
    @property
    def available_memory_bytes(self) -> int | None: ...
    @property
    def fits(self) -> bool: ...
    @property
    def bounded_by(self) -> str | None: ...
    @property
    def watts(self) -> float | None: ...


def counted_seconds(prediction: Timed, steps: int | None) -> float:
    """The seconds that a choice compares: of one step in a long run, of the whole otherwise."""
    if steps is None:
        return prediction.step_seconds
    return prediction.one_time_seconds + steps * prediction.step_seconds


def is_cpu(device: str) -> bool:
    """Whether a device is a CPU, of this machine or of another."""
    return device.partition("@")[0].partition(":")[0] == "cpu"  # another machine's is called cpu@its-profile
