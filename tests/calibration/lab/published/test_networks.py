"""Networks of published steps: built without weights, and traced with what the source does besides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from placer.calibration.lab.published import PublishedStep, read_steps, trace_step
from placer.calibration.lab.published.networks import build

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def published_step(builder: str, *shape: int, **changes: Any) -> PublishedStep:
    """One inference of a network for images or numbers of this shape."""
    known: dict[str, Any] = {
        "source": "ryujaehun:lamikr", "gpu": "Tesla V100-SXM2-16GB", "network": f"{builder}:made up",
        "family": "vision-conv", "builder": builder, "arguments": {}, "inputs": [list(shape)], "batch": shape[0],
        "dtype": "float32", "conv_tf32": False, "channels_last": False, "mode": "infer", "optimizer": "", "loss": "",
        "gradients": "", "data": "host", "torch": "", "seconds": 0.01, "compiled_seconds": None, "use": "fit",
    }  # fmt: skip
    return PublishedStep(**{**known, **changes})


RESNET = published_step("torchvision", 4, 3, 224, 224, arguments={"name": "resnet18"})
VIT = published_step("timm", 2, 3, 224, 224, arguments={"name": "vit_tiny_patch16_224"}, dtype="amp-float16")


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def ops(step: PublishedStep) -> Counter[str]:
    return Counter(call.op for call in trace_step(step).calls)


def parameters(step: PublishedStep) -> int:
    model = build(step).modules[0]
    assert all(p.is_meta for p in model.parameters())
    return sum(p.numel() for p in model.parameters())


@needs("torchvision")
def test_torchvision_is_traced_as_published() -> None:
    traced = trace_step(replace(RESNET, dtype="float16", channels_last=True))
    assert traced.outputs == ()
    assert [(t.shape, t.dtype) for t in traced.batch] == [((4, 3, 224, 224), "float16")]
    train = replace(RESNET, mode="train", loss="cross-entropy", gradients="made anew")
    assert trace_step(train).optimizer is None
    updated = trace_step(replace(train, optimizer="sgd nesterov, one tensor at a time"))
    assert ("foreach", False) in next(c for c in updated.calls if c.phase == "optimizer").args


@needs("timm")
def test_timm_is_traced_as_published() -> None:
    eager = replace(VIT, arguments={**VIT.arguments, "fused_attention": False})
    assert ops(VIT)["aten::scaled_dot_product_attention"] == 12
    assert not ops(eager)["aten::scaled_dot_product_attention"]
    assert trace_step(replace(VIT, inputs=[[2, 3, 384, 384]])).batch[0].shape[-1] == 384
    for half_norms, dtype in ((None, "float32"), ("convolutional", "float16")):
        step = replace(VIT, arguments={"name": "resnet50_gn", "half_norms": half_norms})
        assert {c.inputs[0].dtype for c in trace_step(step).calls if c.op == "aten::native_group_norm"} == {dtype}
    merged = replace(VIT, arguments={"name": "mobileone_s0", "merged": True})
    assert (
        ops(replace(merged, arguments={"name": "mobileone_s0"}))["aten::convolution"]
        > 3 * (ops(merged)["aten::convolution"])
    )


def language(network: str, mode: str = "infer") -> PublishedStep:
    """A step of the table."""
    return next(s for s in read_steps() if s.network == f"transformers:{network}" and s.mode == mode)


@needs("transformers")
@pytest.mark.parametrize(
    ("name", "millions"), [("bert-large", 335), ("NousResearch/Llama-2-7b-hf", 6738), ("BAAI/bge-base-en-v1.5", 109)]
)
def test_language_models_have_the_published_numbers_of_parameters(name: str, millions: int) -> None:
    assert parameters(language(name)) == pytest.approx(millions * 1e6, rel=0.01)


@needs("transformers")
def test_a_language_model_is_traced_as_published() -> None:
    bert = language("bert-large", "train")
    assert (bert.loss, bert.gradients) == ("cross-entropy, not timed", "added to")
    assert {call.phase for call in trace_step(bert).calls} == {"forward", "backward"}
    gpt = language("gpt2-large (CausalLM)")
    for attention, fused in (("eager", 0), ("sdpa", 36)):
        traced = trace_step(replace(gpt, arguments={**gpt.arguments, "attention": attention}))
        assert traced.syncs == 0  # it waits for nothing
        assert sum(call.op == "aten::scaled_dot_product_attention" for call in traced.calls) == fused
    decoding = language("gpt2-large")
    cached = {**decoding.arguments, "cached_tokens": 64}
    token = [{"shape": [2, 1], "dtype": "int64"}]
    assert ops(replace(decoding, inputs=token, batch=2, arguments=cached))["aten::cat"] == 2 * 36
