"""The cells of one network, and the model and workload of each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from placer.calibration.suite import Entry
from placer.calibration.validation.record import Cell
from placer.workload import Data, Workload, make_workload


def cells_of(entry: Entry, places: Sequence[tuple[str, int]]) -> list[Cell]:
    """The empty cells of a network at these (device, CPU threads)."""
    return [
        Cell(
            entry.name, entry.family, batch, mode, device, threads,
            optimizer=entry.optimizer if mode == "train" else "", traceable=entry.traceable,
        )
        for device, threads in places
        for mode in entry.modes
        for batch in entry.batches
    ]  # fmt: skip


def build_model(entry: Entry) -> nn.Module:
    """The model of a network, its weights the same every time; the caller's random state is not disturbed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: nn.Module = entry.build()
        return model


def cell_workload(entry: Entry, model: nn.Module, cell: Cell, data: Data) -> Workload:
    """The workload of one cell, its batch the same every time; puts ``model`` into the cell's mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.batch)
        example = entry.example(cell.batch)
    model.train(cell.mode == "train")
    return make_workload(
        model, example=example, mode=cell.mode, loss=entry.loss, optimizer=entry.optimizer, data=data,
        autocast=entry.autocast,
    )  # fmt: skip


def one_line(error: Exception) -> str:
    """One printable line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return "".join(character if character.isprintable() else "?" for character in text)[:500]
