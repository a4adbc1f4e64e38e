"""Half a second of probing: what other programs do to it is bounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from placer.machine import measure_speeds, speed


def test_threads_that_wait_for_the_scheduler_do_not_count_as_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """On several threads the small step takes a scheduler's turn for each loop; on one it takes what it takes."""
    threads = torch.get_num_threads()
    if threads == 1:
        pytest.skip("torch has one thread here")

    def times(run: Callable[[], object]) -> list[float]:
        run()
        return [0.1 if torch.get_num_threads() > 1 else 1e-3]

    monkeypatch.setattr(speed, "_times", times)
    found = measure_speeds()
    assert found.small_step_seconds == pytest.approx(2e-3)
    assert found.region_seconds == pytest.approx(5e-6 * threads)
    assert torch.get_num_threads() == threads
