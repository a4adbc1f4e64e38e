"""Networks of published steps: built without weights, and traced with what the source does besides."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from placer.calibration.published.networks import NotBuilt, build, identity, timm_models, torchvision_models, trace_step
from placer.calibration.published.steps import PublishedStep

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def step(network: str, shape: tuple[int, ...], **changes: Any) -> PublishedStep:
    known: dict[str, Any] = {
        "source": "ryujaehun:lamikr", "gpu": "V100", "host_cpu": None, "torch_version": None, "family": "vision-conv",
        "tokens": (), "dtype": "float32", "conv_tf32": False, "channels_last": False, "mode": "infer",
        "part": "forward", "attention": "", "optimizer": None, "foreach": True, "copies": "host", "zero_grad": False,
        "keeps_gradients": False, "benchmark": True, "synchronised": True, "seconds": 0.01, "batch": shape[0],
    }  # fmt: skip
    return PublishedStep(network=network, input=shape, **{**known, **changes})


def counted(traced: Any) -> Counter[str]:
    return Counter(call.op for call in traced.calls)


def test_a_network_nobody_described_cannot_be_built() -> None:
    with pytest.raises(NotBuilt, match="its layers are not said"):
        build(step("tiny MLP", (4, 8)))
    with pytest.raises(NotBuilt, match="audio segments"):
        build(step("WaveGlow (NVIDIA DLE)", (4, 8)))


@pytest.mark.parametrize(("package", "network"), [
    ("torchvision", "torchvision:resnet18"), ("timm", "timm:resnet18"), ("transformers", "transformers:bert-large"),
])  # fmt: skip
def test_a_missing_package_is_named(package: str, network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules, package, "torchvision.models"]:
        if name == package or name.startswith(f"{package}."):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(torchvision_models, "find_spec", lambda name: None)
    with pytest.raises(NotBuilt, match=rf"{package} is not installed .*pip install .*{package}"):
        build(step(network, (2, 3, 64, 64)))


@pytest.mark.parametrize("change", [
    {"mode": "train"}, {"dtype": "float16"}, {"channels_last": True}, {"batch": 24}, {"input": (4, 3, 64, 64)},
])  # fmt: skip
def test_steps_with_other_traces_have_other_identities(change: dict[str, Any]) -> None:
    one = step("torchvision:resnet18", (4, 3, 224, 224))
    assert identity(one) == identity(replace(one, gpu="T4", seconds=0.5, source="ryujaehun:aisensiy"))
    assert identity(one) != identity(replace(one, **change))


@pytest.mark.parametrize(("name", "op"), [
    ("3-layer LSTM LM, nn.LSTM (cuDNN)", "aten::lstm"),
    ("3-layer LSTM LM, nn.LSTMCell in Python loops", "aten::lstm_cell"),
    ("3-layer LSTM LM, cell written in fine-grained ops, Python loops", "aten::mm"),
])  # fmt: skip
def test_recurrent_language_models(name: str, op: str) -> None:
    traced = trace_step(step(name, (8, 5), family="recurrent", source="lcy-seso/Carrot", mode="train",
                             optimizer="adam"))  # fmt: skip
    assert counted(traced)[op]
    assert traced.optimizer == "Adam"
    assert sum(p.numel for p in traced.parameters) > 10_001 * (128 + 256)


def test_recurrent_classifiers() -> None:
    shape = (20, 4, 123)
    source = "stefbraun/rnn_benchmarks"
    known = {"family": "recurrent", "source": source, "mode": "train", "optimizer": "adam", "batch": 4}
    traced = trace_step(step("1x320 LSTM + dense 10 (nn.LSTM cuDNN), 572800 parameters", shape, **known))
    assert sum(p.numel for p in traced.parameters) == 4 * 320 * (123 + 320 + 2) + 321 * 10
    gru = trace_step(step("1x320 unidirectional GRU + dense 25 (cuDNN)", shape, **known))
    assert counted(gru)["aten::gru"] == 1


def test_collaborative_filtering() -> None:
    known = {"family": "recommender", "source": "lambdal", "mode": "train", "optimizer": "adam", "batch": 64}
    traced = trace_step(step("NeuMF (NVIDIA DLE)", (64,), **known))
    assert counted(traced)["aten::embedding"] == 4
    assert sum(p.numel for p in traced.parameters) > 30e6


@needs("torchvision")
class TestTorchvision:
    def test_inference_copies_nothing_back(self) -> None:
        traced = trace_step(step("torchvision:resnet18", (4, 3, 224, 224)))
        assert traced.outputs == ()
        assert [t.shape for t in traced.batch] == [(4, 3, 224, 224)]
        assert counted(traced)["aten::convolution"] == 20

    def test_half_precision(self) -> None:
        workload = build(step("torchvision:resnet18", (4, 3, 224, 224), dtype="float16", channels_last=True))
        assert workload.args[0].dtype == torch.float16
        assert workload.args[0].is_contiguous(memory_format=torch.channels_last)
        assert {p.dtype for p in workload.modules[0].parameters()} == {torch.float16}

    def test_gradients_kept_from_step_to_step(self) -> None:
        kept = step("torchvision:resnet18", (4, 3, 224, 224), mode="train", keeps_gradients=True, zero_grad=True)
        plain, whole = (counted(trace_step(s)) for s in (replace(kept, keeps_gradients=False, zero_grad=False), kept))
        assert whole["aten::zero_"] == 62
        assert whole["aten::add_"] - plain["aten::add_"] == 62

    def test_no_optimizer_unless_the_source_has_one(self) -> None:
        train = step("torchvision:resnet18", (4, 3, 224, 224), mode="train")
        assert trace_step(train).optimizer is None
        updated = trace_step(replace(train, optimizer="sgd momentum", foreach=False))
        assert updated.optimizer == "SGD"
        assert ("foreach", False) in next(c for c in updated.calls if c.phase == "optimizer").args

    def test_a_gradient_of_the_input(self) -> None:
        train = step("torchvision:vgg16", (2, 3, 224, 224), mode="train")
        masks = [
            next(c.args for c in reversed(trace_step(s).calls) if c.op == "aten::convolution_backward")
            for s in (train, replace(train, source="u39kun"))
        ]
        assert masks[0] != masks[1]

    def test_a_name_nobody_knows(self) -> None:
        with pytest.raises(NotBuilt, match="no network 'resnet51'"):
            build(step("torchvision:resnet51", (4, 3, 224, 224)))


@needs("timm")
class TestTimm:
    VIT = step("timm:vit_tiny_patch16_224", (2, 3, 224, 224), source="timm", dtype="amp-float16", attention="sdpa")

    def test_attention_is_fused_since_torch_2(self) -> None:
        assert counted(trace_step(self.VIT))["aten::scaled_dot_product_attention"] == 12
        assert not counted(trace_step(replace(self.VIT, attention="eager")))["aten::scaled_dot_product_attention"]

    def test_a_name_of_the_time(self) -> None:
        old = step("timm:swsl_resnet18", (2, 3, 224, 224), source="timm")
        assert counted(trace_step(old))["aten::convolution"] == 20
        wide = build(step("timm:ig_resnext101_32x48d", (2, 3, 224, 224), source="timm"))
        assert sum(p.numel() for p in wide.modules[0].parameters()) == pytest.approx(829e6, rel=0.01)

    def test_a_name_nobody_knows(self) -> None:
        with pytest.raises(NotBuilt, match="another library"):
            build(step("timm:cspdarknet53_iabn", (2, 3, 256, 256), source="timm"))

    def test_an_image_size_of_its_own(self) -> None:
        assert build(replace(self.VIT, input=(2, 3, 384, 384))).args[0].shape[-1] == 384
        trace_step(replace(self.VIT, input=(2, 3, 384, 384)))

    def test_norms_run_in_half_precision_where_the_file_says_so_by_its_times(self) -> None:
        group = step("timm:resnet50_gn", (2, 3, 224, 224), source="timm", dtype="amp-float16", attention="eager")
        dtypes = {
            version: {c.inputs[0].dtype for c in trace_step(replace(group, torch_version=version)).calls
                      if c.op == "aten::native_group_norm"}
            for version in ("1.12", "1.13")
        }  # fmt: skip
        assert dtypes == {"1.12": {"float32"}, "1.13": {"float16"}}

    def test_branches_are_merged_in_the_last_file(self) -> None:
        mobile = step("timm:mobileone_s0", (2, 3, 224, 224), source="timm", dtype="amp-float16", attention="sdpa")
        before, after = (
            counted(trace_step(replace(mobile, torch_version=v)))["aten::convolution"] for v in ("2.4.0", "2.9.1")
        )
        assert before > 3 * after

    def test_settings_of_training_are_plain(self) -> None:
        training = replace(self.VIT, mode="train", torch_version="2.9.1")
        assert timm_models.settings(training) == timm_models.Settings(fused_attention=True)


@needs("transformers")
class TestTransformers:
    def language(self, name: str, **changes: Any) -> PublishedStep:
        known = {"source": "neusight", "family": "language", "attention": "eager"}
        return step(f"transformers:{name}", (2, 64), **{**known, **changes})

    @pytest.mark.parametrize(("name", "millions"), [
        ("bert-large", 335), ("gpt2-large", 774), ("gpt3-2.7b (CausalLM)", 2652),
        ("facebook/opt-1.3b (CausalLM)", 1316), ("meta-llama/Llama-2-7b-hf", 6738),
        ("EleutherAI/pythia-410m-deduped", 405), ("BAAI/bge-base-en-v1.5", 109),
    ])  # fmt: skip
    def test_parameters(self, name: str, millions: int) -> None:
        model = build(self.language(name)).modules[0]
        assert sum(p.numel() for p in model.parameters()) == pytest.approx(millions * 1e6, rel=0.01)
        assert all(p.is_meta for p in model.parameters())

    def test_the_loss_of_neusight_is_not_timed(self) -> None:
        traced = trace_step(self.language("bert-large", mode="train", keeps_gradients=True))
        assert {c.phase for c in traced.calls} == {"forward", "backward"}

    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_a_language_model_waits_for_nothing(self, attention: str) -> None:
        traced = trace_step(self.language("gpt2-large", attention=attention))
        assert traced.syncs == 0
        assert counted(traced)["aten::scaled_dot_product_attention"] == (36 if attention == "sdpa" else 0)

    def test_one_token_with_a_cache(self) -> None:
        traced = trace_step(self.language("gpt2-large", part="decode", source="transformers-docs"))
        assert counted(traced)["aten::cat"] == 2 * 36
        # A cache made in the step would add two for each layer. Some versions of the library make one, for a mask.
        assert counted(traced)["aten::lift_fresh"] <= 1

    def test_images_and_texts(self) -> None:
        clip = step("transformers:openai/clip-vit-large-patch14 CLIPModel", (2, 3, 224, 224), tokens=(4, 77),
                    source="transformers-docs", dtype="float16", attention="sdpa")  # fmt: skip
        assert counted(trace_step(clip))["aten::scaled_dot_product_attention"] == 12 + 24

    def test_a_network_of_unknown_sizes(self) -> None:
        with pytest.raises(NotBuilt, match="sizes of transformers:somebody/else"):
            build(self.language("somebody/else"))
        with pytest.raises(NotBuilt, match="dispatch"):
            build(self.language("switch-xl-4-experts (Seq2SeqLM, custom dispatch)"))
