"""The networks of the accounts, by name. Those that libraries have are built by these."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.benchmarks.layers import Unrolled
from placer.calibration.lab.suite.accounts_loops import (
    FFTNet,
    GraphAttention,
    Iterated,
    LanguageModel,
    Liquid,
    MessagePassing,
    NextValue,
    ScannedLSTM,
    SentenceScorer,
    graph_convolution,
)
from placer.calibration.lab.suite.dense import nature_features
from placer.calibration.lab.suite.reference import Operator
from placer.calibration.suite.entry import Supervised, cross_entropy, of_transformers
from placer.calibration.suite.quick import SequenceModel, mlp, resnet

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_ACTIONS, _ATOMS = 6, 51


class Reads:
    """A loss that the script reads in every step: the host waits for the device."""

    def __init__(self, loss: Callable[[Any], Tensor]) -> None:
        self.loss = loss

    def __call__(self, output: Any) -> Tensor:
        loss = self.loss(output)
        loss.item()
        return loss


def by_token(logits: Tensor) -> Tensor:
    """Cross entropy over the tokens of all sentences."""
    return cross_entropy(logits.flatten(0, 1))


# Single operators, and what runs on the host beside a step.


def _add_to_itself(b: Tensor) -> None:
    b += b


def _draw_two(like: Tensor) -> tuple[Tensor, Tensor]:
    return torch.randn(like.shape), torch.randn(like.shape)


def _draw_labelled(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return torch.randn(inputs.shape), torch.randint(0, 10, labels.shape)


def _load_rows(*data: Tensor) -> list[Tensor]:
    """What ``DataLoader`` does with a ``TensorDataset`` and no workers: fetches every row, then stacks a batch of them.

    Takes a batch of each tensor and gives it back. Python's own time between these operators is not in it.
    """
    rows = [tuple(tensor[i] for tensor in data) for i in range(len(data[0]))]
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def _load_images(normalised: bool, images: Tensor) -> Tensor:
    """Bytes (batch, rows, columns, channels) to a float batch, as a loader of images without workers has it.

    ``normalised``: with torchvision's ``Normalize`` after its ``ToTensor``. Opening the image, indexing the data set
    and Python's own time between these operators are not in it.
    """
    found = []
    for image in images.unbind():
        values = image.permute(2, 0, 1).contiguous().to(torch.float32).div(255)
        if normalised:
            mean = torch.full((values.shape[0], 1, 1), 0.5, device=values.device)
            values = values.clone().sub_(mean).div_(mean)
        found.append(values)
    return torch.stack(found)


# Dense networks.


def perceptron(
    sizes: list[int], activation: str = "ReLU", dropout: float = 0.0, last: str = "", bias: bool = True
) -> nn.Module:
    """Linear layers of these sizes; ``last``: what follows the last one. ``bias`` False: a single layer without."""
    layers: list[nn.Module] = [nn.Linear(sizes[0], sizes[1], bias=False)]
    if bias:
        layers = list(mlp(sizes, getattr(nn, activation), dropout=dropout))
    if last:
        layers.append(nn.Softmax(dim=1) if last == "Softmax" else nn.Sigmoid())
    return nn.Sequential(*layers)


def _validated_linear() -> nn.Module:
    return Supervised(nn.Linear(300, 4, bias=False), nn.CrossEntropyLoss())


class Blocks(nn.Module):
    """``depth`` times ``x + relu(linear(x))`` without a bias."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for linear in self.linears:
            x = x + F.relu(linear(x))
        return x


class TwoLayersByHand(nn.Module):
    """Forward, loss and gradients of two layers, written out, and the update of both weights."""

    w1: Tensor
    w2: Tensor

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("w1", torch.randn(inputs, hidden))
        self.register_buffer("w2", torch.randn(hidden, outputs))

    def forward(self, x: Tensor, y: Tensor) -> None:
        h = x.mm(self.w1)
        relu = h.clamp(min=0)
        error = relu.mm(self.w2) - y
        error.pow(2).sum()
        slope = 2.0 * error
        of_relu = slope.mm(self.w2.t())
        of_relu[h < 0] = 0
        self.w1 -= 1e-6 * x.t().mm(of_relu)
        self.w2 -= 1e-6 * relu.t().mm(slope)


class Heads(nn.Module):
    """MXNet's graph of 80 x 80 small layers, then as many fed by the sum of 80 of them beside the data."""

    def __init__(self, side: int, features: int, outputs: int) -> None:
        super().__init__()
        self.side = side
        self.first = nn.ModuleList(nn.Linear(features, outputs) for _ in range(side * side))
        self.second = nn.ModuleList(nn.Linear(features + outputs, outputs) for _ in range(side * side))

    def forward(self, data: Tensor) -> Tensor:
        first = [layer(data) for layer in self.first]
        second = []
        for i in range(self.side):
            column = first[i :: self.side]
            for j in range(self.side):
                summed = torch.stack(column).sum(0)
                second.append(self.second[i * self.side + j](torch.cat([summed, data], 1)))
        return torch.cat(second, 1)


def wide() -> nn.Module:
    """120 layers 2000-2000, 1.8 GB of weights, on the meta device: nothing here computes with them."""
    with torch.device("meta"):
        return nn.Sequential(*mlp([2000] * 121, nn.LeakyReLU), nn.LeakyReLU())


class Flow(nn.Module):
    """A physics-informed network: points (batch, 3) to the loss of an incompressible flow in x, y and t.

    Ten layers of 24; three outputs, the velocities and the pressure; their first derivatives with respect to the
    inputs, and second ones of both velocities.
    """

    def __init__(self) -> None:
        super().__init__()
        self.network = mlp((3, *[24] * 10, 3), nn.Tanh)

    def forward(self, points: Tensor) -> Tensor:
        points = points.detach().requires_grad_()
        u, v, p = self.network(points).unbind(1)
        of_u, of_v, of_p = (_slope(value, points) for value in (u, v, p))
        momentum = points.new_zeros(())
        for slope, pressure in ((of_u, of_p[:, 0]), (of_v, of_p[:, 1])):
            curved = _slope(slope[:, 0], points)[:, 0] + _slope(slope[:, 1], points)[:, 1]
            carried = u * slope[:, 0] + v * slope[:, 1]
            momentum = momentum + (slope[:, 2] + carried + pressure - 0.01 * curved).square().mean()
        return momentum + (of_u[:, 0] + of_v[:, 1]).square().mean()


def _slope(value: Tensor, points: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(value.sum(), points, create_graph=True)
    return found


# Convolutional networks, and those of libraries.


def convolutions(
    widths: list[int], kernel: int, padding: int, hidden: list[int], size: int, drops: bool = False
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


def vgg(repeats: list[int]) -> nn.Sequential:
    """Images (batch, 3, 224, 224) to 1000 classes; ``repeats``: convolutions for each of five resolutions."""
    layers: list[nn.Module] = []
    channels = 3
    for count, width in zip(repeats, (64, 128, 256, 512, 512), strict=True):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers.append(nn.Flatten())
    for inputs in (512 * 7 * 7, 4096):
        layers += [nn.Linear(inputs, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, 1000))


class Logits(nn.Module):
    """A classifier of transformers as a function of its inputs to its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.model(*inputs).logits


def residual(depths: list[int], widths: list[int], layer: str, early: bool = False) -> nn.Module:
    """A ResNet of transformers; ``early``: it halves the image before a block's 3 x 3 convolution, as Keras does."""
    return Logits(resnet(depths, widths, layer, early=early))


def mobilenet(version: int) -> nn.Module:
    """MobileNet of 1000 classes, version 1 or 2."""
    name = f"MobileNetV{version}"
    return Logits(of_transformers(f"{name}ForImageClassification", f"{name}Config", tf_padding=False, num_labels=1000))


def bert() -> nn.Module:
    """BERT base with a classifier of two classes, its attention in single operators as in 2022."""
    return Logits(of_transformers("BertForSequenceClassification", "BertConfig", attn_implementation="eager"))


# Reinforcement learning: what a policy computes in a rollout and in an update. The environments are not rebuilt.


class ActorCritic(nn.Module):
    """A Gaussian policy and a value, each on features of their own or, with ``shared``, on common ones.

    ``inputs`` 0 means screens (batch, 4, 84, 84), else rows of so many numbers through two layers of ``width``.
    """

    def __init__(self, inputs: int, width: int, actions: int, shared: bool) -> None:
        super().__init__()
        features = nature_features if inputs == 0 else _tanh_layers(inputs, width)
        self.policy_features = features()
        self.value_features = self.policy_features if shared else features()
        self.mean = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1)
        self.log_deviation = nn.Parameter(torch.zeros(actions))

    def think(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and standard deviation of the actions, and the values."""
        seen = self.policy_features(observations)
        of_value = seen if self.value_features is self.policy_features else self.value_features(observations)
        mean = self.mean(seen)
        return mean, torch.ones_like(mean) * self.log_deviation.exp(), self.value(of_value)


def _tanh_layers(inputs: int, width: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())


def log_probability(actions: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Of actions (batch, n) under normal distributions, summed over n."""
    variance = deviation**2
    return (-((actions - mean) ** 2) / (2 * variance) - deviation.log() - _HALF_LOG_2PI).sum(1)


class Act(nn.Module):
    """A step of a rollout of proximal policy optimisation: actions, values and log probabilities."""

    def __init__(self, inputs: int, width: int, actions: int, shared: bool) -> None:
        super().__init__()
        self.policy = ActorCritic(inputs, width, actions, shared)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, deviation, values = self.policy.think(observations)
        actions = torch.normal(mean, deviation)
        return actions, values, log_probability(actions, mean, deviation)


class Learn(nn.Module):
    """A minibatch of an update, down to the loss of Stable-Baselines3. ``logged``: how many scalars are read."""

    def __init__(self, inputs: int, width: int, actions: int, shared: bool, logged: int = 0) -> None:
        super().__init__()
        self.policy = ActorCritic(inputs, width, actions, shared)
        self.logged = logged

    def forward(
        self, observations: Tensor, actions: Tensor, log_probabilities: Tensor, advantages: Tensor, returns: Tensor
    ) -> Tensor:
        mean, deviation, values = self.policy.think(observations)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = torch.exp(log_probability(actions, mean, deviation) - log_probabilities)
        clipped = torch.clamp(ratio, 0.8, 1.2)
        policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
        value_loss = F.mse_loss(returns, values.flatten())
        entropy = -(0.5 + _HALF_LOG_2PI + deviation.log()).sum(1).mean()
        for scalar in (policy_loss, value_loss, entropy, ratio.mean())[: self.logged]:
            scalar.item()
        return policy_loss + 0.5 * value_loss + 0.01 * entropy


class NoisyLinear(nn.Module):
    """A linear layer whose weights have learnt noise while it trains."""

    weight_noise: Tensor
    bias_noise: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.weight_deviation = nn.Parameter(torch.full((outputs, inputs), bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.bias_deviation = nn.Parameter(torch.full((outputs,), bound))
        self.register_buffer("weight_noise", torch.randn(outputs, inputs))
        self.register_buffer("bias_noise", torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight + self.weight_deviation * self.weight_noise
        return F.linear(x, weight, self.bias + self.bias_deviation * self.bias_noise)

    def draw(self) -> None:
        """Draw new noise, as the outer product of two vectors."""
        outputs, inputs = self.weight.shape
        seen, said = self._vector(inputs), self._vector(outputs)
        self.weight_noise.copy_(said.ger(seen))
        self.bias_noise.copy_(said)

    def _vector(self, size: int) -> Tensor:
        noise = torch.randn(size, device=self.weight.device)
        return noise.sign().mul_(noise.abs().sqrt_())


class Rainbow(nn.Module):
    """Screens (batch, 4, 84, 84) to log probabilities of returns (batch, actions, atoms)."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nature_features()[:7]
        self.value = nn.Sequential(NoisyLinear(3136, 512), nn.ReLU(), NoisyLinear(512, _ATOMS))
        self.advantage = nn.Sequential(NoisyLinear(3136, 512), nn.ReLU(), NoisyLinear(512, _ACTIONS * _ATOMS))

    def forward(self, screens: Tensor) -> Tensor:
        seen = self.convolutions(screens)
        value = self.value(seen).view(-1, 1, _ATOMS)
        advantage = self.advantage(seen).view(-1, _ACTIONS, _ATOMS)
        return F.log_softmax(value + advantage - advantage.mean(1, keepdim=True), dim=2)

    def draw(self) -> None:
        """Draw the noise of every layer anew."""
        for layer in self.modules():
            if isinstance(layer, NoisyLinear):
                layer.draw()


class LearnRainbow(nn.Module):
    """Double Q-learning of distributions from a minibatch, down to its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.online = Rainbow()
        self.target = Rainbow().requires_grad_(False)

    def forward(self, screens: Tensor, actions: Tensor, rewards: Tensor, following: Tensor) -> Tensor:
        self.online.draw()
        rows = torch.arange(len(screens), device=screens.device)
        log_probabilities = self.online(screens)[rows, actions]
        with torch.no_grad():
            support = torch.linspace(-10.0, 10.0, _ATOMS, device=screens.device)
            best = (support * self.online(following).exp()).sum(2).argmax(1)
            self.target.draw()
            probabilities = self.target(following).exp()[rows, best]
            moved = (rewards.unsqueeze(1) + 0.99 * support).clamp(-10.0, 10.0)
            place = (moved + 10.0) / (20.0 / (_ATOMS - 1))
            lower, upper = place.floor().long(), place.ceil().long()
            projected = torch.zeros_like(probabilities)
            projected.scatter_add_(1, lower, probabilities * (upper - place))
            projected.scatter_add_(1, upper, probabilities * (place - lower))
        return -(projected * log_probabilities).sum(1).mean()


def _on_meta(build: Callable[..., nn.Module], **options: Any) -> nn.Module:
    with torch.device("meta"):
        return build(**options)


#: A network by name, or a function where a step is one operator.
NETWORKS: dict[str, Callable[..., Callable[..., Any]]] = {
    "product": lambda: torch.matmul, "sum": lambda: torch.sum, "add to itself": partial(Operator, _add_to_itself),
    "draw two": partial(Operator, _draw_two), "draw labelled": partial(Operator, _draw_labelled),
    "load rows": partial(Operator, _load_rows),
    "load images": lambda normalised: Operator(partial(_load_images, normalised)),
    "perceptron": perceptron, "validated linear": _validated_linear, "blocks": Blocks,
    "two layers by hand": TwoLayersByHand, "heads": Heads, "wide": wide, "flow": Flow,
    "rows as sequence": partial(SequenceModel, nn.RNN, 28, 128, 2, out=10), "language model": LanguageModel,
    "iterated": Iterated, "next value": NextValue, "scanned LSTM": ScannedLSTM,
    "cell loop": lambda: Unrolled(nn.LSTMCell(200, 200)), "LSTM": partial(nn.LSTM, 200, 200),
    "sentence scorer": SentenceScorer, "liquid": Liquid, "FFTNet": FFTNet,
    "graph attention": GraphAttention, "graph convolution": graph_convolution, "message passing": MessagePassing,
    "act": Act, "learn": Learn, "rainbow": Rainbow, "learn rainbow": LearnRainbow, "convolutions": convolutions,
    "VGG": partial(_on_meta, vgg), "ResNet": partial(_on_meta, residual), "MobileNet": partial(_on_meta, mobilenet),
    "BERT": partial(_on_meta, bert),
}  # fmt: skip
