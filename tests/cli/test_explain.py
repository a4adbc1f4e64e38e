"""``placer explain``: of steps and jobs, swept, measured, and of the last decisions."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from torch import nn

import placer
from placer import profile
from placer.profile import Profile

Run = Callable[..., Result]
EPYC = ("--profile", "amd-epyc-2-core")


@pytest.fixture
def own(handmade_profile: Profile) -> None:
    """Only the CPU in this machine's profile, so that results do not depend on an accelerator being here."""
    profile.save(dataclasses.replace(handmade_profile, fits=handmade_profile.fits[:1]))


@pytest.fixture
def server(handmade_profile: Profile, tmp_path: Path) -> str:
    return str(profile.save(handmade_profile, tmp_path / "server.json"))


@pytest.fixture
def explained(run: Run) -> Callable[..., dict[str, Any]]:
    """The JSON of ``placer explain``."""

    def explain(*arguments: str) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(run("explain", *arguments, "--json").stdout)
        return values

    return explain


Explained = Callable[..., dict[str, Any]]


def test_options_say_what_is_priced(explained: Explained, nets: str, server: str) -> None:
    asked = ("--batch", "4,16:int64", "--batch", "8", "--device", "cuda", "--optimizer", "SGD", "--steps", "9")
    values = explained(f"{nets}:Tokens", *asked, "--profile", server, "--data", "device")
    assert list(values["devices"]) == ["cuda"]
    workload = values["workload"]
    assert workload["inputs"] == ["4×16 int64", "8 float32"]
    assert [workload[key] for key in ("optimizer", "mode", "steps", "data")] == ["sgd", "train", 9, "device"]


@pytest.mark.parametrize(
    ("loss", "target", "cast", "compared", "op"),
    [
        ("cross_entropy", (), "bfloat16", ["16 int64"], "aten::nll_loss_forward"),
        ("CrossEntropyLoss", ("--loss-target", "16,3:float32"), "float16", ["16×3 float32"], "aten::_log_softmax"),
        ("l1_loss", ("--loss-target", "16,3:float64"), "float16", ["16×3 float64"], "aten::abs"),
    ],
)
def test_a_loss_and_what_it_compares_with(
    explained: Explained, nets: str, loss: str, target: tuple[str, ...], cast: str, compared: list[str], op: str
) -> None:
    asked = ("--batch", "16,84", "--loss", loss, *target, "--autocast", cast, *EPYC)
    values = explained(f"{nets}:build", *asked)
    assert (values["workload"]["autocast"], values["workload"]["loss_target"]) == (cast, compared)
    assert {op, "aten::_to_copy"} <= {row["op"] for row in values["ops"]}
    assert any("(assumed; --loss-target sets it)" in note for note in values["notes"]) == (not target)


def test_an_exported_program_trains_with_a_loss(run: Run, explained: Explained, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(nn.Linear(84, 5), (torch.randn(8, 84),)), path)
    values = explained(str(path), "--mode", "train", "--loss", "cross_entropy", *EPYC)
    assert values["workload"]["loss_target"] == ["8 int64"]
    error = run("explain", str(path), "--batch", "16,84", *EPYC, code=1).stderr
    assert "the program was exported for that size" in error


def test_a_job_and_sweeps_over_it(run: Run, explained: Explained, nets: str) -> None:
    asked = (f"{nets}:job(count=7)", *EPYC, "--what-if", "T4")
    text = run("explain", *asked, "--full").stdout
    assert "Job: 7 × acting, 10 × learning; repeated 50 times." in text
    assert "Parts of the job" in text
    values = explained(*asked)
    assert [part["name"] for part in values["parts"]] == ["acting", "learning"]
    total = values["devices"]["cpu"]
    assert total["total_seconds"] == pytest.approx(50 * total["step_seconds"] + total["one_time_seconds"])
    swept = run("explain", *asked, "--sweep", "learning.batch=64:128").stdout
    assert "Seconds of the job by batch size of learning" in swept
    counts = explained(*asked, "--sweep", "acting.count=1:4")
    assert (counts["sweep"], counts["part"]) == ("count", "acting")
    seconds = [row["devices"]["cpu"]["step_seconds"] for row in counts["rows"]]
    assert seconds[2] - seconds[1] == pytest.approx(2 * (seconds[1] - seconds[0]))
    assert [row["repeats"] for row in explained(*asked, "--sweep", "repeats=1:4")["rows"]] == [1, 2, 4]


def test_sweep_finds_where_the_choice_turns(run: Run, explained: Explained, nets: str, server: str) -> None:
    asked = ("--batch", "8,84", "--profile", server, "--sweep")
    values = explained(f"{nets}:medium", *asked, "batch=1:2048", "--mode", "infer")
    assert [row["batch"] for row in values["rows"]] == [2**n for n in range(12)]
    turn = next(row["batch"] for row in values["rows"] if row["choice"] == "cuda")
    assert values["crossovers"] == [{"batch": 1, "choice": "cpu"}, {"batch": turn, "choice": "cuda"}]
    assert explained(f"{nets}:net", *asked, "batch=8:16", "--loss", "cross_entropy")["failed"] == {}
    swept = explained(f"{nets}:wide", *asked, "steps=1:4096")
    assert (swept["sweep"], swept["crossovers"][0]) == ("steps", {"steps": 1, "choice": "cpu"})
    assert swept["crossovers"][1]["choice"] == "cuda"  # the start counts
    text = run("explain", f"{nets}:normed", *asked, "batch=1:4").stdout
    assert "batch 1: " in text  # batch norm cannot train on one row
    rows = [line for line in text.splitlines() if line.strip()[:1].isdigit() and "cuda" in line]
    assert [line.split()[0] for line in rows] == ["2", "4"]


def test_a_line_a_fact_unless_all_is_asked_for(run: Run, nets: str, server: str) -> None:
    asked = ("explain", f"{nets}:net", "--batch", "32,84", "--profile", server)
    short, full = run(*asked).stdout, run(*asked, "--full").stdout
    assert full.startswith(short)
    assert ("Layers" in short, "Layers" in full) == (False, True)
    assert short.splitlines()[-1] == f"verify    placer explain {nets}:net --batch 32,84 --measure"
    assert run(*asked, "--json").stdout == run(*asked, "--json", "--format", "json").stdout


@pytest.mark.usefixtures("own")
def test_a_machine_with_only_a_cpu_is_compared_with_usual_gpus(explained: Explained, nets: str, server: str) -> None:
    asked = (f"{nets}:net", "--batch", "32,84")
    usual = ["cuda@Tesla T4", "cuda@RTX 4090", "cuda@H100 80GB HBM3"]
    for arguments, devices in (
        (("--device", "cpu"), ["cpu"]),
        (("--device", "cpu", "--what-if", "A100", "--what-if", "T4"), ["cpu", "cuda@A100-SXM4-40GB", usual[0]]),
        (EPYC, ["cpu", *usual]),
        ((*EPYC, "--profile", "T4"), ["cpu", usual[0]]),
        (("--profile", server), ["cpu", "cuda"]),
        ((*EPYC, "--objective", "cost", "--price", "cpu=1"), ["cpu"]),
    ):
        assert list(explained(*asked, *arguments)["devices"]) == devices


@pytest.mark.usefixtures("own")
def test_of_energy_the_usual_gpus_are_candidates(explained: Explained, nets: str) -> None:
    asked = (f"{nets}:wide", "--batch", "512,84", "--objective", "energy", "--watts", "cpu=1000")
    values = explained(*asked)
    joules = {name: row["watts"] * row["step_seconds"] for name, row in values["devices"].items()}
    assert values["choice"] == min(joules, key=lambda name: joules[name]) != "cpu"
    assert "energy" in values["reason"]


@pytest.mark.usefixtures("own")
def test_real_steps_are_timed_beside_the_prediction(run: Run, explained: Explained, nets: str) -> None:
    asked = (f"{nets}:Counted", "--batch", "32,84", "--device", "cpu")
    predicted = explained(*asked)
    assert predicted["measured"] == {}
    values = explained(*asked, "--measure", "--what-if", "T4")
    assert sys.modules["nets_for_cli"].calls >= 15  # the step itself ran, and more than once
    assert list(values["devices"]) == ["cpu", "cuda@Tesla T4"]
    assert list(values["measured"]) == ["cpu"]  # the other one is not here
    row = values["measured"]["cpu"]
    assert 0.0 < row["low"] <= row["step_seconds"] <= row["high"]
    seconds = values["devices"]["cpu"]["step_seconds"]
    assert seconds == predicted["devices"]["cpu"]["step_seconds"]  # what was predicted stays so
    assert row["off"] == pytest.approx(seconds / row["step_seconds"] - 1.0)
    text = run("explain", *asked, "--measure").stdout
    assert re.search(r"^measured  cpu .*, predicted .* \([+-]\d+%\)$", text, re.MULTILINE)
    assert "verify" not in text


@pytest.mark.usefixtures("own")
def test_without_a_target_the_last_decision_is_shown(run: Run, explained: Explained, placer_home: Path) -> None:
    placement = placer.choose(nn.Linear(4, 2), (3, 4), devices=["cpu"])
    placement.times._clock = iter(range(1000)).__next__
    for _ in range(6):
        with placement.step():
            pass
    placer.choose(nn.Linear(5, 2), (3, 5), devices=["cpu"])
    full = run("explain", "--full").stdout
    assert full.startswith("cpu: ")
    assert "Workload: Linear on 3×5 float32" in full
    assert "- decided 2" in full
    table = full.partition("Last decisions on this machine")[2]
    newer, older = (line for line in table.splitlines() if "Linear" in line)
    assert newer.split()[-2:] == ["-", "-"]  # nothing was seen of it yet
    assert "1.00 s" in older
    assert older.rstrip().endswith("-100%")  # microseconds were predicted
    assert run("explain").stdout.endswith(f"Last decisions on this machine{table}")
    decisions = explained()["decisions"]
    assert [row["seen_seconds"] for row in decisions] == [None, 1.0]
    assert [row["inputs"] for row in decisions] == [["3×5 float32"], ["3×4 float32"]]
    (placer_home / "history.jsonl").write_text('{"kind": "decision", "explanation": {"schema": 1}}\n')
    assert "not a complete explanation" in run("explain", code=1).stderr
