"""The public Explanation: its data, and the ways to render it."""

from __future__ import annotations

from placer.explanation.data import ExplanationData


class Explanation(ExplanationData):
    """What ``placer.explain`` returns: the fields of ``ExplanationData``, and text and pages made of them.

    ``str()`` gives the plain text of ``placer explain``, ``to_json()`` its JSON.
    """

    # Renderers are imported on use: their modules would make the first ``choose`` several milliseconds slower.

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int = 100) -> str:
        """Plain text at most ``width`` columns wide."""
        from placer.explanation.text import render

        return render(self, width=width)

    def to_html(self) -> str:
        """One self-contained page. Raises PlacerError without what ``pip install torch-placer[report]`` brings."""
        from placer.explanation.html import render

        return render(self)
