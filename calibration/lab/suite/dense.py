"""Networks of linear layers: perceptrons, autoencoders, policies, recommenders, and networks made for tables."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.suite.entry import Entry, binary, cross_entropy, mean_squared, randn
from placer.calibration.suite.quick import mlp


class Residual(nn.Module):
    """x + f(norm(x)), the block of tabular residual networks."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(self.norm(x))


def residual() -> nn.Module:
    """Four such blocks over 100 features."""
    return nn.Sequential(nn.Linear(100, 192), *[Residual(192, 384) for _ in range(4)], nn.Linear(192, 1))


class Variational(nn.Module):
    """The VAE of PyTorch's examples: (batch, 784) to (reconstruction, mean, log variance)."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, 400), nn.ReLU())
        self.mean = nn.Linear(400, 20)
        self.log_variance = nn.Linear(400, 20)
        self.decode = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encode(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decode(z), mean, log_variance


def variational(output: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Reconstruction and Kullback-Leibler terms of (reconstruction, mean, log variance)."""
    reconstruction, mean, log_variance = output
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return F.mse_loss(reconstruction, torch.zeros_like(reconstruction), reduction="sum") + divergence


def nature_features() -> nn.Sequential:
    """The convolutional body of DQN on Atari: screens (batch, 4, 84, 84) to 512 features."""
    convolutions = (nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3))
    layers = [layer for convolution in convolutions for layer in (convolution, nn.ReLU())]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU())


class NatureCnn(nn.Module):
    """uint8 frames (batch, 4, 84, 84) to values of 6 actions."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*nature_features(), nn.Linear(512, 6))

    def forward(self, frames: Tensor) -> Tensor:
        return self.body(frames.float() / 255.0)


class TwinCritic(nn.Module):
    """The two value networks of SAC and TD3: (batch, 17) observations and (batch, 6) actions to two values."""

    def __init__(self) -> None:
        super().__init__()
        self.first = mlp((23, 256, 256, 1))
        self.second = mlp((23, 256, 256, 1))

    def forward(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([observation, action], dim=1)
        return self.first(both), self.second(both)


class Dlrm(nn.Module):
    """Dense features through an MLP, 8 embedding bags, pairwise dot products, and an MLP on top: to (batch, 1)."""

    pairs: Tensor

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.bottom = mlp((13, 64, width))
        self.tables = nn.ModuleList([nn.EmbeddingBag(2000, width, mode="sum") for _ in range(8)])
        self.register_buffer("pairs", torch.tril_indices(9, 9, -1))
        self.top = mlp((width + 36, 64, 1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        # sparse: (batch, tables, ids per bag)
        vectors = torch.stack([bottom, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))
        return self.top(torch.cat([bottom, dots[:, self.pairs[0], self.pairs[1]]], dim=1))


class NeuralCollaborative(nn.Module):
    """User and item ids (batch,) each, through embeddings and an MLP, to a score."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(6000, 32)
        self.items = nn.Embedding(4000, 32)
        self.score = mlp((64, 64, 32, 1))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.score(torch.cat([self.users(user), self.items(item)], dim=1))


class EntityEmbeddings(nn.Module):
    """Six categorical columns embedded and joined to ten numeric ones, as tabular learners do: to (batch, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.embeds = nn.ModuleList([nn.Embedding(50, 8) for _ in range(6)])
        self.norm = nn.BatchNorm1d(10)
        self.body = mlp((58, 200, 100, 1), norm=nn.BatchNorm1d, dropout=0.1)

    def forward(self, numeric: Tensor, categories: Tensor) -> Tensor:
        embedded = [embed(categories[:, i]) for i, embed in enumerate(self.embeds)]
        return self.body(torch.cat([*embedded, self.norm(numeric)], dim=1))


def tabnet(inputs: int, outputs: int, **sizes: float) -> nn.Module:
    """The network inside pytorch-tabnet's estimators, its matrices as buffers: ``Module.to()`` leaves attributes."""
    from pytorch_tabnet.tab_network import TabNet

    groups = torch.eye(inputs)
    network: nn.Module = TabNet(inputs, outputs, virtual_batch_size=128, group_attention_matrix=groups, **sizes)
    for module in network.modules():
        for name in ("group_attention_matrix", "embedding_group_matrix"):
            value = vars(module).get(name)
            if isinstance(value, Tensor):
                delattr(module, name)
                module.register_buffer(name, value)
    return network


def sparse_cross_entropy(output: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy and the sparsity term, as TabNet's own trainer weighs them."""
    logits, sparsity = output
    return cross_entropy(logits) - 1e-3 * sparsity


class FeatureTokenTransformer(nn.Module):
    """Each of 20 numeric columns becomes a token: (batch, 20) to one logit, read from a class token."""

    def __init__(self, columns: int = 20, width: int = 32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, width) * 0.1)
        self.bias = nn.Parameter(torch.zeros(columns, width))
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x: Tensor) -> Tensor:
        columns = x.unsqueeze(-1) * self.weight + self.bias
        encoded = self.encoder(torch.cat([self.class_token.expand(x.shape[0], -1, -1), columns], dim=1))
        return self.head(encoded[:, 0])


def frames(n: int) -> Tensor:
    """Four screens of Atari."""
    return torch.randint(0, 256, (n, 4, 84, 84), dtype=torch.uint8)


def clicks(n: int) -> tuple[Tensor, Tensor]:
    """13 features, and four ids for each of eight tables."""
    return torch.randn(n, 13), torch.randint(0, 2000, (n, 8, 4))


ENTRIES = (
    Entry("mlp_surface", "mlp", partial(mlp, (2, 20, 5, 1), nn.Tanh), randn(2), (32, 1000, 40_000), loss=mean_squared),
    Entry("mlp_tiny_sgd", "mlp", partial(mlp, (4, 8, 1)), randn(4), (1, 128, 8192), optimizer="sgd", loss=mean_squared),
    Entry("mlp_tabular", "mlp", partial(mlp, (84, 128, 64, 10)), randn(84), (32, 512, 4096), loss=cross_entropy),
    Entry("mlp_batchnorm", "mlp", partial(mlp, (64, 256, 256, 128, 2), norm=nn.BatchNorm1d), randn(64), (64, 1024),
          optimizer="adamw", loss=cross_entropy),
    Entry("mlp_dropout", "mlp", partial(mlp, (200, 400, 400, 400, 1), nn.SiLU, dropout=0.3), randn(200),
          (32, 512, 2048), optimizer="rmsprop", loss=binary),
    Entry("mlp_deep_narrow", "mlp", partial(mlp, (16, *[32] * 20, 1), nn.ELU), randn(16), (16, 1024),
          loss=mean_squared),
    Entry("mlp_residual", "mlp", residual, randn(100), (32, 256, 1024), optimizer="adamw", loss=mean_squared),
    Entry("mlp_wide", "mlp", partial(mlp, (512, 2048, 2048, 10)), randn(512), (16, 256), loss=cross_entropy),
    Entry("mlp_huge_sgd", "mlp", partial(mlp, (1024, 4096, 4096, 1024), nn.GELU), randn(1024), (8, 128),
          optimizer="sgd"),
    Entry("tabnet", "tabular", partial(tabnet, 54, 7), randn(54), (128, 1024), loss=sparse_cross_entropy,
          needs=("pytorch_tabnet",)),
    Entry("feature_token_transformer", "tabular", FeatureTokenTransformer, randn(20), (16, 256), optimizer="adamw",
          loss=binary),
    Entry("dqn_vector", "policy", partial(mlp, (4, 120, 84, 2)), randn(4), (1, 128), loss=mean_squared),
    Entry("dqn_atari", "policy", NatureCnn, frames, (1, 32), loss=mean_squared),
    Entry("twin_critic", "policy", TwinCritic, lambda n: (torch.randn(n, 17), torch.randn(n, 6)), (1, 256)),
    Entry("dlrm_like", "recommender", Dlrm, clicks, (32, 1024), optimizer="sgd", loss=binary),
    Entry("neural_collaborative_filtering", "recommender", NeuralCollaborative,
          lambda n: (torch.randint(0, 6000, (n,)), torch.randint(0, 4000, (n,))), (64, 1024), loss=mean_squared),
    Entry("entity_embeddings", "recommender", EntityEmbeddings,
          lambda n: (torch.randn(n, 10), torch.randint(0, 50, (n, 6))), (64, 1024), loss=mean_squared),
    Entry("vae", "autoencoder", Variational, randn(784), (1, 128, 1024), loss=variational),
    Entry("dense_autoencoder", "autoencoder", partial(mlp, (30, 24, 12, 6, 12, 24, 30), nn.LeakyReLU), randn(30),
          (16, 256, 4096), loss=mean_squared),
)  # fmt: skip
