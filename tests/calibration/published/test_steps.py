"""Published steps: what a row says, which rows are left out, and the shared collection as a whole."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from placer.calibration.published.step_rows import (
    DTYPES,
    OPTIMIZERS,
    attention_of,
    caveats_of,
    conv_tf32,
    dtype_of,
    family_of,
    input_of,
    left_out,
    network_of,
    tokens_of,
    torch_is_2,
)
from placer.calibration.published.step_sources import SOURCES
from placer.calibration.published.steps import LeftOut, PublishedStep, read_steps

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "gpu-data"
shared = pytest.mark.skipif(not (FOLDER / "steps.csv.gz").is_file(), reason="no published measurements in ../shared")

ROW = {
    "source": "ryujaehun:lamikr", "gpu": "GeForce RTX 3090", "gpu_count": "1", "host_cpu": "unknown",
    "torch_version": "unknown", "cuda": "11.1", "network": "torchvision:resnet50", "batch": "12.0",
    "input": "12x3x224x224", "dtype": "fp32", "memory_format": "nchw", "mode": "train",
    "optimizer": "none (fwd+loss+bwd, zero_grad inside)", "compiled": "no", "step_ms": "34.5", "gpu_active_ms": "",
    "notes": "median of 50; min 33.1; mean 36.0; env -; H2D copy inside", "gpu_norm": "RTX 3090",
}  # fmt: skip


@cache
def everything() -> tuple[list[PublishedStep], list[LeftOut]]:
    return read_steps(FOLDER)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"gpu_norm": "CPU"}, "runs on a CPU"),
        ({"gpu_count": "2"}, "several GPUs"),
        ({"compiled": "yes"}, "not eager: yes"),
        ({"compiled": "TorchScript"}, "not eager: TorchScript"),
        ({"torch_version": "Lua Torch7 (NOT PyTorch)"}, "Lua Torch, not PyTorch"),
        ({"notes": "UNSTABLE median/min=2.0"}, "unstable: the median is more than 1.5 times the fastest step"),
        ({"dtype": "fp16 weights + gptq"}, "quantised weights"),
        ({"notes": "from published throughput, data pipeline inside"}, "data loading inside"),
        ({"network": "GNMT v2 4-layer LSTM 1024 (NVIDIA DLE)"}, "sentences of different lengths"),
        ({"dtype": "int8"}, "dtype not known: int8"),
        ({"optimizer": "lion"}, "optimizer not known: lion"),
        ({"batch": ""}, "batch not said"),
    ],
)
def test_the_reason_to_leave_a_row_out(changes: dict[str, str], reason: str | None) -> None:
    assert left_out({**ROW, **changes}) == reason


def test_a_quota_that_throttles_the_host_shows_in_the_spread_of_a_step() -> None:
    notes = "median of 50; min 14.117; mean 115.758; env openbayes; batch 12"
    row = {**ROW, "gpu_norm": "RTX 2080", "step_ms": "101.022", "notes": notes}
    assert left_out(row) == "the container's CPU quota throttles the host"
    assert left_out({**row, "step_ms": "14.3", "notes": notes.replace("115.758", "14.4")}) is None


@pytest.mark.parametrize(
    ("text", "dimensions"),
    [
        ("12x3x224x224", (12, 3, 224, 224)),
        ("16x512 tokens", (16, 512)),
        ("1000x25x123 (time,batch,features)", (1000, 25, 123)),
        ("8x1 token, prompt 256, 512 new tokens", (8, 512)),
        ("2x1 token, prompt 768", (2, 768)),
        ("8x80x3000 mel", (8, 80, 3000)),
        ("4x3x224x224 + 16x77 tokens", (4, 3, 224, 224)),
        ("variable", ()),
    ],
)
def test_dimensions_of_the_input(text: str, dimensions: tuple[int, ...]) -> None:
    assert input_of({**ROW, "input": text}) == dimensions


def test_texts_beside_images() -> None:
    assert tokens_of({**ROW, "input": "4x3x224x224 + 16x77 tokens"}) == (16, 77)
    assert tokens_of(ROW) == ()


@pytest.mark.parametrize(
    ("name", "network", "attention"),
    [
        ("transformers:gpt2-large decode step (attn=eager)", "transformers:gpt2-large", "eager"),
        ("transformers:bert-base-uncased (attn=sdpa)", "transformers:bert-base-uncased", "sdpa"),
        ("transformers:X CLIPModel (attn=flash_attention_2)", "transformers:X CLIPModel", "flash"),
        ("transformers:a/b (text-generation, prefill/forward)", "transformers:a/b", "eager"),
        ("transformers:distilbert-base-uncased (MaskedLM) (attn=eager)",
         "transformers:distilbert-base-uncased (MaskedLM)", "eager"),
        ("torchvision:resnet50", "torchvision:resnet50", ""),
    ],
)  # fmt: skip
def test_name_of_the_network_and_its_attention(name: str, network: str, attention: str) -> None:
    row = {**ROW, "network": name}
    assert (network_of(row), attention_of(row)) == (network, attention)


@pytest.mark.parametrize(
    ("version", "cuda", "two"),
    [
        ("1.12", "11.3", False), ("2.4.0", "12.4", True), ("unknown", "10.2", False), ("unknown", "12.1", True),
        ("2.4.1-rc1", "rocm 6.1.40093", True), ("unknown", "rocm 6.1.40093", True), ("NGC 20.10", "unknown", False),
        ("NGC 23.05", "unknown", True),
    ],
)  # fmt: skip
def test_torch_two_brought_fused_attention_and_deleted_gradients(version: str, cuda: str, two: bool) -> None:
    row = {**ROW, "torch_version": version, "cuda": cuda}
    assert torch_is_2(row) is two
    assert attention_of({**row, "network": "timm:vit_base_patch16_224"}) == ("sdpa" if two else "eager")


def test_half_precision_of_nvidias_bert_is_kept_in_weights() -> None:
    """apex's level O2 converts the model; autocast, which others use, converts op by op."""
    assert dtype_of(ROW | {"dtype": "amp_fp16"}) == "amp-float16"
    assert dtype_of(ROW | {"dtype": "amp_fp16", "network": "bert-base SQuAD fine-tune (NVIDIA DLE)"}) == "float16"


def test_float32_convolutions_run_in_tf32_on_ampere() -> None:
    assert conv_tf32(ROW)
    assert not conv_tf32({**ROW, "gpu_norm": "V100 SXM 16GB"})
    assert not conv_tf32({**ROW, "dtype": "fp16"})
    assert conv_tf32({**ROW, "gpu_norm": "V100", "dtype": "tf32"})


@pytest.mark.parametrize(
    ("network", "family"),
    [
        ("timm:resnet50", "vision-conv"), ("timm:swin_tiny_patch4_window7_224", "vision-transformer"),
        ("timm:convmixer_768_32", "vision-conv"), ("transformers:google/vit-base-patch16-224", "vision-transformer"),
        ("transformers:gpt2-large", "language"), ("3-layer LSTM LM, nn.LSTM (cuDNN)", "recurrent"),
        ("NeuMF (NVIDIA DLE)", "recommender"), ("WaveGlow (NVIDIA DLE)", "speech"), ("tiny MLP", "other"),
    ],
)  # fmt: skip
def test_family_of_a_network(network: str, family: str) -> None:
    assert family_of(network) == family


def test_caveats_say_what_is_assumed() -> None:
    assert caveats_of(ROW) == ()
    assert "optimizer not said; plain SGD assumed" in caveats_of({**ROW, "optimizer": "unknown"})
    assert "rounded to 1 ms" in caveats_of({**ROW, "notes": "rounded to 1 ms"})


def test_a_folder_without_the_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"steps\.csv\.gz"):
        read_steps(tmp_path)


def test_steps_of_one_file(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "step_ms": "35.5"}, {**ROW, "mode": "infer", "optimizer": "none"}, {**ROW, "gpu_count": "4"}]
    with gzip.open(tmp_path / "steps.csv.gz", "wt", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "e2e_neusight.csv").write_text(
        "gpu,model,mode,seq,batch,variant,num_layer,e2e_latency,fw_latency,bwall_latency\n"
        "Tesla T4,bert_large,train,512,2,,24,300.0,100.0,200.0\n"
        "Tesla T4,bert_large,inf,512,2,fusion,24,90.0,90.0,0.0\n",
        encoding="utf-8",
    )
    steps, out = read_steps(tmp_path)
    assert [o.reason for o in out] == ["several GPUs", "not eager: yes"]
    first, second, infer, bert = steps
    assert (first.seconds, first.weight, second.weight, infer.weight) == (pytest.approx(0.0345), 0.5, 0.5, 1.0)
    assert (first.copies, first.zero_grad, first.keeps_gradients, first.optimizer) == ("host", True, True, None)
    assert (infer.zero_grad, infer.keeps_gradients) == (False, False)
    assert first.torch_version is None
    assert first.host_cpu is None
    assert (bert.gpu, bert.network, bert.input) == ("T4", "transformers:bert-large", (2, 512))
    assert (bert.seconds, bert.forward_seconds, bert.backward_seconds) == pytest.approx((0.3, 0.1, 0.2))
    assert bert.keeps_gradients
    assert not bert.zero_grad


@shared
def test_every_row_of_the_collection_is_a_step_or_has_a_reason() -> None:
    steps, out = everything()
    assert len(steps) > 20_000
    assert all(o.reason for o in out)
    assert not [o for o in out if "not known" in o.reason]
    assert {s.source for s in steps} <= set(SOURCES)
    assert all(s.seconds > 0 and s.batch > 0 and 0 < s.weight <= 1 for s in steps)


@shared
def test_steps_of_the_collection_are_of_the_accepted_kinds() -> None:
    steps, _ = everything()
    assert {s.dtype for s in steps} <= set(DTYPES.values())
    assert {s.optimizer for s in steps} <= set(OPTIMIZERS.values())
    assert {s.mode for s in steps} == {"train", "infer"}
    assert not [s for s in steps if s.mode == "infer" and (s.optimizer or s.zero_grad or s.keeps_gradients)]
    images = [s for s in steps if s.network.startswith(("timm:", "torchvision:"))]
    assert all(len(s.input) == 4 and s.input[0] == s.batch for s in images)


@shared
def test_forward_and_backward_of_a_step_add_up() -> None:
    timed = [s for s in everything()[0] if s.mode == "train" and s.forward_seconds is not None]
    assert timed
    for step in timed:
        assert step.backward_seconds is not None
        assert step.forward_seconds + step.backward_seconds == pytest.approx(step.seconds, rel=1e-3)  # type: ignore[operator]


@shared
def test_repeated_measurements_share_one_weight() -> None:
    steps, _ = everything()
    total: Counter[tuple[object, ...]] = Counter()
    for s in steps:
        total[s.gpu, s.network, s.part, s.batch, s.input, s.tokens, s.dtype, s.mode] += s.weight  # type: ignore[assignment]
    assert all(weight == pytest.approx(1.0) for weight in total.values())
