"""What a command line says of a step: targets with arguments, models of transformers, losses, autocast."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from torch import nn

Run = Callable[..., Result]
EPYC = ("--profile", "amd-epyc-2-core")
needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")

SOURCE = """
from torch import nn
from placer import Job, Part
def build(width=8, classes=3): return nn.Sequential(nn.Linear(84, width), nn.ReLU(), nn.Linear(width, classes))
evaluating = build().eval()
class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = build()
    def forward(self, x): return self.body(x), x
class Reading(Pair):
    def forward(self, x):
        out = self.body(x)
        return out * 2 if out.mean().item() > 1e9 else out
def first(outputs, target): return (outputs[0] - target).square().mean()
def alone(output): return output.sum()
def job(count): return Job([Part("step", build(), (4, 84), mode="infer", count=count)])
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "asked_for_test.py"
    path.write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return str(path)


def explained(run: Run, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("explain", *arguments, *EPYC, "--format", "json").stdout)
    return found


def ops(found: dict[str, Any]) -> set[str]:
    return {row["op"] for row in found["ops"]}


def test_a_factory_gets_its_arguments(run: Run, source: str) -> None:
    sizes = [explained(run, f"{source}:build(width={n})", "--batch", "4,84")["workload"]["parameters"] for n in (8, 16)]
    assert sizes == [84 * 8 + 8 + 8 * 3 + 3, 84 * 16 + 16 + 16 * 3 + 3]
    assert explained(run, f"{source}:job(count=3)")["workload"]["parts"] == {"step": 3}


@pytest.mark.parametrize(
    ("loss", "target", "expected", "op"),
    [
        ("cross_entropy", None, ["16 int64"], "aten::nll_loss_forward"),
        ("CrossEntropyLoss", "16", ["16 int64"], "aten::nll_loss_forward"),
        ("CrossEntropyLoss", "16,3:float32", ["16×3 float32"], "aten::_log_softmax"),
        ("mse", None, ["16×3 float32"], "aten::mse_loss"),
        ("l1_loss", "16,3:float64", ["16×3 float64"], "aten::abs"),
    ],
)
def test_a_loss_and_what_it_compares_with(
    run: Run, source: str, loss: str, target: str | None, expected: list[str], op: str
) -> None:
    given = () if target is None else ("--loss-target", target)
    found = explained(run, f"{source}:build", "--batch", "16,84", "--loss", loss, *given)
    assert found["workload"]["loss_target"] == expected
    assert op in ops(found)
    assumed = [note for note in found["notes"] if "(assumed; --loss-target sets it)" in note]
    assert len(assumed) == (target is None)


def test_a_target_that_does_not_fit_the_loss_is_one_line(run: Run, source: str) -> None:
    arguments = (f"{source}:build", "--batch", "16,84", "--loss", "CrossEntropyLoss", "--loss-target", "16,3")
    assert "the loss failed" in run("explain", *arguments, *EPYC, code=1).stderr


def test_the_target_of_a_loss_grows_with_the_batch(run: Run, source: str) -> None:
    arguments = (f"{source}:build", "--batch", "16,84", "--loss", "cross_entropy", "--sweep", "batch=8:32")
    found = explained(run, *arguments)
    assert [row["batch"] for row in found["rows"]] == [8, 16, 32]
    assert found["failed"] == {}


@pytest.mark.parametrize(("name", "dtype"), [("bf16", "bfloat16"), ("float16", "float16")])
def test_autocast(run: Run, source: str, name: str, dtype: str) -> None:
    found = explained(run, f"{source}:build", "--batch", "16,84", "--autocast", name, "--loss", "mse")
    assert (found["workload"]["autocast"], found["workload"]["loss_target"]) == (dtype, ["16×3 float32"])
    assert "aten::_to_copy" in ops(found)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("build", "--batch", "4,84", "--mode", "infer", "--loss", "mse"), "--loss is for training"),
        (("evaluating", "--batch", "4,84", "--loss", "mse"), "the model is in eval mode: give --mode train"),
        (("build", "--batch", "4,84", "--loss-target", "4"), "--loss-target is what a loss compares the output with"),
        (("build", "--batch", "4,84", "--loss", "msee"), "unknown loss 'msee'; the closest names are mse"),
        (("build", "--batch", "4,84", "--loss", "mse", "--loss-target", "four"), "--loss-target 'four' is not a shape"),
        (
            ("build", "--batch", "4,84", "--loss", "mse", "--loss-target", "4:int"),
            "--loss-target '4:int': unknown dtype",
        ),
        (("build", "--batch", "4,84", "--autocast", "float32"), "'float32' is not one of"),
        (("build",), "--batch is missing: give the shape of the model's input, like --batch 32,84"),
        (("build", "--batch", "4,84", "--loss", "asked_for_test:alone", "--loss-target", "4"), "loss takes no target"),
        (("job(2)", "--loss", "mse"), "--loss is for a single step"),
        (("job(2)", "--autocast", "bf16"), "--autocast is for a single step"),
    ],
)
def test_wrong_usage(run: Run, source: str, arguments: tuple[str, ...], says: str) -> None:
    target, *options = arguments
    assert says in " ".join(run("explain", f"{source}:{target}", *options, code=2).stderr.split())


def test_a_fleet_takes_them_beside_its_own_target(run: Run, source: str) -> None:
    of_a_step = ("--batch", "16,84", "--loss", "cross_entropy", "--loss-target", "16", "--autocast", "bf16")
    run("fleet", f"{source}:build(classes=5)", *of_a_step, "--target", "50ms", *EPYC, "--gpu", "T4")


@needs_transformers
def test_a_model_of_transformers_without_network_or_cache(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    found = explained(run, "hf:bert-base-uncased", "--batch", "2,16")
    assert found["workload"]["target"] == "BertForMaskedLM"
    assert found["workload"]["inputs"] == ["2×16 int64"] * 3
    assert found["workload"]["mode"] == "train"
    assert "aten::nll_loss_forward" in ops(found)
    assert any("from the defaults of transformers" in note for note in found["notes"])
    assert "BertForMaskedLM is given input_ids, attention_mask, labels" in found["notes"]
    inferred = explained(run, "hf:bert-base-uncased", "--mode", "infer", "--autocast", "bf16")["workload"]
    assert (inferred["inputs"], inferred["inputs_assumed"]) == (["8×128 int64"] * 2, True)


def test_an_exported_program_trains_with_a_loss(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(nn.Linear(84, 5), (torch.randn(8, 84),)), path)
    found = explained(run, str(path), "--mode", "train", "--loss", "cross_entropy")
    assert found["workload"]["loss_target"] == ["8 int64"]
    error = run("explain", str(path), "--batch", "16,84", *EPYC, code=1).stderr
    assert "the program was exported for that size" in error
