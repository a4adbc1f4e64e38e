"""A 2-20-5-1 network fitted to a surface: the whole data set as one batch, or small batches from the host."""

from __future__ import annotations

from torch import nn

from placer.calibration.suite.mlp import mlp
from placer.calibration.suite.reference.account import Case, Reference, batches_of
from placer.calibration.suite.reference.datasets import surface
from placer.calibration.suite.reference.supervised import Supervised, own_loss

SYSTEM = "surface regression"
EPOCHS = 2000
LOADER_BATCH = 32


def surface_training() -> Supervised:
    """Points (batch, 2) and heights (batch, 1) to the loss of the 2-20-5-1 network."""
    return Supervised(mlp((2, 20, 5, 1), nn.ReLU), nn.MSELoss())


_SMALL = "no gain on the GPU"
_WHOLE = (
    Case(100, 100, _SMALL, ("CPU", "tie")),
    Case(1000, 1000, _SMALL, ("CPU", "tie")),
    Case(40_000, 40_000, "GPU about 200 times faster", ("GPU",)),
)
_LOADED = tuple(Case(LOADER_BATCH, rows, "GPU much slower than the CPU", ("CPU",)) for rows in (100, 1000, 40_000))
ENTRIES = (
    Reference(
        "surface_whole_data", "mlp", surface_training, surface, batches_of(_WHOLE), ("train",), loss=own_loss,
        data="device", system=SYSTEM, variant="all data in one batch on the device", cases=_WHOLE, epochs=EPOCHS,
    ),
    Reference(
        "surface_data_loader", "mlp", surface_training, surface, batches_of(_LOADED), ("train",), loss=own_loss,
        data="host", system=SYSTEM, variant="mini-batches from a DataLoader", cases=_LOADED, epochs=EPOCHS,
    ),
)  # fmt: skip
