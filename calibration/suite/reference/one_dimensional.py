"""Networks over rows of features and over series: a Conv1d regressor, the real TabNet, a GRU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from placer.calibration.suite.conv1d import Conv1dRegressor
from placer.calibration.suite.recurrent import SequenceModel
from placer.calibration.suite.reference.account import Case, Outcome, Reference, batches_of
from placer.calibration.suite.reference.datasets import features, series
from placer.calibration.suite.reference.supervised import Supervised, own_loss
from placer.calibration.suite.tabular import with_matrices_as_buffers

SYSTEM = "one-dimensional data"
EPOCHS = 10
#: A series of the GRU: moments and features per moment.
TIME, WIDTH = 30, 12


def conv1d_training() -> Supervised:
    """Rows (batch, 84) and targets (batch, 1) to the loss of the Conv1d regressor."""
    return Supervised(Conv1dRegressor(), nn.MSELoss())


class SparsityPenalized(nn.Module):
    """Mean squared error and TabNet's sparsity term, as its trainer weighs them: (output, sparsity), targets."""

    def forward(self, output: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
        predictions, sparsity = output
        return torch.nn.functional.mse_loss(predictions, targets) - 1e-3 * sparsity


def tabnet_training() -> Supervised:
    """Rows (batch, 84) and targets (batch, 1) to the loss of the network that ``TabNetRegressor`` trains."""
    from pytorch_tabnet.tab_network import TabNet

    network = TabNet(
        84, 1, n_d=17, n_a=17, n_steps=1, gamma=1.5, n_independent=2, n_shared=2, virtual_batch_size=128,
        group_attention_matrix=torch.eye(84),
    )  # fmt: skip
    return Supervised(with_matrices_as_buffers(network), SparsityPenalized())


def gru_training() -> Supervised:
    """Series (batch, 30, 12) and their next mean (batch, 1) to the loss of a GRU over 12 features."""
    return Supervised(SequenceModel(nn.GRU, WIDTH, 128), nn.MSELoss())


_SECONDS_CONV1D = {16: (1620, 2002), 512: (170, 238), 1024: (125, 209), 4096: (106, 162)}
_SECONDS_TABNET = {128: (1947, 1893), 512: (512, 719), 1024: (405, 531), 4096: (252, 405)}
#: Reported times closer than this are about equal, and those further apart tell the faster device.
_ABOUT_EQUAL, _CLEAR = 1.1, 1.3
#: Seconds that a process takes to start with a GPU, at the most: context, libraries and first calls.
_START = 3.0


def _million(batch: int, gpu: int, cpu: int) -> Case:
    """A case of a million rows, by the seconds that were reported."""
    margin = max(gpu, cpu) / min(gpu, cpu)
    faster: Outcome = "GPU" if gpu < cpu else "CPU"
    return Case(
        batch, 1_000_000, f"GPU {gpu} s, CPU {cpu} s for 10 epochs", ("tie",) if margin < _ABOUT_EQUAL else (faster,),
        doubt=f"the margin is {margin:.2f}x" if _ABOUT_EQUAL <= margin < _CLEAR else "",
    )  # fmt: skip


def _fewer(batch: int, rows: int, gpu: int, cpu: int) -> Case:
    """A case of fewer rows, for which no time was reported."""
    saved = (cpu - gpu) * rows / 1_000_000
    disagrees = f"by its own times for a million rows the GPU saves {saved:.1f} s"
    return Case(batch, rows, "CPU faster", ("CPU",), doubt=disagrees if saved > _START else "")


_CONV1D = tuple(
    _million(batch, gpu, cpu) if rows == 1_000_000 else _fewer(batch, rows, gpu, cpu)
    for batch, (gpu, cpu) in _SECONDS_CONV1D.items()
    for rows in (1_000, 10_000, 100_000, 1_000_000)
    if rows >= batch
)
_TABNET = tuple(_million(batch, gpu, cpu) for batch, (gpu, cpu) in _SECONDS_TABNET.items())
_GRU = tuple(Case(batch, 100_000, "GPU about 100 times faster", ("GPU",)) for batch in (64, 512))
ENTRIES = (
    Reference(
        "conv1d_training", "conv1d", conv1d_training, features, batches_of(_CONV1D), ("train",), loss=own_loss,
        system=SYSTEM, variant="Conv1d regressor", cases=_CONV1D, epochs=EPOCHS, data="host",
    ),
    Reference(
        "tabnet_regressor_training", "tabular", tabnet_training, features, batches_of(_TABNET), ("train",),
        loss=own_loss, needs=("pytorch_tabnet",), system=SYSTEM, variant="TabNetRegressor", cases=_TABNET,
        epochs=EPOCHS, data="host",
    ),
    Reference(
        "gru_training", "recurrent", gru_training, lambda n: series(n, TIME, WIDTH), batches_of(_GRU), ("train",),
        loss=own_loss, system=SYSTEM, variant="GRU over 12 features", cases=_GRU, epochs=EPOCHS, data="host",
    ),
)  # fmt: skip
