"""Traces that others took with the PyTorch profiler: read like events of a session here, and replayed on two clocks."""

from placer.calibration.published.traces.chrome import ChromeTrace, TraceFileError, read_trace
from placer.calibration.published.traces.replay import Replay, replay
from placer.calibration.published.traces.steps import Steps, find_steps
from placer.calibration.published.traces.summary import TraceSummary, backward_ops, summarise

__all__ = [
    "ChromeTrace",
    "Replay",
    "Steps",
    "TraceFileError",
    "TraceSummary",
    "backward_ops",
    "find_steps",
    "read_trace",
    "replay",
    "summarise",
]
