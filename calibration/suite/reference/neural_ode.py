"""A neural differential equation that learns the Lorenz system: hundreds of tiny ops, one after the other."""

from __future__ import annotations

import torch
from torch import nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.ode import Solved
from placer.calibration.suite.reference.account import Case, Reference, batches_of
from placer.calibration.suite.reference.datasets import lorenz
from placer.calibration.suite.reference.products import product_on_device
from placer.calibration.suite.reference.supervised import Supervised, own_loss

SYSTEM = "neural ODE"
POINTS = 101


def lorenz_training() -> Supervised:
    """Starts (batch, 3) and trajectories (101, batch, 3) to the loss of a 3-100-3 field solved by dopri5 in [0, 1]."""
    # How many steps the solver takes depends on the weights: the same ones each time.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Supervised(Solved("dopri5", POINTS), nn.MSELoss())


#: No notebook had this card: a desktop of the day stands in for the CPU beside it.
GPU, CPU = "Tesla K40", hosts.DESKTOP_2017
_TRAINING = (Case(1, None, "CPU orders of magnitude faster than a Tesla K40", ("CPU",)),)
_PRODUCTS = (
    Case(3, None, "CPU 0.25 µs; a launch on a Tesla K40 about 12 µs", ("CPU",)),
    Case(100, None, "CPU 56 µs, Tesla K40 12.5 µs", ("GPU",), doubt="a CPU of today takes 6 µs, as measured"),
)
ENTRIES = (
    Reference(
        "lorenz_dopri5", "ode", lorenz_training, lambda n: lorenz(n, POINTS), batches_of(_TRAINING), ("train",),
        loss=own_loss, needs=("torchdiffeq",), data="device", system=SYSTEM, variant="training, dopri5",
        cases=_TRAINING, gpu=GPU, cpu=CPU, names_gpu=True,
    ),
    Reference(
        "matrix_vector", "matmul", product_on_device, lambda n: (torch.randn(100, n), torch.randn(n)),
        batches_of(_PRODUCTS), ("infer",), data="device", system=SYSTEM, variant="100×n matrix by a vector",
        cases=_PRODUCTS, gpu=GPU, cpu=CPU, names_gpu=True,
    ),
)  # fmt: skip
