"""Known kernels tell whether the recorder sees a device's, and what it adds to a launch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from placer.calibration.measuring import recording as kernel_recorder
from placer.calibration.measuring.events import Event
from placer.calibration.measuring.recording import CHAIN, KernelRecorder, Recorded, try_recorder


class Host:
    """A clock that takes ``launch`` seconds for a launch, ``after`` once a session was opened."""

    def __init__(self, launch: float, after: float) -> None:
        self.now, self.launch, self.after, self.issuing = 0.0, launch, after, False

    def __call__(self) -> float:
        if self.issuing:
            self.now += CHAIN * self.launch
        self.issuing = not self.issuing
        return self.now


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Callable[[Host, int], KernelRecorder]:
    """Tries the recorder on a host; the number is that of the chain's kernels that it reports."""
    monkeypatch.setattr(kernel_recorder, "kind_shown", lambda: "cpu")
    monkeypatch.setattr(kernel_recorder, "synchronizer", lambda device: lambda: None)
    monkeypatch.setattr(kernel_recorder, "_per_launch_by_kind", {})

    def attempt(host: Host, reported: int) -> KernelRecorder:
        def record(timed: Callable[[], float], rounds: int, *, accelerated: bool) -> list[tuple[Recorded, float]]:
            assert accelerated
            host.launch = host.after
            seconds = [1e-6] * reported + [0.0] * (CHAIN - reported)
            events = [Event("aten::neg_", 0.0, 1e-6, -1, 0, s) for s in seconds]
            return [(Recorded(timed(), events), 0.0) for _ in range(rounds)]

        monkeypatch.setattr(kernel_recorder, "record", record)
        return try_recorder("cpu", host)

    return attempt


def test_what_the_first_session_adds_to_a_launch_is_known(tried: Callable[[Host, int], KernelRecorder]) -> None:
    found = tried(Host(4e-6, 5e-6), CHAIN)
    assert (found.sees, found.per_launch, found.kernel_seconds) == (True, pytest.approx(1e-6), 1e-6)
    # A second device of the kind, or a second calibration: the first session was long before.
    assert tried(Host(5e-6, 5e-6), CHAIN).per_launch == pytest.approx(1e-6)


def test_a_launch_never_takes_less_for_it_nor_twice_as_much(tried: Callable[[Host, int], KernelRecorder]) -> None:
    assert tried(Host(5e-6, 4e-6), CHAIN).per_launch == 0.0
    kernel_recorder._per_launch_by_kind.clear()
    assert tried(Host(4e-6, 40e-6), CHAIN).per_launch == pytest.approx(4e-6)


@pytest.mark.parametrize(("reported", "sees"), [(CHAIN, True), (CHAIN - 3, True), (2, False), (0, False)])
def test_half_of_the_kernels_must_be_seen(
    reported: int, sees: bool, tried: Callable[[Host, int], KernelRecorder]
) -> None:
    assert tried(Host(4e-6, 4e-6), reported).sees is sees


def test_other_devices_are_not_tried() -> None:
    assert try_recorder("mps") == KernelRecorder(sees=False)
