"""Run as a program: everything placer answers, for the first time in a process, when it loads what it needs for it.

Prints what of the process has changed after each; nothing is right.
"""

from __future__ import annotations

import importlib.util
import io

from pictures import same
from process_state import process_state
from ticking import Clock
from torch import nn, ones, optim, randn

import placer
from placer import profile as profiles
from placer.calibration.suite import Entry
from placer.calibration.validation import report as report_text
from placer.calibration.validation.run import validate


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def train() -> None:
    """What torch loads for the first step of an optimizer (sympy, and its filter of warnings) is not placer's doing."""
    model = nn.Linear(4, 2)
    optimizer = optim.Adam(model.parameters())
    model(ones(3, 4)).sum().backward()
    optimizer.step()


def main() -> None:
    model, known = nn.Linear(4, 2), profiles.load()
    entry = Entry("small", "mlp", lambda: nn.Linear(4, 2), lambda n: randn(n, 4), (3,))
    answers = {
        "choose": lambda: placer.choose(model, (8, 4), devices=["cpu"], move=False),
        "explain": lambda: placer.explain(model, (8, 4), devices=["cpu"]),
        "text": lambda: placer.explain(model, (8, 4), devices=["cpu"]).to_text(),
        "json": lambda: placer.explain(model, (8, 4), devices=["cpu"]).to_json(),
        "validate": lambda: report_text.render(
            validate([entry], known, ["cpu"], threads=(1,), rounds=3, time_limit_per_cell=1.0, clock=Clock()),
            Terminal(),
        ),
    }
    if importlib.util.find_spec("jinja2"):
        answers["html"] = lambda: placer.explain(model, (8, 4), devices=["cpu"]).to_html()
    for name, answer in answers.items():
        if name == "validate":
            train()
        before = process_state(model)
        answer()
        after = process_state(model)
        if changed := sorted(key for key in before if not same(before[key], after[key])):
            print(name, *changed)


if __name__ == "__main__":
    main()
