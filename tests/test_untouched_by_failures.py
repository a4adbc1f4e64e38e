"""Model, random numbers, threads and every switch are as before: after an answer, and after a fault at any point."""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib.util
import io
import itertools
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import torch
from pictures import changed
from process_state import Fault, process_state
from torch import nn

import placer
from placer import profile as profiles
from placer.calibration.suite import Entry
from placer.calibration.validation import report
from placer.calibration.validation.record import Report
from placer.calibration.validation.run import validate
from placer.errors import PlacerWarning
from placer.profile.profile import Profile

#: Faults that are tried in each function for each kind of workload and of fault. `make soak` tries very many more.
POINTS = {"choose": 6, "explain": 6, "validate": 3}


class Network(nn.Module):
    """A bit of everything a trace has to follow, with a buffer, a dropout and a plain attribute."""

    def __init__(self, reads: bool = False) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)
        self.cell, self.last = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 2)
        self.reads, self.calls = reads, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = self.drop(self.norm(self.first(x)).relu()) + torch.rand(())
        if self.reads and x.sum().item() > 1e30:
            x = x * 2
        out: torch.Tensor = self.last(self.cell(x[:, None])[0][:, 0])
        return out


@contextlib.contextmanager
def unusual() -> Iterator[None]:
    """Switches that are not where a new process has them."""
    torch.set_default_dtype(torch.float64)
    gc.disable()
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            yield
    finally:
        gc.enable()


def workload(reads: bool) -> tuple[Network, torch.optim.Optimizer, dict[str, Any]]:
    model = Network(reads)
    optimizer = torch.optim.Adam(model.parameters())
    model.norm.eval()
    with torch.enable_grad():
        model(torch.ones(3, 4, dtype=model.first.weight.dtype)).sum().backward()
    optimizer.step()
    model.first.register_forward_hook(lambda *_: None)
    return model, optimizer, {"mode": "train", "optimizer": optimizer, "devices": ["cpu"]}


def choose(model: nn.Module, options: dict[str, Any]) -> object:
    return placer.choose(model, batch=example(model), move=False, options=placer.Options(threads="tune"), **options)


def explain(model: nn.Module, options: dict[str, Any]) -> object:
    return placer.explain(model, batch=example(model), **options).to_text(full=True)


def example(model: nn.Module) -> torch.Tensor:
    return torch.ones(3, 4, dtype=next(model.parameters()).dtype)


def validated(model: nn.Module, options: dict[str, Any]) -> Report:
    """By a clock of its own, so that the same points are passed every time."""
    entry = Entry("small", "mlp", lambda: copy.deepcopy(model), lambda n: example(model), (3,))
    clock = itertools.count(1.0).__next__
    return validate([entry], profiles.load(), ["cpu"], threads=(1,), rounds=3, time_limit_per_cell=1.0, clock=clock)


FUNCTIONS: dict[str, Callable[[nn.Module, dict[str, Any]], object]] = {
    "choose": choose, "explain": explain, "validate": validated,
}  # fmt: skip


@pytest.mark.parametrize("surroundings", [contextlib.nullcontext, unusual])
@pytest.mark.parametrize("reads", [False, True], ids=["meta", "real"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_answer_leaves_everything_as_it_was(
    name: str, reads: bool, surroundings: Callable[[], Any], calibrated: Profile
) -> None:
    with surroundings():
        model, optimizer, options = workload(reads)
        before = process_state(model, optimizer)
        FUNCTIONS[name](model, options)
        assert changed(before, process_state(model, optimizer)) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def first_answers() -> Iterator[str]:
    """What of a process has changed after each first answer, which loads what it needs for it; nothing is right."""
    model, optimizer, options = workload(reads=False)
    answers = {
        **FUNCTIONS,
        "JSON": lambda *_: placer.explain(model, batch=example(model), **options).to_json(),
        "report": lambda *_: report.render(validated(model, options), Terminal()),
    }
    if importlib.util.find_spec("jinja2"):
        answers["page"] = lambda *_: placer.explain(model, batch=example(model), **options).to_html()
    for name, answer in answers.items():
        before = process_state(model, optimizer)
        answer(model, options)
        for key in changed(before, process_state(model, optimizer)):
            yield f"{name}: {key}"


def test_the_first_answers_of_a_process_leave_everything_as_it_was(calibrated: Profile) -> None:
    """In a new one: this file, run as a program."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize(
    ("reads", "error"),
    [
        (False, RuntimeError("injected")),
        (True, KeyboardInterrupt("injected")),
    ],
    ids=["meta", "real"],
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_fault_at_any_point_leaves_everything_as_it_was(
    name: str, reads: bool, error: BaseException, calibrated: Profile
) -> None:
    model, optimizer, options = workload(reads)
    count = functions_entered(FUNCTIONS[name], model, options)
    assert count > 1000
    points = Random(f"{name} {reads} {error!r}").sample(range(1, count + 1), POINTS[name])
    reached = [inject(FUNCTIONS[name], model, optimizer, options, error, point) for point in points]
    assert sum(reached) >= 0.9 * len(points)
    # And nothing is left that would change the next answer.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert placer.choose(model, batch=example(model), move=False, **options).confidence == 1.0


def functions_entered(
    function: Callable[[nn.Module, dict[str, Any]], object], model: nn.Module, options: dict[str, Any]
) -> int:
    """How many points there are to fail at; what is done once in a process (imports, tables) is done before."""
    for _ in range(2):
        with Fault().watching() as plain:
            function(model, options)
    return plain.count


def inject(
    function: Callable[[nn.Module, dict[str, Any]], object],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    options: dict[str, Any],
    error: BaseException,
    point: int,
) -> bool:
    """Fail at one point; what comes out is a warning, a placer error or the fault itself, and nothing has changed.

    False where the point was not reached.
    """
    before = process_state(model, optimizer)
    with warnings.catch_warnings(record=True) as seen, Fault(error, point).watching() as fault:
        warnings.simplefilter("always")
        try:
            function(model, options)
        except (placer.PlacerError, type(error)) as raised:
            caused = raised is error or isinstance(raised, placer.PlacerError)
            assert caused, fault.where
    assert all(issubclass(w.category, PlacerWarning) for w in seen), fault.where
    after = process_state(model, optimizer)
    assert changed(before, after) == [], f"{fault.where}: {changed(before, after)}"
    return bool(fault.where)


if __name__ == "__main__":
    print(*first_answers(), sep="\n", end="")
