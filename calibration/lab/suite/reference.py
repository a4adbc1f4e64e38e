"""The reference systems: five published accounts of "CPU or GPU?", which placer has to get right first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.lab.suite.datasets import digits, features, lorenz, one_hot_digits, series, surface
from placer.calibration.lab.suite.dense import tabnet
from placer.calibration.lab.suite.from_scratch import by_index, by_mask, large_by_index
from placer.calibration.lab.suite.sequences import Solved
from placer.calibration.suite.conv1d import Conv1dRegressor
from placer.calibration.suite.entry import Entry, Supervised, own_loss
from placer.calibration.suite.quick import MnistNet, SequenceModel, mlp

#: What an account says of a case: which device finished first, or that neither did by much.
Outcome = Literal["CPU", "GPU", "tie"]
#: Reported times closer than this are about equal, and those further apart tell the faster device.
_ABOUT_EQUAL, _CLEAR = 1.1, 1.3
#: Seconds that a process takes to start with a GPU, at the most: context, libraries and first calls.
_START = 3.0


@dataclass(frozen=True)
class Case:
    """One thing the account tried: a batch size on ``rows`` rows of data, and what it reported, hardware included.

    ``rows`` is None where there is no data set to go through: then the run is a long one. ``claim`` holds the outcomes
    that agree with the report; none where it compares no devices. ``doubt`` says why a claim is not a clear one.
    """

    batch: int
    rows: int | None
    reported: str
    claim: tuple[Outcome, ...] = ()
    doubt: str = ""


@dataclass(frozen=True)
class Reference(Entry):
    """A variant of a reference system. ``system`` is the account, ``variant`` what of it this is.

    ``batches`` are those of ``cases``; a case with the same batch and other rows is the same step, run another number
    of times. ``gpu`` is the account's card, by its name in the catalog, and ``cpu`` the CPU beside it, one of the hosts
    of ``accounts``. No account names its CPU, and ``names_gpu`` is False where it names no card either: what a free
    notebook of the day had stands in, a Tesla K80 and one core of a Xeon.
    """

    system: str = ""
    variant: str = ""
    cases: tuple[Case, ...] = ()
    #: How often the account went through its data.
    epochs: int = 1
    gpu: str = "Tesla K80"
    names_gpu: bool = False
    cpu: str = "Colab CPU"

    def steps(self, case: Case) -> int | None:
        """How many steps the account's run takes; None for a long run."""
        return None if case.rows is None else self.epochs * self.steps_per_epoch(case)

    def steps_per_epoch(self, case: Case) -> int:
        """How many steps go through the data once; 1 where there is no data set."""
        return 1 if case.rows is None else math.ceil(case.rows / case.batch)


class Operator(nn.Module):
    """A function or a network as a step, and what becomes of its output.

    It is brought back to the host (``"output"``); it ``"stays"`` on the device, where an account times the computation
    alone; or it is ``"waited"`` for, as a benchmark of single calls does: one value is read.
    """

    def __init__(self, inner: Callable[..., Any], end: str = "output") -> None:
        super().__init__()
        self.inner, self.end = inner, end

    def forward(self, *args: Tensor) -> Any:
        output = self.inner(*args)
        if self.end == "stays":
            return None
        return output.flatten()[:1] if self.end == "waited" else output


class SparsityPenalized(nn.Module):
    """Mean squared error and TabNet's sparsity term, as its trainer weighs them: (output, sparsity), targets."""

    def forward(self, output: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
        predictions, sparsity = output
        return F.mse_loss(predictions, targets) - 1e-3 * sparsity


def lorenz_training() -> Supervised:
    """Starts (batch, 3) and trajectories (101, batch, 3) to the loss of a 3-100-3 field solved by dopri5 in [0, 1]."""
    # How many steps the solver takes depends on the weights: the same ones each time.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Supervised(Solved("dopri5", 101), nn.MSELoss())


def tabnet_training() -> Supervised:
    """Rows (batch, 84) and targets (batch, 1) to the loss of the network that ``TabNetRegressor`` trains."""
    network = tabnet(84, 1, n_d=17, n_a=17, n_steps=1, gamma=1.5, n_independent=2, n_shared=2)
    return Supervised(network, SparsityPenalized())


def _regression(build: Callable[[], nn.Module]) -> Callable[[], Supervised]:
    """Inputs and targets to the mean squared error of a network."""
    return lambda: Supervised(build(), nn.MSELoss())


def _million(batch: int, gpu: int, cpu: int) -> Case:
    """A case of a million rows, by the seconds that were reported."""
    margin = max(gpu, cpu) / min(gpu, cpu)
    faster: Outcome = "GPU" if gpu < cpu else "CPU"
    claim: tuple[Outcome, ...] = ("tie",) if margin < _ABOUT_EQUAL else (faster,)
    doubt = f"the margin is {margin:.2f}x" if _ABOUT_EQUAL <= margin < _CLEAR else ""
    return Case(batch, 1_000_000, f"GPU {gpu} s, CPU {cpu} s for 10 epochs", claim, doubt)


def _fewer(batch: int, rows: int, gpu: int, cpu: int) -> Case:
    """A case of fewer rows, for which no time was reported."""
    saved = (cpu - gpu) * rows / 1_000_000
    disagrees = f"by its own times for a million rows the GPU saves {saved:.1f} s"
    return Case(batch, rows, "CPU faster", ("CPU",), doubt=disagrees if saved > _START else "")


_SECONDS_CONV1D = {16: (1620, 2002), 512: (170, 238), 1024: (125, 209), 4096: (106, 162)}
_SECONDS_TABNET = {128: (1947, 1893), 512: (512, 719), 1024: (405, 531), 4096: (252, 405)}
_CONV1D = [
    _million(batch, *seconds) if rows == 1_000_000 else _fewer(batch, rows, *seconds)
    for batch, seconds in _SECONDS_CONV1D.items()
    for rows in (1_000, 10_000, 100_000, 1_000_000)
    if rows >= batch
]


def _entry(
    system: str, variant: str, name: str, family: str, build: Any, example: Any, cases: Sequence[Case], **more: Any
) -> Reference:
    """Training with Adam on a loss of its own, its batches on the host, where nothing else is said."""
    batches = tuple(sorted({case.batch for case in cases}))
    settings: dict[str, Any] = {"modes": ("train",), "loss": own_loss, "data": "host", **more}
    return Reference(
        name, family, build, example, batches, system=system, variant=variant, cases=tuple(cases), **settings
    )


def vectors(n: int) -> tuple[Tensor, Tensor]:
    """A matrix of n columns and a vector."""
    return torch.randn(100, n), torch.randn(n)


def squares(n: int) -> tuple[Tensor, Tensor]:
    """Two matrices of n rows and columns."""
    return torch.randn(n, n), torch.randn(n, n)


_SURFACE = _regression(partial(mlp, (2, 20, 5, 1)))
_GRU = _regression(partial(SequenceModel, nn.GRU, 12, 128))
#: No notebook had this card: a desktop of the day stands in for the CPU beside it.
_K40: dict[str, Any] = {"gpu": "Tesla K40", "cpu": "i7-6700K", "names_gpu": True}
_STAYING: dict[str, Any] = {"modes": ("infer",), "loss": None, "data": "device"}
ENTRIES: tuple[Reference, ...] = (
    _entry("neural ODE", "training, dopri5", "lorenz_dopri5", "ode", lorenz_training, lorenz,
           [Case(1, None, "CPU orders of magnitude faster than a Tesla K40", ("CPU",))],
           needs=("torchdiffeq",), data="device", **_K40),
    _entry("neural ODE", "100×n matrix by a vector", "matrix_vector", "matmul",
           partial(Operator, torch.matmul, "stays"), vectors,
           [Case(3, None, "CPU 0.25 µs; a launch on a Tesla K40 about 12 µs", ("CPU",)),
            Case(100, None, "CPU 56 µs, Tesla K40 12.5 µs", ("GPU",),
                 doubt="a CPU of today takes 6 µs, as measured")], **_STAYING, **_K40),
    _entry("surface regression", "all data in one batch on the device", "surface_whole_data", "mlp", _SURFACE, surface,
           [Case(100, 100, "no gain on the GPU", ("CPU", "tie")),
            Case(1000, 1000, "no gain on the GPU", ("CPU", "tie")),
            Case(40_000, 40_000, "GPU about 200 times faster", ("GPU",))], data="device", epochs=2000),
    _entry("surface regression", "mini-batches from a DataLoader", "surface_data_loader", "mlp", _SURFACE, surface,
           [Case(32, rows, "GPU much slower than the CPU", ("CPU",)) for rows in (100, 1000, 40_000)], epochs=2000),
    _entry("moving data", "n×n product, operands stay", "square_product_staying", "matmul",
           partial(Operator, torch.matmul, "stays"), squares,
           [Case(200, None, "GPU 6 times faster than the CPU", ("GPU",))], **_STAYING),
    _entry("moving data", "n×n product, all copied", "square_product_copied", "matmul",
           partial(Operator, torch.matmul), squares,
           [Case(200, None, "GPU and CPU about equal", ("tie",))], modes=("infer",), loss=None),
    _entry("moving data", "MNIST ConvNet", "mnist_example_training", "cnn",
           lambda: Supervised(MnistNet(), nn.NLLLoss()), digits,
           [Case(64, 60_000, "153 s against 83 s on a Tesla K80, 10 epochs", ("GPU",))],
           optimizer="adadelta", epochs=10, names_gpu=True),
    _entry("one-dimensional data", "Conv1d regressor", "conv1d_training", "conv1d", _regression(Conv1dRegressor),
           features, _CONV1D, epochs=10),
    _entry("one-dimensional data", "TabNetRegressor", "tabnet_regressor_training", "tabular", tabnet_training, features,
           [_million(batch, *seconds) for batch, seconds in _SECONDS_TABNET.items()],
           needs=("pytorch_tabnet",), epochs=10),
    _entry("one-dimensional data", "GRU over 12 features", "gru_training", "recurrent", _GRU,
           partial(series, time=30, width=12),
           [Case(batch, 100_000, "GPU about 100 times faster", ("GPU",)) for batch in (64, 512)], epochs=10),
    _entry("network from scratch", "conv 10, pooling by index assignment", "scratch_cnn_by_index", "cnn", by_index,
           one_hot_digits,
           [Case(8, 60_000, "pooling's index assignment takes 9.5 ms of a backward pass of 10.3 ms")], optimizer="sgd"),
    _entry("network from scratch", "conv 10, pooling by mask", "scratch_cnn_by_mask", "cnn", by_mask, one_hot_digits,
           [Case(8, 60_000, "multiplying by the mask takes 16 µs")], optimizer="sgd"),
    _entry("network from scratch", "conv 32 and 64, pooling by index assignment", "scratch_cnn_large", "cnn",
           large_by_index, one_hot_digits,
           [Case(128, 60_000, "forward, backward and update timed by hand, layer by layer")], optimizer="sgd"),
)  # fmt: skip
