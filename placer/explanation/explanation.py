"""The public Explanation: its data, and the ways to render it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placer.decision import JOB, Advice, Table
from placer.explanation import build
from placer.explanation.accuracy import usual_errors
from placer.explanation.answer import IN_PYTHON, headline, short_answer
from placer.explanation.data import ExplanationData, Measured, Turn
from placer.explanation.notebook import card
from placer.explanation.page import explanation_page
from placer.explanation.sweep import Sweep
from placer.explanation.tables import sections
from placer.sections import render


class Explanation(ExplanationData):
    """What ``placer.explain`` returns: the fields of ``ExplanationData``, and text and pages made of them.

    ``str()`` gives the short answer of ``placer explain``, ``to_json()`` its JSON. A notebook shows it as a card.
    """

    @classmethod
    def of(
        cls,
        table: Table,
        *,
        advice: tuple[Advice, ...] = (),
        turn: Turn | None = None,
        measured: Mapping[str, Measured] | None = None,
    ) -> Explanation:
        """Why a step or a job is best where the table says. Of a job a step is the whole job, parts its outer layers.

        Layers and ops add up to a device's compute component.
        """
        decision = table.decide()
        longest, priced = build.longest_part(table, decision.device), build.priced_devices(table)
        layers, ops = build.rows(table)
        return replace(
            cls.of_rows(table),
            layers=layers,
            ops=ops,
            bottlenecks=tuple(build.bottlenecks(longest)),
            bounds={device: build.bounds(table, device) for device in priced},
            advice=advice,
            timeline={} if table.unit == JOB else build.schedule(longest),
            limits={device: build.limits(table, device) for device in priced},
            turn=turn,
            measured=measured or {},
        )

    @classmethod
    def of_rows(cls, table: Table) -> Explanation:
        """The same without what each op and layer takes: what the history keeps of a decision."""
        decision = table.decide()
        longest = build.longest_part(table, decision.device)
        return cls(
            workload=dict(table.facts),
            decision=decision,
            devices=table.costs,
            layers=(),
            ops=(),
            notes=build.notes(table),
            machine={**table.profile.facts, "here": table.this_machine},
            parts=build.part_rows(table) if table.unit == JOB else (),
            usual_errors=usual_errors(table, longest),
            left_out=table.left_out,
            real=dict(table.real),
        )

    def __repr__(self) -> str:
        return f"Explanation({headline(self)!r})"

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return card(short_answer(self, verify=""))

    def to_text(self, width: int = 100, *, color: bool = False, full: bool = False, verify: str = IN_PYTHON) -> str:
        """The short answer, at most ``width`` columns wide; ``full`` adds the tables.

        It has ANSI codes only where ``color`` asks for them. ``verify`` is what to run to time real steps.
        """
        parts = sections(self, verify) if full else [short_answer(self, verify)]
        return render(parts, width=width, color=color)

    def to_html(self, sweep: Sweep | None = None) -> str:
        """One self-contained page; ``sweep`` adds its plot.

        Raises PlacerError without what ``pip install torch-placer[report]`` brings.
        """
        return explanation_page(self, sweep)
