"""Published accounts of "CPU or GPU?" beside what placer says of them: one table, and how many it decides right.

Nothing is run. What was reported is read from the collection of accounts; what was computed is rebuilt in
``placer.calibration.suite.accounts``, traced, and priced on the account's hardware or a stand-in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from placer.calibration.suite.accounts import Account, accounts
from placer.calibration.validation import table
from placer.calibration.validation.accounts_pricing import PricedPoint, price_point
from placer.errors import PlacerError

#: A reported margin from which on an account is clear. Below it, who won depends on the day.
CLEAR = 1.3

COLUMNS = ("account", "point", "hardware", "reported", "predicted", "90 % interval", "won", "placer says", "verdict")
Verdict = Literal["right", "wrong", "tie", "near"]


@dataclass(frozen=True)
class Judged:
    """A priced point and the speed-up by the GPU that its account reported."""

    priced: PricedPoint
    reported: float

    @property
    def won(self) -> str:
        """Who won, as reported."""
        return "GPU" if self.reported > 1.0 else "CPU"

    @property
    def said(self) -> str:
        """Who placer says wins; ``"tie"`` where it does not say."""
        decision = self.priced.decision
        return "tie" if decision.tie else "CPU" if decision.device == "cpu" else "GPU"

    @property
    def verdict(self) -> Verdict:
        """``"near"`` where the account itself is not clear; else whether placer says who won."""
        if max(self.reported, 1.0 / self.reported) < CLEAR:
            return "near"
        return "tie" if self.said == "tie" else "right" if self.said == self.won else "wrong"


def validate_accounts(
    collection: str | Path, *, output: Path | None = None, say: Callable[[str], Any] = lambda _: None,
    stream: TextIO | None = None,
) -> int:  # fmt: skip
    """Price every account that is rebuilt, print the table and the summary; returns the exit code.

    ``output`` gets both as Markdown. The exit code is 1 if not one point can be priced. Raises PlacerError if
    ``collection`` is no such file.
    """
    reported = read_reported(Path(collection))
    judged = list(judge(accounts(), reported, say))
    table.present(_table(judged), summary(judged), stream)
    table.write_lines(markdown(judged), output)
    return 0 if judged else 1


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


def judge(
    rebuilt: Sequence[Account], reported: Mapping[tuple[str, str], float], say: Callable[[str], Any] = lambda _: None
) -> Iterator[Judged]:
    """Each point that the collection tells of, priced. What is left out is said, with the reason."""
    for account in rebuilt:
        for point in account.points:
            if (account.id, point.at) not in reported:
                say(f"{account.id}, {point.at}: not in the collection")
                continue
            try:
                priced = price_point(account, point)
            except (PlacerError, ImportError) as error:
                say(f"{account.id}, {point.at}: {error}")
                continue
            yield Judged(priced, reported[account.id, point.at])


def row(judged: Judged) -> tuple[str, ...]:
    """A point under ``COLUMNS``. An asterisk marks hardware of which a part is a stand-in."""
    priced = judged.priced
    return (
        priced.account.id, priced.point.at, priced.hardware + (" *" if priced.account.stand_in else ""),
        _times(judged.reported), _times(priced.ratio), f"{_times(priced.low)} to {_times(priced.high)}",
        judged.won, judged.said, judged.verdict,
    )  # fmt: skip


def markdown(judged: Sequence[Judged]) -> Iterator[str]:
    """The table and the summary for a page."""
    return table.markdown(_table(judged), summary(judged), "|---|---|---|--:|--:|--:|---|---|---|")


def _table(judged: Sequence[Judged]) -> table.Table:
    return table.Table("Published accounts", COLUMNS, tuple(map(row, judged)))


def summary(judged: Sequence[Judged]) -> Iterator[str]:
    """How many clear points, and how many accounts with a clear point, are decided right."""
    clear = [j for j in judged if j.verdict != "near"]
    by_account: dict[str, list[Judged]] = {}
    for j in clear:
        by_account.setdefault(j.priced.account.id, []).append(j)
    right = sum(all(j.verdict == "right" for j in group) for group in by_account.values())
    yield (
        f"points with a margin of {CLEAR:g}x or more: {_count(clear, 'right')} of {len(clear)} right"
        f"{_share(_count(clear, 'right'), len(clear))}, {_count(clear, 'tie')} called a tie, "
        f"{_count(clear, 'wrong')} wrong"
    )
    count = len(by_account)
    yield f"accounts with such a point: all of them right in {right} of {count}{_share(right, count)}"
    yield f"points below that margin: {len(judged) - len(clear)}"


def _count(judged: Sequence[Judged], verdict: Verdict) -> int:
    return sum(j.verdict == verdict for j in judged)


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.0%})" if whole else ""


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10.0 else f"{ratio:.0f}x"
