"""The answer to "where should this run?": a row a kind of machine, the best first; as text, JSON, page and labels."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from placer.decision import MANY, without_maker
from placer.errors import PlacerError
from placer.explanation import (
    kind,
    kind_mark,
    legend,
    render_page,
    workload_line,
)
from placer.pricing import Cost, Provenance
from placer.printable import printable
from placer.sections import Section, render
from placer.units import format_bytes, format_count, format_dollars, format_duration, format_interval, format_joules

#: History of the JSON format.
SCHEMA = 1
#: What bounds a step, in a word or two.
LIMITS = {
    "launches": "the host", "transfer": "copies", "arithmetic": "arithmetic", "memory": "memory",
    "waits": "waits", "loader": "the loader",
}  # fmt: skip
#: Lines of a long list that are shown, beside the Pareto set; a list that is not much longer is shown whole.
SHOWN = 20
#: So many machines in a row with the same numbers are named one by one.
_NAMED = 3
#: A word that tells the model of a data centre's GPU: T4, V100, A10G, L40S, GH200, MI300X.
_MODEL = re.compile(r"[A-Z]{1,2}\d{1,3}[A-Za-z]?(?=$|[-_])")
#: Namespace of labels that node feature discovery sets without further configuration.
NAMESPACE = "feature.node.kubernetes.io"
#: Characters that the name of a Kubernetes label has at most, and its value.
LONGEST = 63


@dataclass(frozen=True)
class FleetRow:
    """One kind of machine, and the ``cost`` of the work on the best of its devices.

    ``devices`` are the costs on all its devices, ``gpu`` is its GPU in the catalog ("" where it has none, or one that
    was calibrated). ``verdict`` says what it gives beside the best row; ``pareto``: no other row betters it in
    something without being worse in anything else. ``reaches``: whether it does within the target (None without one).
    """

    cost: Cost
    machine: str
    count: int
    devices: Mapping[str, Cost]
    gpu: str = ""
    note: str = ""
    verdict: str = ""
    pareto: bool = False
    reaches: bool | None = None

    @property
    def device(self) -> str:
        """The best of its devices."""
        return self.cost.device

    @property
    def provenance(self) -> Provenance:
        """What its numbers rest on: ``calibrated``, ``published`` or ``data sheet``."""
        return self.cost.provenance

    @property
    def seconds(self) -> float:
        """Of all steps, or all repeats of a job, where it is known how many there are; else of one."""
        return self.cost.seconds

    @property
    def dollars(self) -> float | None:
        """Of what counts; None without a price."""
        return self.cost.dollars

    @property
    def between(self) -> tuple[float, float]:
        """A 90 % interval of ``seconds``."""
        return self.cost.between

    @property
    def needed(self) -> str:
        """The memory that it needs, and of how much, where that is known."""
        available = self.cost.available_memory_bytes
        of = "" if available is None else f" of {format_bytes(available)}"
        return f"needs {format_bytes(self.cost.peak_memory_bytes)}{of}"

    @property
    def limit(self) -> str:
        """What bounds a step there; "" where that is not known."""
        return LIMITS.get(self.cost.bounded_by or "", "")

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        of_row = ("machine", "count", "gpu", "note", "device", "verdict", "pareto", "reaches")
        of_cost = (
            "step_seconds", "low", "high", "one_time_seconds", "dollars", "joules", "fits", "bounded_by", "provenance",
        )  # fmt: skip
        return {
            **{name: getattr(self, name) for name in of_row},
            **{name: getattr(self.cost, name) for name in of_cost},
            "job_seconds": self.cost.total_seconds,
            "devices": {name: asdict(device) for name, device in self.devices.items()},
        }


@dataclass(frozen=True)
class Fleet:
    """Machines for one workload or job, the best first.

    ``objective`` is time, cost or energy, ``target`` the seconds within which it should be done (None: none was
    asked for), ``unit`` what one step is called (step or job) and ``count`` how many there are (None: a long run).
    """

    rows: tuple[FleetRow, ...]
    workload: Mapping[str, Any]
    objective: str = "time"
    target: float | None = None
    unit: str = "step"
    count: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> FleetRow | None:
        """The first row, if it fits there and reaches the target."""
        first = self.rows[0] if self.rows else None
        return first if first is not None and first.cost.fits and first.reaches is not False else None

    def to_json(self) -> str:
        """Indented JSON, ending in a newline."""
        values = {
            "schema": SCHEMA,
            "rows": [row.to_dict() for row in self.rows],
            "workload": self.workload,
            "objective": self.objective,
            "target": self.target,
            "unit": self.unit,
            "count": self.count,
            "notes": self.notes,
            "best": None if self.best is None else self.best.machine,
        }
        return json.dumps(values, indent=2, allow_nan=False) + "\n"

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, width: int = 100, color: bool = False) -> str:
        """Text at most ``width`` columns wide; with ANSI codes only where ``color`` asks for them."""
        return render(self.sections(shortened=True), width=width, color=color)

    def to_html(self) -> str:
        """One page without external parts. Raises PlacerError without jinja2 or vl-convert."""
        answer, *others = self.sections()
        return render_page([answer, Section(after=[workload_line(self.workload)]), *others])

    def sections(self, *, shortened: bool = False) -> list[Section]:
        """The best machine, the table, and what its marks mean; ``shortened``: of a long list the first lines."""
        every = _lines(self.rows)
        shown = [row for number, row in enumerate(every) if number < SHOWN or _mark(self, row) == "* "]
        if not shortened or len(shown) + SHOWN // 4 >= len(every):
            shown = every
        heads, cells = _columns(self, shown)
        left = [number for number, head in enumerate(heads) if head in ("on", "verdict")]
        more = f"… and {len(every) - len(shown):,} more (--format json shows all)"
        return [
            Section(_headline(self), after=_details(self)),
            Section(heads=heads, rows=cells, strong=[0] if self.best else [], left=left),
            Section(after=[more] if len(shown) < len(every) else []),
            Section(after=_remarks(self, shown)),
            Section(items=self.notes),
        ]

    def to_nfd(self) -> str:
        """Labels for the node that runs it, as a file of node feature discovery's local feature source.

        Lines and comments are those of NFD, "Customization guide", names and values those of Kubernetes, "Labels and
        Selectors". Times are whole microseconds, as the node affinity operators Gt and Lt compare integers. Raises
        ValueError for several machines: a file is about the node it is on.
        """
        if len(self.rows) > 1:
            raise ValueError(f"nfd labels one node, the one it runs on: compare one machine, not {len(self.rows)}")
        row = self.rows[0]
        facts = {"device": row.device}
        for key, seconds in zip(("us", "low-us", "high-us"), (row.seconds, *row.between), strict=True):
            facts[key] = str(max(round(seconds * 1e6), 1))
        facts |= {"numbers": kind(row.cost), "fits": str(row.cost.fits).lower()}
        name = _label(str(self.workload.get("target", "model")), LONGEST - len("placer..numbers"))
        lines = [f"# placer: {_what(self)} on {_called(row)}; times in microseconds"]
        lines += [f"{NAMESPACE}/placer.{name}.{key}={_label(value, LONGEST)}" for key, value in facts.items()]
        return "\n".join(lines) + "\n"

    def to_slurm(self) -> str:
        """The ``#SBATCH`` lines of a batch script for the best machine: ``--gres=gpu:<type>:1``, or nothing for a CPU.

        Types are what sites usually call their GPUs in gres.conf: ``rtx_4090`` for an NVIDIA GeForce RTX 4090. Raises
        PlacerError where no machine does it.
        """
        best = self.best
        if best is None:
            raise PlacerError(f"no machine to ask Slurm for: {_called(self.rows[0])}: {self.rows[0].verdict}")
        time = f"{format_duration(best.seconds)} {'in all' if self.count is not None else f'a {self.unit}'}"
        between = format_interval(*best.between, best.seconds)
        lines = [f"# placer: {_what(self)} on {best.device} of {_called(best)}: {time}, 90% between {between}"]
        if best.device == "cpu":
            return "\n".join([*lines, "# No GPU is needed: no --gres."]) + "\n"
        gres = re.sub(r"[^a-z0-9]+", "_", _short_gpu(best.gpu).lower()).strip("_")
        lines.append("# The type of the GPU is the site's own name: sinfo -o %G lists them.")
        lines.append(f"#SBATCH --gres=gpu:{gres}:1" if gres else "#SBATCH --gres=gpu:1")
        return "\n".join(lines) + "\n"


# --- names ------------------------------------------------------------------------------------------------------------


def _lines(rows: Sequence[FleetRow]) -> list[FleetRow]:
    """The rows under names for people; one for all in a row whose numbers are the same, where these are many."""
    lines: list[FleetRow] = []
    for _, group in groupby(rows, key=lambda row: (row.devices, row.device)):
        alike = list(group)
        if len(alike) > _NAMED:
            name = f"{sum(row.count for row in alike):,} like {_called(alike[0])}"
            lines.append(replace(alike[0], machine=name))
            continue
        for row in alike:
            count = f"{row.count:,} × " if row.count > 1 else ""
            lines.append(replace(row, machine=f"{count}{_called(row)}"))
    return lines


def _called(row: FleetRow) -> str:
    """A machine's name, with its GPU where the name does not tell it; that of a GPU without its maker.

    What cannot be printed is replaced: a line end in a name must not begin a line of a batch script.
    """
    if row.machine == row.gpu:
        return without_maker(row.machine)
    gpu, name = _short_gpu(row.gpu), str(printable(row.machine))
    return f"{name} ({gpu})" if gpu and gpu.lower() not in name.lower() else name


def _short_gpu(gpu: str) -> str:
    """What people call a GPU: ``T4`` for a Tesla T4, ``RTX 4090`` for an NVIDIA GeForce RTX 4090."""
    return next((model[0] for word in gpu.split() if (model := _MODEL.match(word))), without_maker(gpu))


def _what(fleet: Fleet) -> str:
    name = str(printable(fleet.workload.get("target", "model")))
    return name if fleet.count is None else f"{_of_how_many(fleet)} of {name}"


def _label(text: str, longest: int) -> str:
    """Text as the name or the value of a label may be."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:longest].strip("-_.") or "model"


# --- sentences and cells ----------------------------------------------------------------------------------------------


def _of_how_many(fleet: Fleet) -> str:
    """``1,000 steps``, or ``a million steps`` of a long run."""
    return f"a million {fleet.unit}s" if fleet.count is None else format_count(fleet.count, fleet.unit)


def _many(fleet: Fleet) -> int:
    """Steps that money and energy are told of: all, or a million of a long run, where one costs next to nothing."""
    return 1 if fleet.count is not None else MANY


def _money(fleet: Fleet, row: FleetRow) -> str:
    return "-" if row.dollars is None else format_dollars(row.dollars * _many(fleet))


def _has_prices(fleet: Fleet) -> bool:
    return any(row.dollars is not None for row in fleet.rows)


def _mark(fleet: Fleet, row: FleetRow) -> str:
    """Stands beside the machines of the Pareto set, where something besides time is known."""
    if not (_has_prices(fleet) or fleet.objective == "energy"):
        return ""
    return "* " if row.pareto else "  "


def _headline(fleet: Fleet) -> str:
    """Where it should run, in a sentence."""
    best, first = fleet.best, fleet.rows[0]
    if not first.cost.fits:
        return f"it fits nowhere; {first.device} of {_called(first)} {first.needed}"
    if best is None:
        return f"no machine reaches the target; closest: {first.device} of {_called(first)}, {first.verdict}"
    of = f"a {fleet.unit}" if fleet.count is None else f"for {_of_how_many(fleet)}"
    money = "" if best.dollars is None else f", {_money(fleet, best)}{' a million' * (fleet.count is None)}"
    return f"{best.device} of {_called(best)}: {best.verdict}, {format_duration(best.seconds)} {of}{money}"


def _details(fleet: Fleet) -> list[str]:
    """What bounds a step on the first machine; what the target is compared with, and how many machines reach it."""
    details = []
    if fleet.best is not None and fleet.best.limit:
        details.append(f"A {fleet.unit} there is bounded by {fleet.best.limit}.")
    if fleet.target is not None:
        what = f"one {fleet.unit}" if fleet.count is None else _of_how_many(fleet)
        reach = sum(row.count for row in fleet.rows if row.reaches and row.cost.fits)
        machines = f"{reach:,} of {sum(row.count for row in fleet.rows):,} machines reach it"
        details.append(f"Target: {format_duration(fleet.target)} for {what}; {machines}.")
    return details


def _columns(fleet: Fleet, shown: Sequence[FleetRow]) -> tuple[list[str], list[list[str]]]:
    """The heads of the columns, and the cells of every line. Times are in all, where the number of steps is known."""
    priced, power = _has_prices(fleet), fleet.objective == "energy"
    per = "" if fleet.count is not None else " of 1M"
    heads = ["  machine" if priced or power else "machine", "on", fleet.unit if fleet.count is None else "in all"]
    heads += ["90% between", *([f"money{per}"] * priced), *([f"energy ~{per}"] * power), "verdict"]
    cells = []
    for row in shown:
        name = f"{_mark(fleet, row)}{row.machine} {kind_mark(row.cost)}".rstrip()
        line = [name, row.device, format_duration(row.seconds), format_interval(*row.between, row.seconds)]
        if priced:
            line.append(_money(fleet, row))
        if power:
            joules = row.cost.joules
            line.append("-" if joules is None else format_joules(joules * _many(fleet)))
        cells.append([*line, row.verdict])
    return heads, cells


def _remarks(fleet: Fleet, shown: Sequence[FleetRow]) -> list[str]:
    """What the marks, the money and the energy mean."""
    remarks, power = [], fleet.objective == "energy"
    dimensions = ["time", *(["money"] if _has_prices(fleet) else []), *(["energy"] if power else [])]
    if len(dimensions) > 1:
        remarks.append(f"* no other machine is better in {', '.join(dimensions[:-1])} and {dimensions[-1]} together.")
    remarks += legend(row.cost for row in shown)
    if power:
        remarks.append("Energy (~) is an estimate from data sheets and predicted use, not a measurement.")
    return remarks
