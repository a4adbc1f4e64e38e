"""What is chosen among: the cells of one network, batch and mode on several devices or numbers of threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from placer.calibration.validation.record import Cell, thread_count

#: The cells of one network, batch and mode among which a choice is made, by the name of the place. A place is a device
#: (all cells with the same number of threads), or a device with a number of threads.
Scenario = Mapping[str, Cell]


def scenarios(cells: Iterable[Cell]) -> list[Scenario]:
    """The cells that answer "which device?": same network, batch, mode and threads, measured on two devices or more."""
    groups: dict[tuple[str, int, str, int], dict[str, Cell]] = defaultdict(dict)
    for cell in cells:
        if cell.measured is not None:
            groups[cell.network, cell.batch, cell.mode, cell.threads][cell.device] = cell
    return [group for group in groups.values() if len(group) > 1]


def thread_scenarios(cells: Iterable[Cell]) -> list[Scenario]:
    """The cells that answer "with how many threads?": same network, batch and mode, measured with two counts or more.

    Places with more threads come first, as that is how a process starts.
    """
    groups: dict[tuple[str, int, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell.measured is not None:
            groups[cell.network, cell.batch, cell.mode].append(cell)
    found: list[Scenario] = []
    for group in groups.values():
        several = len({cell.device for cell in group}) > 1
        if len({cell.threads for cell in group if cell.device == "cpu"}) > 1:
            ordered = sorted(group, key=lambda cell: -cell.threads)
            found.append({_place_name(cell, several): cell for cell in ordered})
    return found


def _place_name(cell: Cell, several_devices: bool) -> str:
    return f"{cell.device}, {thread_count(cell.threads)}" if several_devices else thread_count(cell.threads)
