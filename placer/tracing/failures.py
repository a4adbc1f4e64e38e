"""Turns whatever the user's code raises into a TraceError that names the phase, the layer and the op."""

from __future__ import annotations

from typing import Any

from placer.errors import TraceError
from placer.tracing.layers import Layers, describe_layer
from placer.tracing.recorder import Recorder


class Failures:
    """A context around one phase of the step. Errors in it become errors of class ``kind``."""

    def __init__(self, phase: str, layers: Layers, recorder: Recorder, kind: type[TraceError] = TraceError) -> None:
        self.phase, self.layers, self.recorder, self.kind = phase, layers, recorder, kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        # A named boundary: the user's forward may raise anything. KeyboardInterrupt and TraceError pass.
        if isinstance(error, Exception) and not isinstance(error, TraceError):
            if self.phase == "backward":
                layer = self.layers.of_backward()
            else:
                layer = self.layers.current if self.layers.failed is None else self.layers.failed
            op = f", after {self.recorder.last_op}" if self.recorder.last_op else ""
            where = f"in {describe_layer(layer)}{op}"
            message = str(error).strip().split("\n")[0]
            raise self.kind(f"the {self.phase} failed {where}: {type(error).__name__}: {message}") from error
