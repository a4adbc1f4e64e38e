"""Networks over sequences: recurrent layers and loops of cells, neural differential equations, transformers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from placer.calibration.suite.entry import (
    QUICK,
    Entry,
    cross_entropy,
    label_loss,
    loss_inside,
    mean_squared,
    of_transformers,
    randn,
)
from placer.calibration.suite.images import pixel_values


class SequenceModel(nn.Module):
    """A recurrent layer over (batch, time, features) and a linear head on its last step, or on all of them."""

    def __init__(
        self,
        kind: Callable[..., nn.RNNBase],
        features: int,
        hidden: int,
        layers: int = 1,
        *,
        bidirectional: bool = False,
        out: int = 1,
        last: bool = True,
    ) -> None:
        super().__init__()
        self.recurrent = kind(features, hidden, num_layers=layers, batch_first=True, bidirectional=bidirectional)
        self.last = last
        self.head = nn.Linear(hidden * (2 if bidirectional else 1), out)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.recurrent(x)
        return self.head(output[:, -1] if self.last else output)


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


def field() -> nn.Sequential:
    """The 3-100-3 network that gives the derivative."""
    return nn.Sequential(nn.Linear(3, 100), nn.Tanh(), nn.Linear(100, 3))


class HandWritten(nn.Module):
    """Fixed-step Runge-Kutta 4 written out in Python: (batch, 3) states to (steps, batch, 3)."""

    def __init__(self, steps: int = 20) -> None:
        super().__init__()
        self.field = field()
        self.steps = steps

    def forward(self, y: Tensor) -> Tensor:
        h = 1.0 / self.steps
        path = []
        for _ in range(self.steps):
            k1 = self.field(y)
            k2 = self.field(y + h / 2 * k1)
            k3 = self.field(y + h / 2 * k2)
            k4 = self.field(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            path.append(y)
        return torch.stack(path)


class Solved(nn.Module):
    """The same through torchdiffeq: (batch, 3) states to (points, batch, 3)."""

    times: Tensor

    def __init__(self, method: str, points: int = 11) -> None:
        super().__init__()
        self.field = field()
        self.method = method
        self.register_buffer("times", torch.linspace(0.0, 1.0, points))

    def derivative(self, _: Tensor, y: Tensor) -> Tensor:
        """The right-hand side, independent of time."""
        return self.field(y)

    def forward(self, y: Tensor) -> Tensor:
        from torchdiffeq import odeint

        return odeint(self.derivative, y, self.times, method=self.method)


def tokens(length: int, vocabulary: int) -> Callable[[int], dict[str, Tensor]]:
    """Examples as the text models of transformers take them."""
    return lambda n: {
        "input_ids": torch.randint(0, vocabulary, (n, length)),
        "attention_mask": torch.ones(n, length, dtype=torch.int64),
    }


def labelled_tokens(length: int, vocabulary: int, *, mask: bool = True) -> Callable[[int], dict[str, Tensor]]:
    """The same with labels: the model then computes its own loss. Without a mask, models look for packed sequences."""

    def example(n: int) -> dict[str, Tensor]:
        batch = tokens(length, vocabulary)(n)
        batch["labels"] = torch.randint(0, vocabulary, (n, length))
        if not mask:
            del batch["attention_mask"]
        return batch

    return example


def bert(layers: int, width: int, heads: int, vocabulary: int) -> nn.Module:
    """A BERT encoder."""
    return of_transformers(
        "BertModel",
        "BertConfig",
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        vocab_size=vocabulary,
    )


def gpt2(layers: int, width: int, heads: int, vocabulary: int) -> nn.Module:
    """A GPT-2 language model; no cache of keys and values, as in training."""
    return of_transformers(
        "GPT2LMHeadModel",
        "GPT2Config",
        n_layer=layers,
        n_embd=width,
        n_head=heads,
        vocab_size=vocabulary,
        n_positions=256,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )


def vit() -> nn.Module:
    """A vision transformer that classifies images of 96 x 96."""
    return of_transformers(
        "ViTForImageClassification",
        "ViTConfig",
        num_hidden_layers=4,
        hidden_size=192,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=96,
        patch_size=16,
        num_labels=100,
    )


def t5() -> nn.Module:
    """A T5 of two layers."""
    return of_transformers(
        "T5ForConditionalGeneration",
        "T5Config",
        num_layers=2,
        num_decoder_layers=2,
        d_model=128,
        d_kv=32,
        d_ff=512,
        num_heads=4,
        vocab_size=2000,
        use_cache=False,
        decoder_start_token_id=0,
    )


def llama() -> nn.Module:
    """A Llama of four layers with grouped-query attention."""
    return of_transformers(
        "LlamaForCausalLM",
        "LlamaConfig",
        num_hidden_layers=4,
        hidden_size=256,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=688,
        vocab_size=4000,
        max_position_embeddings=256,
        use_cache=False,
    )


class EncoderClassifier(nn.Module):
    """``nn.TransformerEncoder`` over (batch, time, width); its inference takes a fused path of its own."""

    def __init__(self, width: int, layers: int, *, norm_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(dim=1))


RECURRENT = (
    Entry(
        "lstm",
        "recurrent",
        lambda: SequenceModel(nn.LSTM, 8, 64),
        randn(30, 8),
        (1, 32, 256),
        loss=mean_squared,
        suites=QUICK,
    ),
    Entry(
        "gru",
        "recurrent",
        lambda: SequenceModel(nn.GRU, 32, 128),
        randn(20, 32),
        (8, 128),
        optimizer="adamw",
        loss=mean_squared,
    ),
    Entry(
        "rnn_tanh",
        "recurrent",
        lambda: SequenceModel(nn.RNN, 4, 32),
        randn(40, 4),
        (1, 64),
        optimizer="rmsprop",
        loss=mean_squared,
    ),
    Entry(
        "lstm_2_layers_50_steps",
        "recurrent",
        lambda: SequenceModel(nn.LSTM, 16, 128, 2),
        randn(50, 16),
        (1, 32),
        loss=mean_squared,
    ),
    Entry(
        "gru_bidirectional",
        "recurrent",
        lambda: SequenceModel(nn.GRU, 24, 64, bidirectional=True),
        randn(25, 24),
        (4, 64),
        loss=mean_squared,
    ),
    Entry(
        "lstm_text_bidirectional",
        "recurrent",
        TextClassifier,
        lambda n: torch.randint(0, 5000, (n, 40)),
        (2, 32),
        loss=cross_entropy,
    ),
    Entry("lstm_cell_loop", "recurrent", CellLoop, randn(20, 16), (1, 128), loss=mean_squared),
)
EQUATIONS = (
    Entry(
        "neural_ode_rk4_by_hand",
        "ode",
        HandWritten,
        randn(3),
        (1, 64, 1000),
        loss=mean_squared,
        suites=QUICK,
    ),
    Entry(
        "neural_ode_rk4",
        "ode",
        lambda: Solved("rk4"),
        randn(3),
        (1, 256),
        loss=mean_squared,
        needs=("torchdiffeq",),
    ),
    Entry(
        "neural_ode_dopri5",
        "ode",
        lambda: Solved("dopri5"),
        randn(3),
        (1, 256),
        loss=mean_squared,
        needs=("torchdiffeq",),
    ),
)
_HF = ("transformers",)
TRANSFORMERS = (
    Entry(
        "transformer_encoder",
        "transformer",
        lambda: EncoderClassifier(64, 2, norm_first=False),
        randn(32, 64),
        (1, 32),
        loss=cross_entropy,
    ),
    Entry(
        "transformer_encoder_prenorm",
        "transformer",
        lambda: EncoderClassifier(128, 4, norm_first=True),
        randn(64, 128),
        (2, 16),
        optimizer="adamw",
        loss=cross_entropy,
    ),
    Entry(
        "bert_base",
        "transformer",
        lambda: bert(12, 768, 12, 30522),
        tokens(32, 30522),
        (1, 2),
        optimizer="adamw",
        needs=_HF,
    ),
    Entry(
        "bert_small",
        "transformer",
        lambda: bert(4, 256, 4, 8000),
        tokens(64, 8000),
        (1, 8),
        optimizer="adamw",
        needs=_HF,
    ),
    Entry(
        "gpt2_small",
        "transformer",
        lambda: gpt2(12, 768, 12, 50257),
        labelled_tokens(32, 50257),
        (1, 2),
        optimizer="adamw",
        loss=loss_inside,
        needs=_HF,
    ),
    Entry(
        "gpt2_tiny",
        "transformer",
        lambda: gpt2(2, 128, 4, 1000),
        labelled_tokens(64, 1000, mask=False),
        (1, 8, 32),
        optimizer="adamw",
        loss=loss_inside,
        needs=_HF,
        suites=QUICK,
    ),
    Entry(
        "vit_small",
        "transformer",
        vit,
        pixel_values(96),
        (1, 8),
        optimizer="adamw",
        loss=label_loss,
        needs=_HF,
    ),
    Entry("t5_tiny", "transformer", t5, labelled_tokens(32, 2000), (1, 8), loss=loss_inside, needs=_HF),
    Entry(
        "llama_tiny",
        "transformer",
        llama,
        labelled_tokens(64, 4000),
        (1, 4),
        optimizer="adamw",
        loss=loss_inside,
        needs=_HF,
    ),
)
