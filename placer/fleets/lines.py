"""The lines of a fleet's table: machines that are alike stand on one, and a long list is cut."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from placer.decision import MANY, without_maker
from placer.explanation import kind_mark
from placer.fleets.data import FleetData, FleetRow
from placer.printable import printable
from placer.units import format_count

#: Lines of a long list that are shown, beside the Pareto set; a list that is not much longer is shown whole.
SHOWN = 20
#: A word that tells the model of a data centre's GPU: T4, V100, A10G, L40S, GH200, MI300X.
_MODEL = re.compile(r"[A-Z]{1,2}\d{1,3}[A-Za-z]?(?=$|[-_])")
#: So many machines in a row with the same numbers are named one by one.
_NAMED = 3


@dataclass(frozen=True)
class Line:
    """Machines with the same numbers: what they are called together, and the row of the first of them."""

    name: str
    row: FleetRow

    @property
    def marked(self) -> str:
        """The name, with the mark of what its numbers rest on."""
        mark = kind_mark(self.row.device, self.row.provenance)
        return f"{self.name} {mark}" if mark else self.name


def lines(rows: Sequence[FleetRow]) -> list[Line]:
    """One line a row; one for all machines in a row whose numbers are the same, where these are many."""
    found: list[Line] = []
    for _, group in groupby(rows, key=lambda row: (row.devices, row.device)):
        alike = list(group)
        if len(alike) > _NAMED:
            found.append(Line(f"{sum(row.count for row in alike):,} like {called(alike[0])}", alike[0]))
        else:
            found += [Line(f"{row.count:,} × {called(row)}" if row.count > 1 else called(row), row) for row in alike]
    return found


def has_trades(fleet: FleetData) -> bool:
    """Whether something besides time is known, so that more than one machine may be the right one."""
    return fleet.objective == "energy" or any(row.dollars is not None for row in fleet.rows)


def cut(fleet: FleetData, found: Sequence[Line]) -> list[Line]:
    """The first lines and the Pareto set; all where that leaves out few."""
    trades = has_trades(fleet)
    shown = [line for number, line in enumerate(found) if number < SHOWN or (trades and line.row.pareto)]
    return shown if len(shown) + SHOWN // 4 < len(found) else list(found)


def called(row: FleetRow) -> str:
    """A machine's name, with its GPU where the name does not tell it; that of a GPU without its maker.

    What cannot be printed is replaced: a line end in a name must not begin a line of a batch script.
    """
    if row.machine == row.gpu:
        return without_maker(row.machine)
    gpu, name = short_gpu(row.gpu), str(printable(row.machine))
    return f"{name} ({gpu})" if gpu and gpu.lower() not in name.lower() else name


def short_gpu(gpu: str) -> str:
    """What people call a GPU: ``T4`` for a Tesla T4, ``RTX 4090`` for an NVIDIA GeForce RTX 4090."""
    return next((found[0] for word in gpu.split() if (found := _MODEL.match(word))), without_maker(gpu))


def many(fleet: FleetData) -> int:
    """Steps that money and energy are told of: all, or a million of a long run, where one costs next to nothing."""
    return 1 if fleet.count is not None else MANY


def of_how_many(fleet: FleetData) -> str:
    """``1,000 steps``, or ``a million steps`` of a long run."""
    return f"a million {fleet.unit}s" if fleet.count is None else format_count(fleet.count, fleet.unit)
