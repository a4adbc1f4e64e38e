"""Published accounts of "CPU or GPU?" beside what placer says of them: one table, and how many it decides right.

Nothing is run. What was reported is read from the collection of accounts; what was computed is rebuilt in
``placer.calibration.lab.suite.accounts``, traced, and priced on the account's hardware or a stand-in.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Literal

from placer.calibration.lab.suite.accounts import Account, Point, Side, hosts
from placer.calibration.lab.suite.accounts import accounts as rebuilt
from placer.calibration.lab.validators.rows import report
from placer.calibration.validation.cells import priced_on
from placer.calibration.validation.compare import group_by
from placer.calibration.validation.run import say
from placer.calibration.validation.table import Table
from placer.decision import Decision, decide, total, traced_step
from placer.errors import PlacerError
from placer.pricing import Cost, Prediction, gpu_profile
from placer.profile import find_gpu
from placer.tracing import trace_here

#: A reported margin from which on an account is clear. Below it, who won depends on the day.
CLEAR = 1.3

COLUMNS = ("account", "point", "hardware", "reported", "predicted", "90 % interval", "won", "placer says", "verdict")
Verdict = Literal["right", "wrong", "tie", "near"]


@dataclass(frozen=True)
class Judged:
    """A point of an account, priced: ``ratio`` is the predicted speed-up by the GPU, ``low`` to ``high`` its 90 %.

    ``reported`` is the speed-up that the account reported.
    """

    account: Account
    point: Point
    hardware: str
    cpu: Cost
    gpu: Cost
    ratio: float
    low: float
    high: float
    decision: Decision
    reported: float

    @property
    def won(self) -> str:
        return "GPU" if self.reported > 1.0 else "CPU"

    @property
    def said(self) -> str:
        """Who placer says wins; ``"tie"`` where it does not say."""
        return "tie" if self.decision.tie else "CPU" if self.decision.device == "cpu" else "GPU"

    @property
    def verdict(self) -> Verdict:
        """``"near"`` where the account itself is not clear; else whether placer says who won."""
        if max(self.reported, 1.0 / self.reported) < CLEAR:
            return "near"
        return "tie" if self.said == "tie" else "right" if self.said == self.won else "wrong"


def validate_accounts(accounts: str | Path, output: Path | None = None) -> int:
    """Price every account that is rebuilt, print the table and the summary; returns the exit code.

    ``accounts`` is the collection of what was reported. ``output`` gets both as Markdown. The exit code is 1 if not one
    point can be priced. Raises PlacerError if ``accounts`` is no such file.
    """
    judged = list(judge(rebuilt(), read_reported(Path(accounts))))
    table = Table("Published accounts", COLUMNS, tuple(map(row, judged)))
    return report(judged, [table, "", *(f"- {line}" for line in summary(judged))], output, (0, 1, 2, 6, 7, 8))


def read_reported(path: Path) -> dict[tuple[str, str], float]:
    """Reported speed-ups by the GPU, by account and point. Raises PlacerError."""
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return {(r["id"], p["at"]): float(p["gpu_speedup"]) for r in records for p in r["points"]}
    except OSError as error:
        raise PlacerError(f"no accounts in {path}: {error.strerror}; give the file accounts.jsonl") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PlacerError(
            f"{path} is no collection of accounts: a line of it is no account with id and points ({error!r}); give the "
            "file accounts.jsonl"
        ) from error


def judge(accounts: Sequence[Account], reported: Mapping[tuple[str, str], float]) -> Iterator[Judged]:
    """Each point that the collection tells of, priced. What is left out is said, with the reason."""
    for account in accounts:
        for point in account.points:
            if (account.id, point.at) not in reported:
                say(f"{account.id}, {point.at}: not in the collection")
                continue
            try:
                yield price_point(account, point, reported[account.id, point.at])
            except (PlacerError, ImportError) as error:
                say(f"{account.id}, {point.at}: {error}")


def price_point(account: Account, point: Point, reported: float) -> Judged:
    """Trace and price every step of a point. Raises PlacerError where one cannot be traced or priced."""
    host = hosts()[point.cpu or account.cpu]
    by_side = {"cpu": host, "gpu": hosts()[point.gpu_host] if point.gpu_host else host}
    sheet = find_gpu(point.gpu or account.gpu)
    times: dict[Side, list[tuple[float, Prediction]]] = {"cpu": [], "gpu": []}
    for step in point.steps:
        part = step.part()
        traced = traced_step(part.workload, trace_here(part.workload))
        for side in step.counted:
            of_side = by_side[side]
            profile = of_side.profile()
            if side == "gpu" and not step.on_host:
                profile = gpu_profile(sheet.name, profile)
            times[side].append((part.count, priced_on(traced, profile, profile.devices()[0], of_side.cores)))
    cpu = total(times["cpu"])
    gpu = total(times["gpu"])
    spread = math.exp(0.5 * math.hypot(math.log(cpu.high / cpu.low), math.log(gpu.high / gpu.low)))
    ratio = cpu.step_seconds / gpu.step_seconds
    decision = decide({"cpu": cpu, "cuda": gpu}, None)
    hardware = f"{host.name}, {sheet.name.removeprefix('NVIDIA ').removeprefix('GeForce ')}"
    return Judged(account, point, hardware, cpu, gpu, ratio, ratio / spread, ratio * spread, decision, reported)


def row(judged: Judged) -> tuple[str, ...]:
    """A point under ``COLUMNS``. An asterisk marks hardware of which a part is a stand-in."""
    account, hardware = judged.account, judged.hardware + " *" * bool(judged.account.assumed)
    interval = f"{_times(judged.low)} to {_times(judged.high)}"
    return (
        account.id,
        judged.point.at,
        hardware,
        _times(judged.reported),
        _times(judged.ratio),
        interval,
        judged.won,
        judged.said,
        judged.verdict,
    )


def summary(judged: Sequence[Judged]) -> Iterator[str]:
    """How many clear points, and how many accounts with a clear point, are decided right."""
    clear = [j for j in judged if j.verdict != "near"]
    count = Counter(j.verdict for j in clear)
    by_account = group_by(clear, attrgetter("account.id"))
    whole, right = len(by_account), 0
    for group in by_account.values():
        right += all(j.verdict == "right" for j in group)
    yield (
        f"points with a margin of {CLEAR:g}x or more: {count['right']} of {len(clear)} right"
        f"{_share(count['right'], len(clear))}, {count['tie']} called a tie, {count['wrong']} wrong"
    )
    yield f"accounts with such a point: all of them right in {right} of {whole}{_share(right, whole)}"
    yield f"points below that margin: {len(judged) - len(clear)}"


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.0%})" if whole else ""


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10.0 else f"{ratio:.0f}x"
