"""The public Explanation: its data, and the ways to render it."""

from __future__ import annotations

from placer.explanation.data import ExplanationData
from placer.explanation.page import render
from placer.explanation.sweep import Sweep
from placer.explanation.text import render_text


class Explanation(ExplanationData):
    """What ``placer.explain`` returns: the fields of ``ExplanationData``, and text and pages made of them.

    ``str()`` gives the plain text of ``placer explain``, ``to_json()`` its JSON.
    """

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int = 100, *, color: bool = False) -> str:
        """Text at most ``width`` columns wide; with ANSI codes only where ``color`` asks for them."""
        return render_text(self, width=width, color=color)

    def to_html(self, sweep: Sweep | None = None) -> str:
        """One self-contained page; ``sweep`` adds its plot.

        Raises PlacerError without what ``pip install torch-placer[report]`` brings.
        """
        return render(self, sweep)
