"""A Fleet: the answer, with its renderers."""

from __future__ import annotations

from dataclasses import dataclass

from placer.fleets import formats, page, text
from placer.fleets.data import FleetData


@dataclass(frozen=True)
class Fleet(FleetData):
    """Machines for one workload or job, the best first: see ``FleetData`` for what it holds."""

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, width: int = 100, color: bool = False) -> str:
        """Text at most ``width`` columns wide; with ANSI codes only where ``color`` asks for them."""
        return text.render(self, width=width, color=color)

    def to_html(self) -> str:
        """One page without external parts. Raises PlacerError without ``torch-placer[report]``."""
        return page.render(self)

    def to_nfd(self) -> str:
        """A feature file for Kubernetes node feature discovery. Raises ValueError for more than one machine."""
        return formats.nfd(self)

    def to_slurm(self) -> str:
        """The ``#SBATCH`` lines that ask Slurm for the best machine. Raises PlacerError where there is none."""
        return formats.slurm(self)
