"""The public Explanation: its data, and the ways to render it."""

from __future__ import annotations

from placer.explanation.data import ExplanationData
from placer.explanation.notebook import card
from placer.explanation.page import render
from placer.explanation.short import IN_PYTHON, render_short, render_text
from placer.explanation.sweep import Sweep


class Explanation(ExplanationData):
    """What ``placer.explain`` returns: the fields of ``ExplanationData``, and text and pages made of them.

    ``str()`` gives the short answer of ``placer explain``, ``to_json()`` its JSON. A notebook shows it as a card.
    """

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return card(self)

    def to_text(self, width: int = 100, *, color: bool = False, full: bool = False) -> str:
        """The short answer, at most ``width`` columns wide; ``full`` adds the tables.

        It has ANSI codes only where ``color`` asks for them.
        """
        return (render_text if full else render_short)(self, width=width, color=color, verify=IN_PYTHON)

    def to_html(self, sweep: Sweep | None = None) -> str:
        """One self-contained page; ``sweep`` adds its plot.

        Raises PlacerError without what ``pip install torch-placer[report]`` brings.
        """
        return render(self, sweep)
