"""The collected traces of others: their kernels are found again with their ops, and the clocks replay their steps."""

from __future__ import annotations

import statistics
from functools import cache
from pathlib import Path

import pytest

from placer.calibration.measuring.events import assign
from placer.calibration.published.traces import TraceSummary, backward_ops, find_steps, read_trace, summarise
from placer.calibration.published.traces.__main__ import main

FOLDER = Path(__file__).resolve().parents[5] / "shared" / "gpu-data" / "traces"
FILES = sorted(FOLDER.glob("*.json.gz"))
pytestmark = pytest.mark.skipif(not FILES, reason="no published traces in ../shared")
#: Most of its time is a kernel that no op launches (``torch.cuda._sleep``).
OUTSIDE_OPS = "hta_event_sync_a100"
#: Kernels of its CUDA graphs are not in the file: its queue stands still for more than half of a step.
INCOMPLETE = "hta_recsys_pinned_copies_a100"


@cache
def summaries() -> dict[str, TraceSummary]:
    return {summary.name: summary for summary in map(summarise, map(read_trace, FILES))}


def test_kernels_of_ops_add_up_to_those_of_the_trace() -> None:
    shares = {name: summary.assigned for name, summary in summaries().items() if name != OUTSIDE_OPS}
    assert len(shares) > 15
    assert {name: share for name, share in shares.items() if not 0.98 <= share <= 1.0 + 1e-9} == {}


@pytest.mark.soak
def test_no_launch_of_a_kernel_or_a_copy_is_without_it() -> None:
    assert {name: summary.lost for name, summary in summaries().items() if summary.lost} == {}


def test_replayed_steps_are_as_long_as_shown() -> None:
    """The median over traces of two steps and more; and over those in which the host waits for more than a little."""
    replays = [s.replay for s in summaries().values() if s.replay is not None and s.steps > 1]
    waiting = [r for r in replays if r.host < 0.95 * r.shown]
    assert len(replays) >= 10
    assert len(waiting) >= 4
    assert statistics.median(abs(r.ratio - 1.0) for r in replays) <= 0.02
    assert statistics.median(abs(r.ratio - 1.0) for r in waiting) <= 0.07
    bounds = {"host": False, "device": False, "mixed": False}
    for r in replays:
        bound = "host" if r.host > 0.95 * r.shown else "device" if r.device > 0.9 * r.shown else "mixed"
        bounds[bound] = bounds[bound] or abs(r.ratio - 1.0) <= 0.1
    assert all(bounds.values()), bounds


def test_every_trace_is_replayed_within_a_tenth_but_one_that_lacks_kernels() -> None:
    replays = {name: s.replay for name, s in summaries().items() if s.replay is not None}
    off = {name for name, r in replays.items() if abs(r.ratio - 1.0) > 0.1}
    assert off == {INCOMPLETE}
    assert {name for name, r in replays.items() if r.starved > 0.2 * r.shown} == {INCOMPLETE}


@pytest.mark.parametrize("name", ["hta_resnet50_ddp1_v100", "kineto_r50_b32_v100"])
def test_backward_is_told_from_forward(name: str) -> None:
    """Autograd's nodes run on another thread, and have the sequence numbers of forward ops."""
    found = assign(read_trace(FOLDER / f"{name}.json.gz").events)
    steps = find_steps(found)
    assert steps is not None
    inside = {event.number for event in backward_ops(found)}
    backward = [event for event in found.host if event.number in inside]
    forward = [event for event in found.host if event.number not in inside and event.kind == "op"]
    assert {event.thread for event in backward if event.sequence >= 0}.isdisjoint({steps.thread})
    assert {event.thread for event in forward} == {steps.thread}
    numbers = {event.sequence for event in forward if event.sequence >= 0}
    nodes = [event for event in backward if event.sequence >= 0 and event.start_ns > steps.marks[1]]
    assert len(nodes) > 100
    assert sum(event.sequence in numbers for event in nodes) > 0.9 * len(nodes)
    assert 0.55 < summaries()[name].backward < 0.95


def test_the_command_prints_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(FOLDER / f"{name}.json.gz") for name in ("hta_tinymlp_gp100", "tl_bert_small_b1_h100")]
    assert main(paths) == 0
    printed = capsys.readouterr().out
    assert "Quadro GP100" in printed
    assert "CUDA 12.4" in printed
    assert "1 with two steps and more: replayed within 0.1% in the median" in printed
