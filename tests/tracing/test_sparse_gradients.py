"""Gradients of whole rows: what a trace holds of them, without a step and in a real one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from placer.tracing import Trace, trace
from placer.workload import make_workload

ROWS, WIDTH, PICKED = 1000, 8, 32


class Words(nn.Module):
    def __init__(self, kind: Any, *, reads: bool = False) -> None:
        super().__init__()
        self.words, self.head, self.reads = kind(ROWS, WIDTH, sparse=True), nn.Linear(WIDTH, 2), reads

    def forward(self, rows: Tensor) -> Tensor:
        found = self.head(self.words(rows).flatten(1))
        if self.reads:
            float(found.sum())
        result: Tensor = found
        return result


def traced(kind: Any, optimizer: str, **values: Any) -> Trace:
    return trace(make_workload(Words(kind, **values), batch=torch.randint(0, ROWS, (PICKED, 1)), optimizer=optimizer))


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize("reads", [False, True])
def test_a_sparse_gradient_is_its_rows(kind: Any, reads: bool) -> None:
    found = traced(kind, "sgd", reads=reads)
    assert found.notes if reads else not found.notes
    made = [call for call in found.calls if call.phase == "backward" and call.layer == "words" and not call.view]
    assert all(spec.shape[0] == PICKED for call in made for spec in call.outputs)
    (update, *_) = [call for call in found.calls if call.phase == "optimizer"]
    assert (update.op, update.inputs[0].shape) == ("optimizer::SGD", (PICKED, WIDTH))


def test_it_takes_no_memory_of_the_tables_size_and_its_state_does() -> None:
    model = nn.Sequential(nn.Embedding(ROWS, WIDTH, sparse=True), nn.Flatten())
    found = trace(
        make_workload(
            model, batch=torch.zeros(PICKED, 1, dtype=torch.int64), optimizer=torch.optim.SparseAdam(model.parameters())
        )
    )
    table = ROWS * WIDTH * 4
    assert found.sparse_gradients == (0,)
    assert found.optimizer_state_bytes == pytest.approx(2 * table, rel=0.01)
    assert found.peak_bytes == pytest.approx(3 * table, rel=0.1)
