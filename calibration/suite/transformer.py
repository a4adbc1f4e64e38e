"""Transformers: the configurations people start from, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from placer.calibration.suite.cnn import label_loss, pixel_values
from placer.calibration.suite.entry import Entry
from placer.calibration.suite.losses import cross_entropy


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


def own_loss(output: Any) -> Tensor:
    """The loss that a model given labels has computed."""
    loss: Tensor = output.loss
    return loss


def bert(layers: int, width: int, heads: int, vocabulary: int) -> nn.Module:
    """A BERT encoder."""
    from transformers import BertConfig, BertModel

    model: nn.Module = BertModel(
        BertConfig(
            num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width,
            vocab_size=vocabulary,
        )
    )  # fmt: skip
    return model


def gpt2(layers: int, width: int, heads: int, vocabulary: int) -> nn.Module:
    """A GPT-2 language model; no cache of keys and values, as in training."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model: nn.Module = GPT2LMHeadModel(
        GPT2Config(
            n_layer=layers, n_embd=width, n_head=heads, vocab_size=vocabulary, n_positions=256, use_cache=False,
            bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    return model


def vit(layers: int, width: int, heads: int, size: int, patch: int) -> nn.Module:
    """A vision transformer classifier."""
    from transformers import ViTConfig, ViTForImageClassification

    model: nn.Module = ViTForImageClassification(
        ViTConfig(
            num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width,
            image_size=size, patch_size=patch, num_labels=100,
        )
    )  # fmt: skip
    return model


def t5() -> nn.Module:
    """A T5 of two layers."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        num_layers=2, num_decoder_layers=2, d_model=128, d_kv=32, d_ff=512, num_heads=4, vocab_size=2000,
        use_cache=False, decoder_start_token_id=0,
    )  # fmt: skip
    model: nn.Module = T5ForConditionalGeneration(config)
    return model


def llama() -> nn.Module:
    """A Llama of four layers with grouped-query attention."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=4, hidden_size=256, num_attention_heads=8, num_key_value_heads=4, intermediate_size=688,
        vocab_size=4000, max_position_embeddings=256, use_cache=False,
    )  # fmt: skip
    model: nn.Module = LlamaForCausalLM(config)
    return model


class EncoderClassifier(nn.Module):
    """``nn.TransformerEncoder`` over (batch, time, width); its inference takes a fused path of its own."""

    def __init__(self, width: int, layers: int, *, norm_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(x).mean(dim=1))
        return out


_HF = ("transformers",)
ENTRIES = (
    Entry(
        "transformer_encoder", "transformer", lambda: EncoderClassifier(64, 2, norm_first=False),
        lambda n: torch.randn(n, 32, 64), (1, 32), loss=cross_entropy,
    ),
    Entry(
        "transformer_encoder_prenorm", "transformer", lambda: EncoderClassifier(128, 4, norm_first=True),
        lambda n: torch.randn(n, 64, 128), (2, 16), optimizer="adamw", loss=cross_entropy,
    ),
    Entry(
        "bert_base", "transformer", lambda: bert(12, 768, 12, 30522), tokens(32, 30522), (1, 2), optimizer="adamw",
        needs=_HF,
    ),
    Entry(
        "bert_small", "transformer", lambda: bert(4, 256, 4, 8000), tokens(64, 8000), (1, 8), optimizer="adamw",
        needs=_HF,
    ),
    Entry(
        "gpt2_small", "transformer", lambda: gpt2(12, 768, 12, 50257), labelled_tokens(32, 50257), (1, 2),
        optimizer="adamw", loss=own_loss, needs=_HF,
    ),
    Entry(
        "gpt2_tiny", "transformer", lambda: gpt2(2, 128, 4, 1000), labelled_tokens(64, 1000, mask=False), (1, 8, 32),
        optimizer="adamw", loss=own_loss, needs=_HF, suites=frozenset({"quick", "full"}),
    ),
    Entry(
        "vit_small", "transformer", lambda: vit(4, 192, 3, 96, 16), pixel_values(96), (1, 8), optimizer="adamw",
        loss=label_loss, needs=_HF,
    ),
    Entry("t5_tiny", "transformer", t5, labelled_tokens(32, 2000), (1, 8), loss=own_loss, needs=_HF),
    Entry(
        "llama_tiny", "transformer", llama, labelled_tokens(64, 4000), (1, 4), optimizer="adamw", loss=own_loss,
        needs=_HF,
    ),
)  # fmt: skip
