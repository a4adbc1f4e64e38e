"""What a command line gets wrong, what could not be done, and names that would steer a terminal: one line each."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest
from click.testing import CliRunner, Result
from explained import explained

import placer.api
import placer.calibration
import placer.fleets
from placer import decision, profile
from placer.calibration.lab.published import table
from placer.cli import main, output
from placer.decision import history
from placer.pricing import Prediction
from placer.profile import Profile

Run = Callable[..., Result]
EPYC = ("--profile", "amd-epyc-2-core")
NET = "explain nets_for_cli.py:net"
TOKENS = "explain nets_for_cli.py:Tokens"
BUILD = "explain nets_for_cli.py:build --batch 4,84"
JOB = "explain nets_for_cli.py:job --profile amd-epyc-2-core"
FLEET = "fleet nets_for_cli.py:net --batch 4,84 --profile amd-epyc-2-core"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("predict", "predict"),
        ("calibrate --budget 0", "--budget"),
        ("calibrate --device cuda:66", "'cuda:66' is not on this machine"),
        ("validate --threads 1,,2", "--threads takes numbers of at least 1"),
        ("validate --threads 99999", "--threads takes numbers of at least 1"),
        ("validate --published --suite quick", "leave out --suite"),
        ("validate --published --share", "leave out --share"),
        ("validate --steps 10", "say --published"),
        ("validate --profile ..", "not a profile name"),
        ("validate --what-if T4", "give --suite reference"),
        ("profile export", "Missing argument"),
        ("profile burn", "burn"),
        ("profile show ..", "not a profile name"),
        (NET, "--batch is missing: give the shape of the model's input, like --batch 32,84"),
        *((f"{NET} --batch '{text}'", "is not a shape") for text in ("32x84", "-1,84", "", "3,,4", "١,٢", "1e3")),
        (f"{NET} --batch {'9' * 30}", "is larger than any tensor"),
        (f"{NET} --batch 2,84:float33", "unknown dtype 'float33'"),
        (f"{NET} --batch 2,84 --sweep batch=9:1", "must start at 1 or more"),
        *((f"{NET} --batch 2,84 --sweep {text}", "not a range of batch") for text in ("width=1:9", "batch=1", "1:8")),
        (f"{TOKENS} --batch 4,16:int64 --batch 8 --sweep batch=1:4", "those of the model have none in common"),
        (f"{NET} --batch 2,84 --optimizer adamn", "unknown optimizer 'adamn'"),
        (f"{NET} --batch 2,84 --device cuda:88", "'cuda:88' is not on this machine"),
        ("explain nowhere.py:net --device 'warp drive'", "'warp drive' is not a device"),
        ("explain --batch 2,84", "--batch needs a TARGET"),
        ("explain --measure", "--measure needs a TARGET"),
        (f"{NET} --batch 2,84 --measure --profile T4", "the profile is of another one"),
        (f"{NET} --batch 2,84 --measure --sweep batch=1:4", "--measure times one batch"),
        (f"{NET} --batch 2,84 --json --html", "ask for one format"),
        (f"{NET} --batch 2,84 --json --format text", "ask for one format"),
        (f"{NET} --batch 2,84 --full --json", "--full is for the text of one answer"),
        (f"{NET} --batch 2,84 --full --sweep batch=1:2", "--full is for the text of one answer"),
        (f"{BUILD} --mode infer --loss mse", "--loss is for training"),
        ("explain nets_for_cli.py:evaluating --batch 4,84 --loss mse", "is in eval mode: give --mode train"),
        (f"{BUILD} --loss-target 4", "--loss-target is what a loss compares the output with"),
        (f"{BUILD} --loss msee", "unknown loss 'msee'; the closest names are mse"),
        (f"{BUILD} --loss mse --loss-target four", "--loss-target 'four' is not a shape"),
        (f"{BUILD} --loss nets_for_cli:alone --loss-target 4", "loss takes no target"),
        (f"{BUILD} --autocast float32", "'float32' is not one of"),
        (f"{JOB} --loss mse", "--loss is for a single step"),
        (f"{JOB} --batch 8,8", "--batch is for a single step; a Job says what to run in its parts"),
        (f"{JOB} --sweep batch=1:4", "over repeats, or batch or count of a part (PART.batch): acting, learning"),
        (f"{JOB} --sweep nothing.batch=1:4", "the job has no part 'nothing'; it has: acting, learning"),
        ("explain nets_for_cli.py:job --measure", "a Job cannot be timed"),
        ("fleet nets_for_cli.py:job --steps 3", "--steps is for a single step"),
        ("fleet nowhere.py:net --vcpus few", "--vcpus 'few'"),
        ("fleet nowhere.py:net --vcpus inf", "vcpus must be a number above 0"),
        (f"{FLEET} --target fast", "'fast' is not a duration"),
        (f"{FLEET} --price nothing", "is not a machine and a positive number, like --price T4=0.10"),
        (f"{FLEET} --price P4=3 --vcpus 2", "--price 'P4' names no machine that is compared: amd-epyc-2-core, 2 vCPUs"),
        (f"{FLEET} --machine x=few", "like g4dn.xlarge=4:T4"),
        (f"{FLEET} --machine =4", "it has no name"),
        (f"{FLEET} --machine c5.12xlarge:T4", "give the number of vCPUs, or cores, too, like c5.12xlarge=48:T4"),
        (f"{FLEET} --format nfd --gpu T4 --gpu L4", "name one machine, not 3"),
    ],
)
@pytest.mark.usefixtures("calibrated", "nets")
def test_wrong_usage_is_exit_code_2(run: Run, line: str, says: str) -> None:
    assert says in " ".join(run(*shlex.split(line), code=2).stderr.split())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("validate", "placer calibrate"),
        ("validate --published", "no published measurements at"),
        ("validate --accounts no.jsonl", "give the file accounts.jsonl"),
        ("validate --published --profile nowhere", "nowhere"),
        ("profile show", "run: placer calibrate"),
        ("profile import torn.json", "torn.json"),
        ("gpus RTX 4085", "no GPU is called 'RTX 4085'"),
        ("explain", "no decision was taken"),
        (f"{NET} --batch 2,84 --profile torn.json", "torn.json"),
        (f"{NET} --batch 2,84 --profile nowhere.json", "nowhere.json"),
        (f"{NET} --batch 2,84 --profile nobody-has-this", "placer profile list"),
        (f"{NET} --batch 2,84 --what-if 'RTX 4099'", "no GPU is called 'RTX 4099'"),
        (f"{NET} --batch 2,84 --output no/folder.txt", "there is no folder no"),
        ("explain nowhere.py:net --batch 2,84", "no file"),
        ("explain nets_for_cli.py:nest --batch 2,84", "has no attribute 'nest'"),
        (f"{NET} --batch 2,85", "mat1 and mat2"),
        ("explain nets_for_cli.py:Failing --batch 4,84", "my own check"),
        ("fleet nets_for_cli.py:Failing --batch 4,84 --vcpus 2", "my own check"),
        (f"{BUILD} --loss CrossEntropyLoss --loss-target 16,3", "the loss failed"),
        ("explain nets_for_cli.py:hooked --batch 2,84 --measure", "not timed: copies of the model would call"),
        (f"{FLEET} --gpu T99", "no GPU is called 'T99'"),
        (f"{FLEET} --machine nobody", "nobody"),
        (f"{FLEET} --machine x=2:T99", "no GPU is called 'T99'"),
        (f"{FLEET} --nodes /nowhere.csv", "/nowhere.csv"),
        (f"{FLEET} --target 1us --vcpus 2 --format slurm", "no machine to ask Slurm for"),
    ],
)
@pytest.mark.usefixtures("nets")
def test_what_could_not_be_done_is_exit_code_1(
    run: Run, line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "DATA", tmp_path)
    for content in ("", "[1, 2", "\x00\xff", '{"format": "placer machine profile", "schema": 99}'):
        (tmp_path / "torn.json").write_text(content, encoding="latin-1")
        assert says in run(*shlex.split(line), code=1).stderr
        if "torn.json" not in line:
            break


def fails(*_: Any, **__: Any) -> NoReturn:
    raise ValueError("an inner one")


def test_an_inner_error_is_no_wrong_usage(run: Run, nets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "ask", fails)
    monkeypatch.setattr(placer.fleets, "rank", fails)
    monkeypatch.setattr(placer.calibration.research(), "validate", fails)
    monkeypatch.setattr(profile, "default_path", fails)
    shape = (f"{nets}:net", "--batch", "4,84", *EPYC)
    swept = ["explain", *shape, "--sweep", "steps=1:4"]
    for command in (["explain", *shape], swept, ["fleet", *shape], ["validate"], ["profile", "path"]):
        error = run(*command, code=1).stderr
        assert "ValueError: an inner one (unexpected; PLACER_DEBUG=1 shows where, " in error
    monkeypatch.setenv("PLACER_DEBUG", "1")
    assert isinstance(CliRunner().invoke(main, ["profile", "path"]).exception, ValueError)


# No name that a command line prints can steer the terminal, or begin a line of its own.

HOSTILE = "\x1b]0;owned\x07\x9b31m\nfake: line\u202e"


def test_hostile_names(
    runner: CliRunner, nets: str, tmp_path: Path, handmade_profile: Profile, make_prediction: Callable[..., Prediction]
) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        f"    def forward(self, x): raise RuntimeError({HOSTILE!r})\n"
        f"Net.__name__ = {HOSTILE!r}\n"
    )
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps([{"name": HOSTILE, "vcpus": 4, "gpu": "T4"}, {"name": "x", "vcpus": 8}]))
    fleet = ("fleet", f"{nets}:net", "--batch", "4,84", *EPYC, "--nodes", str(nodes))
    path_of_profile = str(profile.save(handmade_profile, tmp_path / f"{HOSTILE}.json"))
    profile.save(handmade_profile, profile.profiles_folder() / f"{HOSTILE}.json")
    predictions = {name: make_prediction(name, 1e-3) for name in ("cpu", HOSTILE)}
    entry = explained(predictions, {"target": HOSTILE, "mode": HOSTILE, "inputs": [HOSTILE]}).to_dict()
    history.record({"time": HOSTILE, "kind": "decision", "explanation": {**entry, "choice": HOSTILE}})
    for arguments in (
        # what was typed
        ("explain", f"{HOSTILE}.py:net", "--batch", "3,4"),
        ("explain", f"--{HOSTILE}"),
        (f"x{HOSTILE}",),
        ("explain", "net.py:net", "--batch", HOSTILE),
        # what is in a file
        ("explain", f"{path}:Net", "--batch", "3,4", *EPYC),
        fleet,
        (*fleet, "--price", "nobody=1"),
        (*fleet, "--output", str(tmp_path / f"{HOSTILE}.txt")),
        ("profile", "show", path_of_profile),
        ("profile", "list"),
        ("explain",),
    ):
        # It is on a terminal, whose colours are kept.
        result = runner.invoke(main, list(arguments), prog_name="placer", color=True)
        text = result.stdout + result.stderr
        assert "owned" in text, arguments
        assert all(character.isprintable() or character in "\n\t" for character in text), repr(text)
        assert not any(line.startswith("fake") for line in text.splitlines())


def test_colours_are_kept_on_a_terminal_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_text("\x1b[1mbold\x1b[0m \x1b[2J\n", colored=True)
    assert capsys.readouterr().out == "bold \ufffd[2J\n"  # click takes colours away where there is no terminal
    assert output.printable_text("\x1b[1mbold\x1b[0m\x1b[2J", colored=True) == "\x1b[1mbold\x1b[0m\ufffd[2J"
    assert output.printable_text("\x1b[1mbold", colored=False) == "\ufffd[1mbold"


# Every command that placer prints, or that its pages name in passing, has the options that it is given.

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = click.Context(main)
#: A command, and what follows it up to the end of a sentence, a string or a span of code.
PRINTED = re.compile(rf"\bplacer ({'|'.join(main.list_commands(CONTEXT))})\b((?:[^\n`;,()\".]|\.(?=\S))*)")


def unknown_options(name: str, rest: str) -> list[str]:
    """The options in ``rest`` that the command does not have."""
    command = main.get_command(CONTEXT, name)
    words = rest.split()
    if isinstance(command, click.Group):
        command = command.get_command(CONTEXT, words[0]) if words else command
    if command is None:  # "is no placer profile" is prose
        return []
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    return [word for word in words if word.startswith("--") and word.rstrip(":'") not in options]


def test_options_that_are_printed_exist() -> None:
    files = [path for folder in ("placer", "calibration") for path in (ROOT / folder).rglob("*.py")]
    for path in [*files, ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for name, rest in PRINTED.findall(path.read_text(encoding="utf-8")):
            if name != "run":  # what follows a script is the script's
                assert not unknown_options(name, rest), f"{path}: placer {name}{rest}"
