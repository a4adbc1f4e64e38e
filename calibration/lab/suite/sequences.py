"""Networks over sequences and graphs: recurrent layers, neural differential equations, transformers, messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from placer.calibration.suite.entry import (
    Entry,
    cross_entropy,
    label_loss,
    loss_inside,
    mean_squared,
    of_transformers,
    randn,
)
from placer.calibration.suite.quick import SequenceModel, gnn, gpt2, labelled_tokens, mlp, nodes, pixel_values


class TextClassifier(nn.Module):
    """Token ids (batch, time) through an embedding and a two-layer bidirectional LSTM to 4 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5000, 64)
        self.recurrent = nn.LSTM(64, 64, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(128, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        output, _ = self.recurrent(self.embed(tokens))
        return self.head(output.mean(dim=1))


class CellLoop(nn.Module):
    """An LSTM cell stepped in Python, as custom recurrences are written: (batch, time, 16) to (batch, 1)."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.hidden = hidden
        self.cell = nn.LSTMCell(16, hidden)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], self.hidden)
        c = torch.zeros_like(h)
        for step in x.unbind(dim=1):
            h, c = self.cell(step, (h, c))
        return self.head(h)


class Solved(nn.Module):
    """A 3-100-3 field solved by torchdiffeq: (batch, 3) states to (points, batch, 3)."""

    times: Tensor

    def __init__(self, method: str, points: int = 11) -> None:
        super().__init__()
        self.field = mlp((3, 100, 3), nn.Tanh)
        self.method = method
        self.register_buffer("times", torch.linspace(0.0, 1.0, points))

    def derivative(self, _: Tensor, y: Tensor) -> Tensor:
        """The right-hand side, independent of time."""
        return self.field(y)

    def forward(self, y: Tensor) -> Tensor:
        from torchdiffeq import odeint

        return odeint(self.derivative, y, self.times, method=self.method)


class EncoderClassifier(nn.Module):
    """``nn.TransformerEncoder`` over (batch, time, width); its inference takes a fused path of its own."""

    def __init__(self, width: int, layers: int, *, norm_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(dim=1))


def tokens(length: int, vocabulary: int) -> Callable[[int], dict[str, Tensor]]:
    """Examples as the text models of transformers take them."""
    return lambda n: {
        "input_ids": torch.randint(0, vocabulary, (n, length)),
        "attention_mask": torch.ones(n, length, dtype=torch.int64),
    }


def bert(layers: int, width: int, heads: int, vocabulary: int) -> nn.Module:
    """A BERT encoder."""
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": 4 * width}
    return of_transformers("BertModel", "BertConfig", num_attention_heads=heads, vocab_size=vocabulary, **sizes)


VIT = {
    "num_hidden_layers": 4, "hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768, "image_size": 96,
    "patch_size": 16, "num_labels": 100,
}  # fmt: skip
T5 = {
    "num_layers": 2, "num_decoder_layers": 2, "d_model": 128, "d_kv": 32, "d_ff": 512, "num_heads": 4,
    "vocab_size": 2000, "use_cache": False, "decoder_start_token_id": 0,
}  # fmt: skip
#: With grouped-query attention.
LLAMA = {
    "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
    "intermediate_size": 688, "vocab_size": 4000, "max_position_embeddings": 256, "use_cache": False,
}  # fmt: skip


def graphs(count: int) -> dict[str, Any]:
    """``count`` random graphs of 20 nodes and 60 edges each, laid side by side as torch_geometric batches them."""
    generator = torch.Generator().manual_seed(count)
    offsets = 20 * torch.arange(count).repeat_interleave(60)
    return {
        "x": torch.randn(20 * count, 32, generator=generator),
        "edge_index": torch.randint(0, 20, (2, 60 * count), generator=generator) + offsets,
        "batch": torch.arange(count).repeat_interleave(20),
        "size": count,
    }


class GraphClassifier(nn.Module):
    """Graph classification: three GIN layers and a sum over each graph.

    With ``size_from_batch`` the number of graphs is read from the batch vector, as most scripts do: one wait for the
    device, and a shape that depends on data.
    """

    def __init__(self, *, size_from_batch: bool = False) -> None:
        super().__init__()
        from torch_geometric.nn import GIN, global_add_pool

        self.size_from_batch, self.pool = size_from_batch, global_add_pool
        self.gin = GIN(32, 64, 3, norm="batch_norm")
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, size: int) -> Tensor:
        h = self.gin(x, edge_index)
        return self.head(self.pool(h, batch, None if self.size_from_batch else size))


_ODE, _HF, _PYG = ("torchdiffeq",), ("transformers",), ("torch_geometric",)
ENTRIES = (
    Entry("gru", "recurrent", partial(SequenceModel, nn.GRU, 32, 128), randn(20, 32), (8, 128), optimizer="adamw",
          loss=mean_squared),
    Entry("rnn_tanh", "recurrent", partial(SequenceModel, nn.RNN, 4, 32), randn(40, 4), (1, 64), optimizer="rmsprop",
          loss=mean_squared),
    Entry("lstm_2_layers_50_steps", "recurrent", partial(SequenceModel, nn.LSTM, 16, 128, 2), randn(50, 16), (1, 32),
          loss=mean_squared),
    Entry("gru_bidirectional", "recurrent", partial(SequenceModel, nn.GRU, 24, 64, bidirectional=True), randn(25, 24),
          (4, 64), loss=mean_squared),
    Entry("lstm_text_bidirectional", "recurrent", TextClassifier, lambda n: torch.randint(0, 5000, (n, 40)), (2, 32),
          loss=cross_entropy),
    Entry("lstm_cell_loop", "recurrent", CellLoop, randn(20, 16), (1, 128), loss=mean_squared),
    Entry("neural_ode_rk4", "ode", partial(Solved, "rk4"), randn(3), (1, 256), loss=mean_squared, needs=_ODE),
    Entry("neural_ode_dopri5", "ode", partial(Solved, "dopri5"), randn(3), (1, 256), loss=mean_squared, needs=_ODE),
    Entry("transformer_encoder", "transformer", partial(EncoderClassifier, 64, 2, norm_first=False), randn(32, 64),
          (1, 32), loss=cross_entropy),
    Entry("transformer_encoder_prenorm", "transformer", partial(EncoderClassifier, 128, 4, norm_first=True),
          randn(64, 128), (2, 16), optimizer="adamw", loss=cross_entropy),
    Entry("bert_base", "transformer", partial(bert, 12, 768, 12, 30522), tokens(32, 30522), (1, 2), optimizer="adamw",
          needs=_HF),
    Entry("bert_small", "transformer", partial(bert, 4, 256, 4, 8000), tokens(64, 8000), (1, 8), optimizer="adamw",
          needs=_HF),
    Entry("gpt2_small", "transformer", partial(gpt2, 12, 768, 12, 50257), labelled_tokens(32, 50257), (1, 2),
          optimizer="adamw", loss=loss_inside, needs=_HF),
    Entry("vit_small", "transformer", partial(of_transformers, "ViTForImageClassification", "ViTConfig", **VIT),
          pixel_values(96), (1, 8), optimizer="adamw", loss=label_loss, needs=_HF),
    Entry("t5_tiny", "transformer", partial(of_transformers, "T5ForConditionalGeneration", "T5Config", **T5),
          labelled_tokens(32, 2000), (1, 8), loss=loss_inside, needs=_HF),
    Entry("llama_tiny", "transformer", partial(of_transformers, "LlamaForCausalLM", "LlamaConfig", **LLAMA),
          labelled_tokens(64, 4000), (1, 4), optimizer="adamw", loss=loss_inside, needs=_HF),
    Entry("gat", "graph", partial(gnn, "GAT", heads=4, add_self_loops=False), nodes, (100, 3000), loss=cross_entropy,
          needs=_PYG),
    # Adding self-loops first removes those there are: how many edges remain depends on the graph.
    Entry("gat_self_loops", "graph", partial(gnn, "GAT", heads=4), nodes, (100, 3000), loss=cross_entropy, needs=_PYG),
    Entry("graphsage", "graph", partial(gnn, "GraphSAGE"), nodes, (100, 3000), loss=cross_entropy, needs=_PYG),
    Entry("gin", "graph", GraphClassifier, graphs, (4, 64), loss=cross_entropy, needs=_PYG),
    Entry("gin_size_from_batch", "graph", partial(GraphClassifier, size_from_batch=True), graphs, (4, 64),
          loss=cross_entropy, needs=_PYG),
)  # fmt: skip
