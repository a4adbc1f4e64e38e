from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from torch import nn

import placer
from placer import machine, profile
from placer.profile.profile import Profile

Run = Callable[..., Result]


@pytest.fixture
def own(handmade_profile: Profile) -> Profile:
    """Only the CPU in this machine's profile, so that results do not depend on an accelerator being here."""
    found = dataclasses.replace(handmade_profile, fits=handmade_profile.fits[:1])
    path = profile.save(found)
    return dataclasses.replace(found, name=str(path))


@pytest.fixture
def server(handmade_profile: Profile, tmp_path: Path) -> str:
    return str(profile.save(handmade_profile, tmp_path / "server.json"))


def test_json_adds_up(run: Run, nets: str, server: str) -> None:
    asked = ("--batch", "32,84", "--profile", server, "--steps", "9", "--mode", "infer", "--data", "device")
    values = json.loads(run("explain", f"{nets}:net", *asked, "--json").stdout)
    assert (values["schema"], values["choice"]) == (1, "cpu")
    assert [values["workload"][key] for key in ("mode", "steps", "data")] == ["infer", 9, "device"]
    for name, device in values["devices"].items():
        assert sum(device["components"].values()) == pytest.approx(device["step_seconds"])
        assert sum(row["devices"][name] for row in values["layers"]) == pytest.approx(device["components"]["compute"])
        assert sum(row["devices"][name] for row in values["ops"]) == pytest.approx(device["components"]["compute"])
        assert device["total_seconds"] == pytest.approx(device["one_time_seconds"] + 9 * device["step_seconds"])


def test_options_say_what_is_priced(run: Run, nets: str, server: str) -> None:
    asked = ("--batch", "4,16:int64", "--batch", "8", "--device", "cuda", "--optimizer", "SGD")
    values = json.loads(run("explain", f"{nets}:Tokens", *asked, "--profile", server, "--format", "json").stdout)
    assert list(values["devices"]) == ["cuda"]
    assert [values["workload"][key] for key in ("optimizer", "mode")] == ["sgd", "train"]  # as the model is
    assert values["workload"]["inputs"] == ["4×16 int64", "8 float32"]


def test_sweep_finds_where_the_choice_turns(run: Run, nets: str, server: str) -> None:
    asked = ("--batch", "8,84", "--profile", server, "--json", "--sweep")
    values = json.loads(run("explain", f"{nets}:medium", *asked, "batch=1:2048", "--mode", "infer").stdout)
    assert [row["batch"] for row in values["rows"]] == [2**n for n in range(12)]
    turn = next(row["batch"] for row in values["rows"] if row["choice"] == "cuda")
    assert values["crossovers"] == [{"batch": 1, "choice": "cpu"}, {"batch": turn, "choice": "cuda"}]
    for row in values["rows"]:
        times = {name: device["step_seconds"] for name, device in row["devices"].items()}
        assert row["choice"] == min(times, key=lambda name: times[name])
    swept = json.loads(run("explain", f"{nets}:wide", *asked, "steps=1:4096").stdout)
    assert (swept["sweep"], swept["crossovers"][0]) == ("steps", {"steps": 1, "choice": "cpu"})
    assert swept["crossovers"][1]["choice"] == "cuda"  # the start counts


def test_a_size_that_cannot_be_traced_does_not_end_a_sweep(run: Run, nets: str, server: str) -> None:
    result = run("explain", f"{nets}:normed", "--batch", "8,84", "--profile", server, "--sweep", "batch=1:4")
    assert "batch 1: " in result.stdout  # batch norm cannot train on one row
    rows = [line for line in result.stdout.splitlines() if line.strip()[:1].isdigit() and "cuda" in line]
    assert [line.split()[0] for line in rows] == ["2", "4"]


# The short answer, and what stands around it.


def test_a_line_a_fact_unless_all_is_asked_for(run: Run, nets: str, server: str) -> None:
    asked = ("explain", f"{nets}:net", "--batch", "32,84", "--profile", server)
    short, full = run(*asked).stdout, run(*asked, "--full").stdout
    assert full.startswith(short)
    assert "Layers" in full
    assert "Layers" not in short
    assert short.splitlines()[-1] == f"verify    placer explain {nets}:net --batch 32,84 --measure"


def test_flags_for_a_format(run: Run, nets: str, server: str) -> None:
    asked = ("explain", f"{nets}:net", "--batch", "32,84", "--profile", server)
    as_json = run(*asked, "--json").stdout
    assert as_json == run(*asked, "--format", "json").stdout == run(*asked, "--json", "--format", "json").stdout
    for flags in (("--json", "--html"), ("--json", "--format", "text"), ("--html", "--format", "json")):
        assert "ask for one format" in run(*asked, *flags, code=2).stderr
    for flags in (("--full", "--json"), ("--full", "--sweep", "batch=1:2")):
        assert "--full is for the text of one answer" in run(*asked, *flags, code=2).stderr


@pytest.mark.usefixtures("own")
def test_a_machine_with_only_a_cpu_is_compared_with_usual_gpus(run: Run, nets: str, server: str) -> None:
    asked = ("explain", f"{nets}:net", "--batch", "32,84", "--json")
    usual = ["cuda@Tesla T4", "cuda@RTX 4090", "cuda@H100 80GB HBM3"]
    if len(machine.available_devices()) == 1:
        values = json.loads(run(*asked).stdout)
        assert list(values["devices"]) == ["cpu", *usual]
        assert values["choice"] in values["devices"]
        assert {row["device"] for row in values["advice"]} <= {"cpu"}
        assert run(*asked[:-1]).stdout.startswith("cpu is the only device here: ")
    for arguments, devices in (
        (("--device", "cpu"), ["cpu"]),
        (("--device", "cpu", "--what-if", "T4"), ["cpu", usual[0]]),
        (("--device", "cpu", "--what-if", "A100", "--what-if", "T4"), ["cpu", "cuda@A100-SXM4-40GB", usual[0]]),
        (("--profile", "amd-epyc-2-core"), ["cpu", *usual]),
        (("--profile", "amd-epyc-2-core", "--profile", "T4"), ["cpu", usual[0]]),
        (("--profile", server), ["cpu", "cuda"]),
        (("--profile", "amd-epyc-2-core", "--objective", "cost", "--price", "cpu=1"), ["cpu"]),
    ):
        assert list(json.loads(run(*asked, *arguments).stdout)["devices"]) == devices
    large = run("explain", f"{nets}:wide", "--batch", "700000,84", "--profile", "amd-epyc-2-core").stdout
    assert len(re.findall(r"^cuda@\S.* does not fit: needs \d", large, re.MULTILINE)) == 2  # a T4 and an RTX 4090


@pytest.mark.usefixtures("own")
def test_real_steps_are_timed_beside_the_prediction(run: Run, nets: str) -> None:
    asked = ("explain", f"{nets}:Counted", "--batch", "32,84", "--device", "cpu")
    predicted = json.loads(run(*asked, "--json").stdout)
    assert predicted["measured"] == {}
    values = json.loads(run(*asked, "--json", "--measure", "--what-if", "T4").stdout)
    assert sys.modules["nets_for_cli"].calls >= 15  # the step itself ran, and more than once
    assert list(values["devices"]) == ["cpu", "cuda@Tesla T4"]
    assert list(values["measured"]) == ["cpu"]  # the other one is not here
    row = values["measured"]["cpu"]
    assert 0.0 < row["low"] <= row["step_seconds"] <= row["high"]
    seconds = values["devices"]["cpu"]["step_seconds"]
    assert seconds == predicted["devices"]["cpu"]["step_seconds"]  # what was predicted stays so
    assert row["off"] == pytest.approx(seconds / row["step_seconds"] - 1.0)
    text = run(*asked, "--measure").stdout
    assert re.search(r"^measured  cpu .*, predicted .* \([+-]\d+%\)$", text, re.MULTILINE)
    assert "verify" not in text


@pytest.mark.usefixtures("own")
def test_steps_that_cannot_be_timed_are_refused(run: Run, nets: str) -> None:
    asked = ("explain", f"{nets}:net", "--batch", "32,84", "--measure")
    for arguments, says in (
        ((*asked, "--profile", "T4"), "the profile is of another one"),
        ((*asked, "--sweep", "batch=1:4"), "--measure times one batch"),
        (("explain", f"{nets}:job", "--measure"), "a Job cannot be timed"),
        (("explain", "--measure"), "--measure needs a TARGET"),
    ):
        assert says in " ".join(run(*arguments, code=2).stderr.split())
    hooked = run("explain", f"{nets}:hooked", "--batch", "32,84", "--measure", code=1)
    assert "the real step was not timed: copies of the model would call" in hooked.stderr


# Without a target: the last decisions.


@pytest.mark.usefixtures("own")
def test_without_a_target_the_last_decision_is_shown(run: Run) -> None:
    placement = placer.choose(nn.Linear(4, 2), (3, 4), devices=["cpu"])
    placement.times._clock = iter(range(1000)).__next__
    for _ in range(6):
        with placement.step():
            pass
    placer.choose(nn.Linear(5, 2), (3, 5), devices=["cpu"])
    result = run("explain", "--full")
    assert result.stdout.startswith("cpu: ")
    assert "Workload: Linear on 3×5 float32" in result.stdout
    table = result.stdout.partition("Last decisions on this machine")[2]
    newer, older = (line for line in table.splitlines() if "Linear" in line)
    assert newer.split()[-2:] == ["-", "-"]  # nothing was seen of it yet
    assert "1.00 s" in older
    assert older.rstrip().endswith("-100%")  # microseconds were predicted
    assert "Workload" not in run("explain").stdout
    assert run("explain").stdout.endswith(f"Last decisions on this machine{table}")
    decisions = json.loads(run("explain", "--format", "json").stdout)["decisions"]
    assert [row["seen_seconds"] for row in decisions] == [None, 1.0]
    assert [row["inputs"] for row in decisions] == [["3×5 float32"], ["3×4 float32"]]
    assert "- decided 2" in result.stdout


# What can go wrong: one clear line.


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--batch is missing"),
        (("--batch", "32x84"), "'32x84' is not a shape"),
        (("--batch", "-1,84"), "'-1,84' is not a shape"),
        (("--batch", ""), "'' is not a shape"),
        *((("--batch", text), "is not a shape") for text in (",", "3,,4", "3;4", "١,٢", "1e3")),
        (("--batch", "9" * 30), "is larger than any tensor"),
        (("--batch", "2,84:float33"), "unknown dtype 'float33'"),
        (("--batch", "2,84", "--sweep", "batch=9:1"), "must start at 1 or more"),
        *((("--batch", "2,84", "--sweep", text), "not a range of batch") for text in ("width=1:9", "batch=1", "1:8")),
        (("--batch", "2,84", "--optimizer", "adamn"), "unknown optimizer 'adamn'"),
        (("--batch", "2,84", "--steps", "0"), "--steps"),
        (("--batch", "2,84", "--mode", "eval"), "--mode"),
        (("--batch", "2,84", "--device", "warp drive"), "'warp drive' is not a device"),
        (("--batch", "2,84", "--device", "cuda:88"), "'cuda:88' is not on this machine"),
    ],
)
@pytest.mark.usefixtures("own")
def test_wrong_usage(run: Run, nets: str, arguments: tuple[str, ...], says: str) -> None:
    assert says in run("explain", f"{nets}:net", *arguments, code=2).stderr
    if arguments:
        assert f"{arguments[0]} needs a TARGET" in run("explain", *arguments[:1], "1", code=2).stderr


@pytest.mark.usefixtures("own")
def test_what_cannot_be_done_is_one_line(run: Run, nets: str, placer_home: Path, tmp_path: Path) -> None:
    shape = ("--batch", "2,84")
    torn = tmp_path / "torn.json"
    nowhere = str(tmp_path / "no" / "folder.txt")
    for content in ("", "{}", "[1, 2", "\x00\xff", '{"format": "placer machine profile", "schema": 99}'):
        torn.write_text(content, encoding="latin-1")
        assert "torn.json" in run("explain", f"{nets}:net", *shape, "--profile", str(torn), code=1).stderr
    for arguments, says in (
        ((f"{nets}:net", *shape, "--profile", "nowhere.json"), "nowhere.json"),
        ((f"{nets}:net", *shape, "--profile", "nobody-has-this"), "placer profile list"),
        ((f"{nets}:net", *shape, "--what-if", "RTX 4099"), "no GPU is called 'RTX 4099'"),
        (("nowhere.py:net", *shape), "no file"),
        ((f"{nets}:nest", *shape), "has no attribute 'nest'"),
        ((f"{nets}:net", "--batch", "2,85"), "mat1 and mat2"),
        ((f"{nets}:net", *shape, "--profile", str(profile.default_path()), "--output", nowhere), nowhere),
        ((), "no decision was taken"),
    ):
        assert says in run("explain", *arguments, code=1).stderr
    (placer_home / "history.jsonl").write_text('{"kind": "decision", "explanation": {"schema": 1}}\n')
    assert "not a complete explanation" in run("explain", code=1).stderr
