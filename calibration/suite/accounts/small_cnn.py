"""Small convolutional networks on MNIST and CIFAR-10, trained on the batches of a data loader.

Of SGD's settings the momentum is not rebuilt: one more elementwise operator for each of some ten small tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import BOTH, Account, Part, Point, Side
from placer.calibration.suite.accounts.image_loader import ImageLoader, images
from placer.calibration.suite.accounts.steps import read_loss
from placer.calibration.suite.reference.supervised import Supervised, own_loss
from placer.workload import Data

#: Training images of MNIST, and of CIFAR-10.
_MNIST, _CIFAR = 60_000, 50_000


def convolutions(
    *widths: int, kernel: int, padding: int, hidden: tuple[int, ...], size: int, drops: bool = False
) -> nn.Sequential:
    """Convolution, ReLU and pooling by two for each width after the first (the image's channels); then linear layers.

    ``size``: pixels a side. With ``drops``: dropout before the last pooling and before the last linear layer.
    """
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        dropped = drops and i == len(widths) - 2
        layers += [nn.Conv2d(inputs, outputs, kernel, padding=padding), *([nn.Dropout2d()] if dropped else [])]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
        size = (size + 2 * padding - kernel + 1) // 2
    layers.append(nn.Flatten())
    features = widths[-1] * size**2
    for outputs in hidden:
        layers += [nn.Linear(features, outputs), nn.ReLU()]
        features = outputs
    return nn.Sequential(*layers, *([nn.Dropout()] if drops else []), nn.Linear(features, 10))


def harmxn02() -> nn.Sequential:
    """Two convolutions of 3 x 3 and two linear layers."""
    return convolutions(1, 16, 32, kernel=3, padding=1, hidden=(128,), size=28)


def lenet() -> nn.Sequential:
    """LeNet-5 with ReLU and max pooling."""
    return convolutions(1, 6, 16, kernel=5, padding=0, hidden=(120, 84), size=28)


def taixuan() -> nn.Sequential:
    """Two convolutions of 5 x 5 and one linear layer."""
    return convolutions(1, 16, 32, kernel=5, padding=2, hidden=(), size=28)


def mnist_example() -> nn.Sequential:
    """The network of PyTorch's first MNIST example."""
    return convolutions(1, 10, 20, kernel=5, padding=0, hidden=(50,), size=28, drops=True)


def nykergoto() -> nn.Sequential:
    """Two narrow convolutions of 5 x 5 and two linear layers."""
    return convolutions(3, 6, 12, kernel=5, padding=2, hidden=(128,), size=32)


def tutorial(width: int) -> nn.Sequential:
    """PyTorch's CIFAR-10 tutorial, with ``width`` channels after the first convolution."""
    return convolutions(3, width, 16, kernel=5, padding=0, hidden=(120, 84), size=32)


def training(
    network: Callable[[], nn.Module], batch: int, channels: int, size: int, *, rows: int, optimizer: str = "adam",
    reads: bool = True, data: Data = "host", counted: tuple[Side, ...] = BOTH,
) -> Part:  # fmt: skip
    """An epoch over ``rows`` images: batch and labels are copied, and the loss is read where the script does."""

    def example() -> tuple[Tensor, Tensor]:
        return torch.zeros(batch, channels, size, size), torch.zeros(batch, dtype=torch.int64)

    return Part(
        lambda: Supervised(network(), nn.CrossEntropyLoss()), example, "train", loss=read_loss if reads else own_loss,
        optimizer=optimizer, data=data, count=rows / batch, counted=counted,
    )  # fmt: skip


def forwards(network: Callable[[], nn.Module], batch: int, count: float, data: Data = "host") -> Part:
    """Forwards over MNIST images."""
    return Part(network, lambda: (torch.zeros(batch, 1, 28, 28),), "infer", data=data, count=count)


def loading(batch: int, rows: int, *, normalised: bool) -> Part:
    """``rows`` MNIST images through a loader without workers."""
    return Part(
        lambda: ImageLoader(normalised=normalised), lambda: images(batch, 1, 28), "infer", count=rows / batch,
        on_host=True,
    )  # fmt: skip


def _lenet_torch(at: str, gpu: str, cpu: hosts.Host, cpu_batch: int) -> Point:
    """The script takes another batch on each device: 2048 on the GPU, 16 per hardware thread on the CPU."""
    on_cpu = training(lenet, cpu_batch, 1, 28, rows=_MNIST, reads=False, counted=("cpu",))
    on_gpu = training(lenet, 2048, 1, 28, rows=_MNIST, reads=False, data="pinned", counted=("gpu",))
    return Point(at, (on_cpu, on_gpu), gpu=gpu, cpu=cpu)


_FLUX = (training(lenet, 2048, 1, 28, rows=_MNIST, reads=False),)
_A100, _V100 = "A100-PCIE-40GB", "V100-PCIE-16GB"
_LOADER = "The loader's Python time and the opening of images are not rebuilt."

ACCOUNTS = (
    Account(
        "harmxn02-cnn-mnist", "RTX 3060 Laptop", hosts.RYZEN_5600H, "",
        f"The loader without workers (its tensor operators are rebuilt), copies, reading the loss. {_LOADER}",
        (
            Point(
                "3 epochs",
                (loading(64, _MNIST, normalised=True), training(harmxn02, 64, 1, 28, rows=_MNIST)),
            ),
        ),
    ),
    Account(
        "lenettorch-mnist", _A100, hosts.EPYC_7513, "PCIe cards; the account does not say which host had which card",
        "A loader with 18 or 32 worker processes, which runs beside the step and is not rebuilt; another batch on each"
        " device.",
        (
            _lenet_torch("A100 vs EPYC 7513, run 2", _A100, hosts.EPYC_7513, 16 * 64),
            _lenet_torch("A100 vs i9-10980XE, run 2", _A100, hosts.I9_10980XE, 16 * 36),
            _lenet_torch("V100 vs EPYC 7513, run 2", _V100, hosts.EPYC_7513, 16 * 64),
            _lenet_torch("V100 vs i9-10980XE, run 2", _V100, hosts.I9_10980XE, 16 * 36),
        ),
        "The account times its data loader: an epoch takes 1.1 to 1.8 s on all four devices, and the same network in"
        " Flux, without that loader, 0.17 to 0.23 s on these two GPUs.",
    ),
    Account(
        "flux-lenet-mnist", _A100, hosts.EPYC_7513,
        "PCIe cards; batch 2048 on both devices; the account does not say which host had which card",
        "The training loop of Flux.jl.",
        (
            Point("A100 vs EPYC 7513", _FLUX, gpu=_A100, cpu=hosts.EPYC_7513),
            Point("V100 vs EPYC 7513", _FLUX, gpu=_V100, cpu=hosts.EPYC_7513),
            Point("A100 vs i9-10980XE", _FLUX, gpu=_A100, cpu=hosts.I9_10980XE),
            Point("V100 vs i9-10980XE", _FLUX, gpu=_V100, cpu=hosts.I9_10980XE),
        ),
    ),
    Account(
        "bramappelt-cifar-n", "GTX 1050 Ti Mobile", hosts.I9_8950HK, "the card's laptop form, as the CPU is a laptop's",
        "A loader with workers, which runs beside the step and is not rebuilt; copies; reading the loss.",
        tuple(
            Point(f"n{width}", (training(partial(tutorial, width), 4, 3, 32, rows=_CIFAR, optimizer="sgd"),))
            for width in (6, 10, 50, 100, 200, 350, 500)
        ),
        why=(
            "placer says a quarter of the account's time on either device: the account has a loader with workers, and "
            "its clock may count the time of all cores."
        ),
    ),
    Account(
        "taixuan-mnist-cnn", "GTX 1080", hosts.DESKTOP_2017, "GTX 1080 and i7-6700K: neither is named (2018)",
        f"The loader without workers (its tensor operators are rebuilt), 24 forwards of 2000 test images. {_LOADER}",
        (
            Point(
                "1 epoch",
                (
                    loading(50, _MNIST, normalised=False), training(taixuan, 50, 1, 28, rows=_MNIST, reads=False),
                    forwards(taixuan, 2000, 24.0, "device"),
                ),
            ),
        ),
    ),
    Account(
        "ieeewang-mnist", "GTX 1080", hosts.DESKTOP_2020, "GTX 1080 and Ryzen 7 3700X: neither is named (2020)",
        "The loader without workers (its tensor operators are rebuilt), ten forwards of 1000 test images, saving the"
        f" model every ten batches (not rebuilt). {_LOADER}",
        (
            Point(
                "epoch",
                (
                    loading(64, _MNIST + 10_000, normalised=True),
                    training(mnist_example, 64, 1, 28, rows=_MNIST, optimizer="sgd", reads=False),
                    forwards(mnist_example, 1000, 10.0),
                ),
            ),
        ),
    ),
    Account(
        "nykergoto-cifar10", "GTX 1080", hosts.DESKTOP_2017, "GTX 1080 and i7-6700K: neither is named",
        "A loader with four workers, which runs beside the step and is not rebuilt; copies; reading the loss.",
        (Point("10 epochs", (training(nykergoto, 8, 3, 32, rows=_CIFAR, optimizer="sgd"),)),),
    ),
)  # fmt: skip
