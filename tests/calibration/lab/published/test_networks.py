"""Networks of published steps: built without weights, and traced with what the source does besides."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from placer.calibration.lab.published import PublishedStep, networks, read_steps, torchvision_ops, trace_step
from placer.calibration.lab.published.networks import build, identity

from .synthetic import published_step

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

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


@pytest.mark.parametrize("package", ["torchvision", "timm", "transformers"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules, package, "torchvision.models"]:
        if name == package or name.startswith(f"{package}."):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(torchvision_ops, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=package):
        build(published_step(package, 2, 3, 64, 64, arguments={"name": "resnet18"}))


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "train"},
        {"dtype": "float16"},
        {"channels_last": True},
        {"inputs": [[4, 3, 64, 64]]},
        {"arguments": {"name": "resnet34"}},
        {"gradients": "added to"},
        {"loss": "sum"},
        {"optimizer": "adam"},
    ],
)
def test_steps_with_other_traces_have_other_identities(change: dict[str, Any]) -> None:
    assert identity(RESNET) == identity(replace(RESNET, gpu="Tesla T4", seconds=0.5, source="timm"))
    assert identity(RESNET) != identity(replace(RESNET, **change))


def test_a_network_whose_constructor_reads_values_is_built_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def reads(step: PublishedStep) -> torch.nn.Module:
        return torch.nn.Linear(int(torch.linspace(1, 4, 2)[1].item()), 3)

    monkeypatch.setattr(networks, "_torchvision", reads)
    assert parameters(RESNET) == 4 * 3 + 3


@needs("torchvision")
class TestTorchvision:
    def test_inference(self) -> None:
        traced = trace_step(RESNET)
        assert traced.outputs == ()
        assert [t.shape for t in traced.batch] == [(4, 3, 224, 224)]
        assert ops(RESNET)["aten::convolution"] == 20

    def test_half_precision(self) -> None:
        workload = build(replace(RESNET, dtype="float16", channels_last=True))
        assert workload.args[0].dtype == torch.float16
        assert workload.args[0].is_contiguous(memory_format=torch.channels_last)
        assert {p.dtype for p in workload.modules[0].parameters()} == {torch.float16}

    def test_no_optimizer_unless_the_source_has_one(self) -> None:
        train = replace(RESNET, mode="train", loss="cross-entropy", gradients="made anew")
        assert trace_step(train).optimizer is None
        updated = trace_step(replace(train, optimizer="sgd nesterov, one tensor at a time"))
        assert updated.optimizer == "SGD"
        assert ("foreach", False) in next(c for c in updated.calls if c.phase == "optimizer").args


@needs("timm")
class TestTimm:
    def test_attention_is_fused_unless_the_step_says_otherwise(self) -> None:
        eager = replace(VIT, arguments={**VIT.arguments, "fused_attention": False})
        assert ops(VIT)["aten::scaled_dot_product_attention"] == 12
        assert not ops(eager)["aten::scaled_dot_product_attention"]

    def test_options(self) -> None:
        wide = {"name": "resnext101_32x32d", "options": {"base_width": 48}}
        assert parameters(replace(VIT, arguments=wide)) == pytest.approx(829e6, rel=0.01)

    def test_an_image_size_of_its_own(self) -> None:
        assert trace_step(replace(VIT, inputs=[[2, 3, 384, 384]])).batch[0].shape[-1] == 384

    @pytest.mark.parametrize(("half_norms", "dtype"), [(None, "float32"), ("convolutional", "float16")])
    def test_norms_in_half_precision(self, half_norms: str | None, dtype: str) -> None:
        step = replace(VIT, arguments={"name": "resnet50_gn", "half_norms": half_norms})
        assert {c.inputs[0].dtype for c in trace_step(step).calls if c.op == "aten::native_group_norm"} == {dtype}

    def test_branches_are_merged(self) -> None:
        mobile = {"name": "mobileone_s0"}
        before, after = (
            ops(replace(VIT, arguments={**mobile, "merged": merged}))["aten::convolution"] for merged in (False, True)
        )
        assert before > 3 * after


@needs("transformers")
class TestTransformers:
    def language(self, network: str, mode: str = "infer") -> PublishedStep:
        """A step of the table."""
        return next(s for s in read_steps() if s.network == f"transformers:{network}" and s.mode == mode)

    @pytest.mark.parametrize(
        ("name", "millions"),
        [
            ("bert-large", 335),
            ("gpt3-2.7b (CausalLM)", 2652),
            ("facebook/opt-1.3b (CausalLM)", 1316),
            ("NousResearch/Llama-2-7b-hf", 6738),
            ("EleutherAI/pythia-410m-deduped", 405),
            ("BAAI/bge-base-en-v1.5", 109),
        ],
    )
    def test_parameters(self, name: str, millions: int) -> None:
        assert parameters(self.language(name)) == pytest.approx(millions * 1e6, rel=0.01)

    def test_a_loss_that_is_not_timed(self) -> None:
        step = self.language("bert-large", "train")
        assert (step.loss, step.gradients) == ("cross-entropy, not timed", "added to")
        traced = trace_step(step)
        assert {c.phase for c in traced.calls} == {"forward", "backward"}

    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_a_language_model_waits_for_nothing(self, attention: str) -> None:
        step = self.language("gpt2-large (CausalLM)")
        traced = trace_step(replace(step, arguments={**step.arguments, "attention": attention}))
        assert traced.syncs == 0
        fused = [call for call in traced.calls if call.op == "aten::scaled_dot_product_attention"]
        assert len(fused) == (36 if attention == "sdpa" else 0)

    def test_one_token_with_a_cache(self) -> None:
        step = self.language("gpt2-large")
        cached = {**step.arguments, "cached_tokens": 64}
        counted = ops(replace(step, inputs=[{"shape": [2, 1], "dtype": "int64"}], batch=2, arguments=cached))
        assert counted["aten::cat"] == 2 * 36
        # A cache made in the step would add two for each layer. Some versions of the library make one, for a mask.
        assert counted["aten::lift_fresh"] <= 1

    def test_images_and_texts(self) -> None:
        clip = self.language("openai/clip-vit-large-patch14 CLIPModel")
        sdpa = replace(clip, arguments={**clip.arguments, "attention": "sdpa"})
        assert ops(sdpa)["aten::scaled_dot_product_attention"] == 12 + 24
