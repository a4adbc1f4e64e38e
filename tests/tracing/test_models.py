"""Real architectures trace, layer by layer, in both modes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from placer.tracing import Trace, trace
from placer.workload import make_workload

transformers = pytest.importorskip("transformers")

TEXT = {"input_ids": torch.randint(0, 99, (2, 12)), "attention_mask": torch.ones(2, 12, dtype=torch.long)}
PADDED = {**TEXT, "attention_mask": (torch.arange(12)[None] < torch.tensor([[12], [7]])).long()}
IMAGES = {"pixel_values": torch.randn(2, 3, 32, 32)}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def build(name: str) -> tuple[nn.Module, dict[str, Any]]:
    t = transformers
    text = {"vocab_size": 99, "max_position_embeddings": 32, **SMALL}
    if name == "bert":
        return t.BertForSequenceClassification(t.BertConfig(**text)), {**PADDED, "labels": torch.tensor([0, 1])}
    if name == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(**text, num_key_value_heads=2)), PADDED
    if name == "t5":
        config = t.T5Config(
            vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
        )
        return t.T5ForConditionalGeneration(config), {**TEXT, "labels": TEXT["input_ids"]}
    config = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=5)
    return t.ResNetForImageClassification(config), IMAGES


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("name", ["bert", "llama", "t5", "resnet"])
def test_architectures(name: str, mode: str) -> None:
    torch.manual_seed(0)
    model, example = build(name)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    traced = trace(make_workload(model, batch=example, mode=mode))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    check(traced, model, mode)


def check(traced: Trace, model: nn.Module, mode: str) -> None:
    names = {name for name, _ in model.named_modules()}
    assert {c.layer for c in traced.calls} <= names
    assert traced.parameter_bytes == sum(p.numel() * 4 for p in model.parameters())
    assert {c.layer for c in traced.calls if "mm" in c.op or "convolution" in c.op} - {""}
    if mode == "train":
        trained = [c for c in traced.calls if c.phase == "optimizer"]
        assert len(trained) >= 0.9 * len(traced.parameters)
        backward = {c.layer for c in traced.calls if c.phase == "backward"}
        assert len(backward & names) > 5
        assert traced.autograd_nodes > 20
