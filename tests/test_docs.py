"""What the documents show works: code runs, commands are accepted, links lead somewhere, figures name their record."""

from __future__ import annotations

import importlib.util
import logging
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import click
import pytest
import regenerate
from click.testing import CliRunner
from ray_apart import ray_apart
from sky_apart import sky_apart

from placer import api, profile
from placer import decision as deciding
from placer.calibration.validation import record
from placer.calibration.validation.compare import score
from placer.cli import main
from placer.explanation import accuracy
from placer.profile.profile import Profile

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A time, a rate or a share in a command's output.
FIGURE = re.compile(r"\d (?:s|ms|µs|GB/s|[GM]FLOP/s)\b|\d ?%")
#: The name on the package index.
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
DISTRIBUTION = re.findall(r'^name = "(.+)"$', PYPROJECT, re.MULTILINE)[0]
#: Commands that measure for minutes, or run a script of the reader's: only their options are checked.
MEASURES = ("calibrate", "validate", "run")


def blocks(page: Path, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(page.read_text(encoding="utf-8")) if language in languages]


def everywhere(*languages: str) -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        yield from ((page, body) for body in blocks(page, *languages))


def commands(page: Path) -> list[list[str]]:
    """The commands of a page's sh and console blocks, in order, as argument lists."""
    found = [
        line.removeprefix("$ ") for body in blocks(page, "console") for line in body.splitlines() if line[:2] == "$ "
    ]
    found += [line for body in blocks(page, "sh") for line in body.splitlines() if line.strip()]
    return [shlex.split(line, comments=True) for line in found]


RECORD = ROOT / regenerate.RECORD


@pytest.fixture
def elsewhere(calibrated: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A calibrated machine, in a folder that looks like the checkout but where nothing is written into the checkout."""
    profile.save(replace(calibrated, seconds=60.0))  # as long as the pages ask for: it is not measured again
    (tmp_path / "calibration").symlink_to(ROOT / "calibration")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with ray_apart():
        yield tmp_path
    sys.modules.pop("conv1d", None)  # a target that is a file is imported under the file's name


#: Pages of frameworks show the framework's own warnings about what they import, too.
FRAMEWORKS = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore:.*num_workers.*",
    "ignore:No early stopping",
    "ignore:Best weights from best epoch",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",  # files of Ray
)
WITH_CODE = [
    pytest.param(
        page,
        id=page.name,
        marks=[
            *([FRAMEWORKS] if page.parent.name == "integrations" else []),
        ],
    )
    for page in PAGES
    if blocks(page, "python")
]


@pytest.mark.parametrize("page", WITH_CODE)
def test_python_blocks_run_one_after_the_other(
    page: Path,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, logger="placer")
    for package in re.findall(r"^(?:import|from) (\w+)", "".join(blocks(page, "python")), re.MULTILINE):
        if importlib.util.find_spec(package) is None:  # not imported: a page may say where it keeps its files, before
            pytest.skip(f"{package} is not installed")
    if page.stem == "skypilot":
        sky_apart(elsewhere, monkeypatch)
    namespace: dict[str, object] = {"__name__": "example"}
    for body in blocks(page, "python"):
        exec(compile(body, str(page), "exec"), namespace)
    assert "placement" in namespace or [record for record in caplog.records if record.name == "placer"]
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_are_accepted(page: Path, elsewhere: Path, handmade_profile: Profile) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    decided = {"kind": "decision", "explanation": api.explain(_net(), (2, 3)).to_dict()}
    deciding.history.record(decided)
    for program, *arguments in commands(page):
        if program == "make":
            assert set(arguments) <= set(targets), arguments
            continue
        if program == "pip":
            assert arguments == ["install", DISTRIBUTION], arguments
            continue
        assert program == "placer", program
        if arguments[0] in MEASURES:
            command = main.get_command(click.Context(main), arguments[0])
            assert command is not None
            command.make_context(arguments[0], arguments[1:])
            continue
        if regenerate.RECORD in arguments and not RECORD.is_file():
            continue  # test_the_record_is_there says so
        result = CliRunner().invoke(main, arguments, prog_name="placer")
        assert result.exit_code == 0, f"placer {shlex.join(arguments)}: {result.output}"


def _net() -> object:
    from torch import nn

    return nn.Linear(3, 2)


def test_every_page_is_in_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"([\w/-]+\.md)$", site, re.MULTILINE))
    assert named == {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[3:]}


def test_the_readme_has_the_errors_that_explain_tells() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for records in (accuracy.CALIBRATED_CPU, accuracy.ESTIMATED_CPU):
        medians, most = sorted(record.median for record in records), sorted(record.most for record in records)
        cells = [f"{100 * errors[0]:.0f} to {100 * errors[-1]:.0f} %" for errors in (medians, most)]
        assert f"| {cells[0]} | {cells[1]} |" in text
    for begins, records in (
        ("| GPU, from what others published |", accuracy.HOST_BOUND_GPU),
        ("| GPU, after a calibration |", accuracy.CALIBRATED_GPU),
    ):
        columns = ([record.median for record in records], [record.most for record in records])
        cells = [", ".join(f"{100 * share:.0f}" for share in shares) + " %" for shares in columns]
        shown = " | ".join(re.sub(r", (\d+ %)$", r" and \1", cell) for cell in cells)
        assert f"{begins} {shown} |" in text


@cache
def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINKS = [
    (page, link)
    for page in PAGES
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text(encoding="utf-8")))
]


def test_links_lead_somewhere() -> None:
    for page, link in LINKS:
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target == RECORD or target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_the_record_is_there() -> None:
    assert RECORD.is_file(), f"the documents quote {regenerate.RECORD}: commit it, then run docs/regenerate.py"


def test_every_figure_in_an_output_names_its_record() -> None:
    created = profile.load(RECORD).created if RECORD.is_file() else ""
    for page, body in everywhere("console", "text", ""):
        if not FIGURE.search(body):
            continue
        command, _, output = body.partition("\n")
        assert regenerate.RECORD in command, f"{page.name}: where do these figures come from?\n{body}"
        # What names its machine says which calibration it was: a record that was replaced needs new figures.
        if re.search(r"^(Machine|created):", output, re.MULTILINE):
            assert created in output, f"{page.name} shows an older record: run docs/regenerate.py"


def test_the_suites_error_is_that_of_the_record() -> None:
    measured = score(record.load(RECORD.parent / "measurements.json").cells)
    assert measured is not None
    text = (ROOT / "docs" / "dev" / "accuracy-details.md").read_text(encoding="utf-8")
    shown = f"| placer | {measured.median_error:.1%} | {measured.p90_error:.1%} | {measured.within_25:.1%} |"
    assert shown in text


def test_every_command_has_a_page_with_its_options() -> None:
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "commands").glob("[a-z]*.md")}
    context = click.Context(main)
    assert set(pages) == set(main.list_commands(context))
    for name, text in pages.items():
        command = main.get_command(context, name)
        assert command is not None
        options = {option for p in command.params if isinstance(p, click.Option) for option in p.opts}
        options = {option for option in options if option.startswith("--")}
        cells = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `--")]
        assert {option for cell in cells for option in re.findall(r"`(--[a-z-]+)", cell)} == options
        if isinstance(command, click.Group):
            assert set(re.findall(r"^\| `([a-z]+)[` ]", text, re.MULTILINE)) == set(command.commands)
