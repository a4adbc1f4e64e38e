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


@pytest.mark.parametrize(("loss", "target", "expected", "op"), [
    ("cross_entropy", None, ["16 int64"], "aten::nll_loss_forward"),
    ("CrossEntropyLoss", "16", ["16 int64"], "aten::nll_loss_forward"),
    ("CrossEntropyLoss", "16,3:float32", ["16×3 float32"], "aten::_log_softmax"),
    ("mse", None, ["16×3 float32"], "aten::mse_loss"),
    ("l1_loss", "16,3:float64", ["16×3 float64"], "aten::abs"),
])  # fmt: skip
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


def test_a_step_that_reads_values_runs_with_a_loss_of_classes(run: Run, source: str) -> None:
    found = explained(run, f"{source}:Reading", "--batch", "16,84", "--loss", "cross_entropy")
    assert any(note.startswith("traced a real run") for note in found["notes"])
    assert "aten::nll_loss_forward" in ops(found)


def test_a_loss_of_the_users_takes_what_the_model_returns(run: Run, source: str) -> None:
    arguments = ("explain", f"{source}:Pair", "--batch", "16,84", *EPYC)
    assert "the model returns 2 tensors" in run(*arguments, "--loss", "mse_loss", code=2).stderr
    run(*arguments, "--loss", f"{source}:first", "--loss-target", "16,3")


@pytest.mark.parametrize(("name", "dtype"), [
    ("bf16", "bfloat16"), ("bfloat16", "bfloat16"), ("fp16", "float16"), ("float16", "float16"),
])  # fmt: skip
def test_autocast(run: Run, source: str, name: str, dtype: str) -> None:
    found = explained(run, f"{source}:build", "--batch", "16,84", "--autocast", name, "--loss", "mse")
    assert (found["workload"]["autocast"], found["workload"]["loss_target"]) == (dtype, ["16×3 float32"])
    assert "aten::_to_copy" in ops(found)


@pytest.mark.parametrize(("arguments", "says"), [
    (("build", "--batch", "4,84", "--mode", "infer", "--loss", "mse"), "--loss is for training"),
    (("evaluating", "--batch", "4,84", "--loss", "mse"), "the model is in eval mode: give --mode train"),
    (("build", "--batch", "4,84", "--loss-target", "4"), "--loss-target is what a loss compares the output with"),
    (("build", "--batch", "4,84", "--loss", "msee"), "unknown loss 'msee'; the closest names are mse"),
    (("build", "--batch", "4,84", "--loss", "mse", "--loss-target", "four"), "--loss-target 'four' is not a shape"),
    (("build", "--batch", "4,84", "--loss", "mse", "--loss-target", "4:int"), "--loss-target '4:int': unknown dtype"),
    (("build", "--batch", "4,84", "--autocast", "float32"), "'float32' is not one of"),
    (("build",), "--batch is missing: give the shape of the model's input, like --batch 32,84"),
    (("build", "--batch", "4,84", "--loss", "asked_for_test:alone", "--loss-target", "4"), "loss takes no target"),
    (("job(2)", "--loss", "mse"), "--loss is for a single step"),
    (("job(2)", "--autocast", "bf16"), "--autocast is for a single step"),
])  # fmt: skip
@pytest.mark.parametrize("command", ["explain", "fleet"])
def test_wrong_usage(run: Run, source: str, command: str, arguments: tuple[str, ...], says: str) -> None:
    target, *options = arguments
    assert says in " ".join(run(command, f"{source}:{target}", *options, code=2).stderr.split())


def test_options_of_a_loss_need_a_target(run: Run) -> None:
    for option in (("--loss", "mse"), ("--loss-target", "4"), ("--autocast", "bf16")):
        assert f"{option[0]} needs a TARGET" in run("explain", *option, code=2).stderr


def test_a_fleet_takes_them_beside_its_own_target(run: Run, source: str) -> None:
    run("fleet", f"{source}:build(classes=5)", "--batch", "16,84", "--loss", "cross_entropy", "--loss-target", "16",
        "--autocast", "bf16", "--target", "50ms", "--profile", "amd-epyc-2-core", "--gpu", "T4")  # fmt: skip


def test_the_line_on_the_workload_says_that_a_batch_is_assumed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "images_for_test.py"
    path.write_text(
        "from torch import nn\n"
        "def net():\n"
        "    made = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())\n"
        "    made.default_cfg = {'input_size': (3, 16, 16)}\n"
        "    return made\n"
    )
    short, full = (" ".join(run("explain", f"{path}:net", *EPYC, *more).stdout.split()) for more in ((), ("--full",)))
    assert "assumes a batch of 32×3×16×16 float32 (--batch sets it)" in short
    assert "Workload: Sequential on 32×3×16×16 float32 (assumed; --batch sets it) training" in full
    given = run("explain", f"{path}:net", "--batch", "2,3,16,16", "--full", *EPYC).stdout
    assert "--batch sets it" not in given


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


@needs_transformers
@pytest.mark.parametrize(("options", "says"), [
    (("--loss", "mse"), "hf:distilgpt2 computes its own"),
    (("--batch", "8"), "--batch 8 does not fit: input_ids of GPT2LMHeadModel is like 8,128"),
    (("--batch", "8,16", "--batch", "8"), "is the shape of its main input; give it once"),
    (("--batch", "8,16:float32"), "input_ids are integers"),
])  # fmt: skip
def test_wrong_usage_of_a_model_of_transformers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], says: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert says in run("explain", "hf:distilgpt2", *options, code=2).stderr


def test_an_exported_program_trains_with_a_loss(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(nn.Linear(84, 5), (torch.randn(8, 84),)), path)
    found = explained(run, str(path), "--mode", "train", "--loss", "cross_entropy")
    assert found["workload"]["loss_target"] == ["8 int64"]
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(84, 5)

        def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(x) * scale
            return out

    both = tmp_path / "both.pt2"
    exported = torch.export.export(Scaled(), (torch.randn(8, 84),), {"scale": torch.randn(8, 1)})
    torch.export.save(exported, both)
    found = explained(run, str(both), "--mode", "train", "--loss", "mse")
    assert (found["workload"]["inputs"], found["workload"]["loss_target"]) == (
        ["8×84 float32", "8×1 float32"], ["8×5 float32"],
    )  # fmt: skip
    error = run("explain", str(path), "--batch", "16,84", *EPYC, code=1).stderr
    assert "the program was exported for that size" in error
