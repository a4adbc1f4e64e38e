"""The networks of the quick suite, and what larger networks of their families are made of too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.suite.conv1d import Conv1dRegressor
from placer.calibration.suite.entry import (
    Entry,
    cross_entropy,
    label_loss,
    loss_inside,
    mean_squared,
    negative_log_likelihood,
    of_transformers,
    randn,
)


def mlp(
    sizes: Sequence[int],
    activation: Callable[[], nn.Module] = nn.ReLU,
    *,
    norm: Callable[[int], nn.Module] | None = None,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Linear layers of these sizes with an optional norm, the activation and dropout between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes[:-1]):
        layers.append(nn.Linear(inputs, outputs))
        if norm is not None:
            layers.append(norm(outputs))
        layers.append(activation())
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class ActorCritic(nn.Module):
    """Separate 64-64 towers for policy and value, as PPO's default for vectors: (batch, 8) to logits and values."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = mlp((8, 64, 64, 4), nn.Tanh)
        self.critic = mlp((8, 64, 64, 1), nn.Tanh)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(observation), self.critic(observation)


def actor_critic(output: tuple[Tensor, Tensor]) -> Tensor:
    """Policy gradient with an entropy bonus, and a value term, of (logits, values)."""
    logits, values = output
    log_probabilities = torch.log_softmax(logits, dim=-1)
    entropy = -(log_probabilities * log_probabilities.exp()).sum(-1)
    policy = -log_probabilities[:, 0].mean()
    return policy + 0.5 * values.square().mean() - 0.01 * entropy.mean()


class MnistNet(nn.Module):
    """The network of PyTorch's MNIST example: (batch, 1, 28, 28) to log probabilities (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def resnet(depths: list[int], widths: list[int], layer: str, *, early: bool = False) -> nn.Module:
    """A ResNet classifier of transformers; ``early``: it halves the image as its paper does."""
    sizes = {"depths": depths, "hidden_sizes": widths, "layer_type": layer, "downsample_in_bottleneck": early}
    return of_transformers("ResNetForImageClassification", "ResNetConfig", num_labels=1000, **sizes)


def pixel_values(size: int) -> Callable[[int], dict[str, Tensor]]:
    """Examples as the vision models of transformers take them."""
    return lambda n: {"pixel_values": torch.randn(n, 3, size, size)}


class SequenceModel(nn.Module):
    """A recurrent layer over (batch, time, features) and a linear head on its last step."""

    def __init__(
        self,
        kind: Callable[..., nn.RNNBase],
        features: int,
        hidden: int,
        layers: int = 1,
        *,
        bidirectional: bool = False,
        out: int = 1,
    ) -> None:
        super().__init__()
        self.recurrent = kind(features, hidden, num_layers=layers, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(hidden * (2 if bidirectional else 1), out)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.recurrent(x)
        return self.head(output[:, -1])


class HandWritten(nn.Module):
    """Fixed-step Runge-Kutta 4 written out in Python: (batch, 3) states to (20, batch, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.field = mlp((3, 100, 3), nn.Tanh)

    def forward(self, y: Tensor) -> Tensor:
        h = 1.0 / 20
        path = []
        for _ in range(20):
            k1 = self.field(y)
            k2 = self.field(y + h / 2 * k1)
            k3 = self.field(y + h / 2 * k2)
            k4 = self.field(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            path.append(y)
        return torch.stack(path)


def gpt2(layers: int, width: int, heads: int, vocabulary: int) -> nn.Module:
    """A GPT-2 language model; no cache of keys and values, as in training."""
    sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "vocab_size": vocabulary, "n_positions": 256}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return of_transformers("GPT2LMHeadModel", "GPT2Config", use_cache=False, **sizes, **ends)


def labelled_tokens(length: int, vocabulary: int, *, mask: bool = True) -> Callable[[int], dict[str, Tensor]]:
    """Examples as the text models of transformers take them, with labels: the model then computes its own loss.

    Without a mask, models look for packed sequences.
    """

    def example(n: int) -> dict[str, Tensor]:
        batch = {"input_ids": torch.randint(0, vocabulary, (n, length))}
        if mask:
            batch["attention_mask"] = torch.ones(n, length, dtype=torch.int64)
        return {**batch, "labels": torch.randint(0, vocabulary, (n, length))}

    return example


def nodes(count: int) -> dict[str, Tensor]:
    """One random graph of ``count`` nodes with 32 features and 5 edges per node, the same every time."""
    generator = torch.Generator().manual_seed(count)
    return {
        "x": torch.randn(count, 32, generator=generator),
        "edge_index": torch.randint(0, count, (2, 5 * count), generator=generator),
    }


def gnn(kind: str, **options: Any) -> nn.Module:
    """One of torch_geometric's ready-made networks: two layers over 32 features, 7 classes."""
    import torch_geometric.nn

    return getattr(torch_geometric.nn, kind)(32, 64, 2, 7, **options)


QUICK = (
    Entry("conv1d_regressor", "conv1d", Conv1dRegressor, randn(84), (16, 512, 1024, 4096)),
    Entry("actor_critic", "policy", ActorCritic, randn(8), (1, 64, 256), loss=actor_critic),
    Entry("lstm", "recurrent", partial(SequenceModel, nn.LSTM, 8, 64), randn(30, 8), (1, 32, 256), loss=mean_squared),
    Entry("neural_ode_rk4_by_hand", "ode", HandWritten, randn(3), (1, 64, 1000), loss=mean_squared),
    Entry("mnist_convnet", "cnn", MnistNet, randn(1, 28, 28), (1, 16, 64), optimizer="adadelta",
          loss=negative_log_likelihood),
    Entry("resnet18", "cnn", partial(resnet, [2, 2, 2, 2], [64, 128, 256, 512], "basic"), pixel_values(64), (1, 8),
          optimizer="sgd", loss=label_loss, needs=("transformers",)),
    Entry("gcn", "graph", partial(gnn, "GCN"), nodes, (100, 3000), loss=cross_entropy, needs=("torch_geometric",)),
    Entry("gpt2_tiny", "transformer", partial(gpt2, 2, 128, 4, 1000), labelled_tokens(64, 1000, mask=False), (1, 8, 32),
          optimizer="adamw", loss=loss_inside, needs=("transformers",)),
)  # fmt: skip
