"""Large convolutional networks on images of 224 pixels and more: training steps of 2016, and inference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.accounts.inception import inception_resnet_v2, inception_v3
from placer.calibration.suite.accounts.nasnet import NASNetMobile
from placer.calibration.suite.accounts.separable import mobilenet, mobilenet_v2, xception
from placer.calibration.suite.accounts.vgg_and_resnet import resnet, resnet50_v2, vgg
from placer.calibration.suite.accounts.yolo import YOLOv3
from placer.calibration.suite.losses import cross_entropy

Network = Callable[[], nn.Module]

#: The networks of keras.io/api/applications, and the pixels a side that each takes.
KERAS: dict[str, tuple[Network, int]] = {
    "Xception": (xception, 299),
    "VGG16": (partial(vgg, 16), 224),
    "VGG19": (partial(vgg, 19), 224),
    "ResNet50": (partial(resnet, 50, "keras"), 224),
    "ResNet50V2": (resnet50_v2, 224),
    "ResNet101": (partial(resnet, 101, "keras"), 224),
    "ResNet152": (partial(resnet, 152, "keras"), 224),
    "InceptionV3": (inception_v3, 299),
    "InceptionResNetV2": (inception_resnet_v2, 299),
    "MobileNet": (mobilenet, 224),
    "MobileNetV2": (mobilenet_v2, 224),
    "NASNetMobile": (NASNetMobile, 224),
}
#: Those of cnn-benchmarks.
TRAINED: dict[str, Network] = {
    "resnet-34": partial(resnet, 34),
    "resnet-50": partial(resnet, 50),
    "resnet-152": partial(resnet, 152),
    "vgg-16": partial(vgg, 16),
    "vgg-19": partial(vgg, 19),
}
#: The classifiers of CVBenchmarks.
SINGLE: dict[str, Network] = {
    "MobileNet": mobilenet, "MobileNetV2": mobilenet_v2, "ResNet50": partial(resnet, 50)
}  # fmt: skip


def inference(network: Network, batch: int, size: int) -> Part:
    """A forward over images of ``size`` pixels a side."""
    return Part(network, lambda: (torch.zeros(batch, 3, size, size),), "infer")


def training(network: Network, batch: int) -> Part:
    """Forward and backward of a batch that is on the device already; the update, which the accounts leave out, is the
    cheapest there is.
    """
    return Part(
        network, lambda: (torch.zeros(batch, 3, 224, 224),), "train", loss=cross_entropy, optimizer="sgd",
        data="device",
    )  # fmt: skip


def _trained(name: str, network: Network) -> Account:
    return Account(
        f"jcjohnson-{name}", "GTX 1080", hosts.XEON_E5_2630_V3, "",
        "Forward and backward in Lua Torch7, without the update; its CPU convolutions are far from today's.",
        (Point("fwd+bwd", (training(network, 16),)),),
    )  # fmt: skip


ACCOUNTS = (
    *(_trained(name, network) for name, network in TRAINED.items()),
    Account(
        "keras-applications-table", "A100-SXM4-40GB", hosts.EPYC_92_CORES,
        "batch 32 and the two processors as the page's notes give them",
        "Keras' predict loop; TensorFlow's graph fuses operators, and rounds products to TF32 on an A100.",
        tuple(Point(name, (inference(network, 32, size),)) for name, (network, size) in KERAS.items()),
    ),
    Account(
        "cvbenchmarks-xeon", "TITAN Xp", hosts.XEON_E5_2683_V3, "",
        "A forward of MXNet built without MKL; of YOLOv3 also decoding and suppressing boxes, which is not rebuilt. The"
        " collection's YOLOv3 row is the repository's for an i7-7700K with MKL and a GTX 1080 Ti, and is priced so.",
        (
            *(Point(name, (inference(network, 1, 224),)) for name, network in SINGLE.items()),
            Point("YOLOv3-416", (inference(YOLOv3, 1, 416),), gpu="GTX 1080 Ti", cpu=hosts.I7_7700K),
        ),
    ),
)  # fmt: skip
