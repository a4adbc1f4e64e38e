"""The accounts' image networks have the published numbers of parameters, and end in the classes they should."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts import big_cnn, small_cnn
from placer.calibration.suite.accounts.transformer import Bert
from placer.calibration.suite.accounts.yolo import YOLOv3

#: Trainable parameters: torchvision's for VGG and ResNet, Keras' own for the others. Keras' Inception networks have no
#: scale in their normalisations: their published numbers here are those with one, of torchvision and timm.
PARAMETERS = {
    "Xception": 22_855_952,
    "VGG16": 138_357_544,
    "VGG19": 143_667_240,
    "ResNet50": 25_583_592,
    "ResNet50V2": 25_568_360,
    "ResNet101": 44_601_832,
    "ResNet152": 60_268_520,
    "InceptionV3": 23_834_568,
    "InceptionResNetV2": 55_843_464,
    "MobileNet": 4_231_976,
    "MobileNetV2": 3_504_872,
    "NASNetMobile": 5_289_978,
    "resnet-34": 21_797_672,
    "resnet-50": 25_557_032,
    "resnet-152": 60_192_808,
    "vgg-16": 138_357_544,
    "vgg-19": 143_667_240,
}
NETWORKS = {**big_cnn.KERAS, **{name: (network, 224) for name, network in big_cnn.TRAINED.items()}}


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_classifier_of_a_thousand_classes(name: str) -> None:
    network, size = NETWORKS[name]
    with torch.device("meta"):
        model = network()
        output = model(torch.zeros(2, 3, size, size))
    assert parameters(model) == PARAMETERS[name]
    assert output.shape == (2, 1000)


def test_yolo_has_the_parameters_of_its_weight_file() -> None:
    with torch.device("meta"):
        model = YOLOv3()
        maps = model(torch.zeros(1, 3, 416, 416))
    channels = sum(layer.num_features for layer in model.modules() if isinstance(layer, nn.BatchNorm2d))
    # yolov3.weights: a header of 20 bytes, then float32 with the running mean and variance of each channel.
    assert parameters(model) + 2 * channels == (248_007_048 - 20) // 4
    assert [tuple(found.shape[1:]) for found in maps] == [(255, size, size) for size in (13, 26, 52)]


def test_bert_base_has_the_parameters_of_its_checkpoint() -> None:
    with torch.device("meta"):
        model = Bert()
    # bert-base-uncased with its pooler, and a linear layer of two classes.
    assert parameters(model) == 109_482_240 + 2 * 768 + 2


@pytest.mark.parametrize(
    ("network", "shape", "count"),
    [
        (small_cnn.lenet, (1, 28, 28), 44_426),
        (small_cnn.mnist_example, (1, 28, 28), 21_840),
        (lambda: small_cnn.tutorial(6), (3, 32, 32), 62_006),
    ],
)
def test_small_network_of_ten_classes(
    network: Callable[[], nn.Module], shape: tuple[int, ...], count: int
) -> None:
    model = network()
    output: Tensor = model(torch.zeros(2, *shape))
    assert parameters(model) == count
    assert output.shape == (2, 10)
