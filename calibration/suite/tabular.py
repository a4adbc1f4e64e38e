"""Networks made for tables: the real TabNet, and a feature-tokenising transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from placer.calibration.suite.entry import Entry
from placer.calibration.suite.losses import binary, tabnet


def real_tabnet() -> nn.Module:
    """The network inside ``TabNetClassifier``, 54 features to 7 classes."""
    from pytorch_tabnet.tab_network import TabNet

    identity = torch.eye(54)
    return with_matrices_as_buffers(
        TabNet(input_dim=54, output_dim=7, virtual_batch_size=128, group_attention_matrix=identity)
    )


def with_matrices_as_buffers(tabnet: nn.Module) -> nn.Module:
    """The same TabNet, which keeps some matrices as plain attributes: those ``Module.to()`` leaves behind."""
    for module in tabnet.modules():
        for name in ("group_attention_matrix", "embedding_group_matrix"):
            value = vars(module).get(name)
            if isinstance(value, Tensor):
                delattr(module, name)
                module.register_buffer(name, value)
    return tabnet


class FeatureTokenTransformer(nn.Module):
    """Each of 20 numeric columns becomes a token: (batch, 20) to one logit, read from a class token."""

    def __init__(self, columns: int = 20, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, width) * 0.1)
        self.bias = nn.Parameter(torch.zeros(columns, width))
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x: Tensor) -> Tensor:
        columns = x.unsqueeze(-1) * self.weight + self.bias
        encoded = self.encoder(torch.cat([self.class_token.expand(x.shape[0], -1, -1), columns], dim=1))
        out: Tensor = self.head(encoded[:, 0])
        return out


ENTRIES = (
    Entry(
        "tabnet", "tabular", real_tabnet, lambda n: torch.randn(n, 54), (128, 1024), loss=tabnet,
        needs=("pytorch_tabnet",),
    ),
    Entry(
        "feature_token_transformer", "tabular", FeatureTokenTransformer, lambda n: torch.randn(n, 20), (16, 256),
        optimizer="adamw", loss=binary,
    ),
)  # fmt: skip
