"""Writes the figures of README.md and docs/ that rest on records: ``python docs/figures.py`` (``--check`` compares).

Every record is predicted by the code as it is and compared with what was measured then, as ``placer validate
--against`` does; nothing is measured here. It takes some five minutes. What the figures of a page's row are is written
down here, once; the words around them stand on the page.
"""

from __future__ import annotations

import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path

from placer.calibration.lab.published import shared
from placer.calibration.lab.validators.reference import reference_tables, what_if_tables
from placer.calibration.lab.validators.suites import entries_of, estimate_for
from placer.calibration.validation import record
from placer.calibration.validation.cells import priced_cells, traced_network, unpredicted
from placer.calibration.validation.compare import (
    Score,
    as_the_smallest_batch,
    baseline_scores,
    group_by,
    larger_batches,
    repeatability_score,
    score,
)
from placer.calibration.validation.decisions import FEW_PARAMETERS, decisions, thread_decisions
from placer.calibration.validation.record import Cell, Report, thread_count
from placer.calibration.validation.run import profile_for
from placer.calibration.validation.table import Table
from placer.profile import Profile

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "calibration" / "records"
README, ACCURACY = ROOT / "README.md", ROOT / "docs" / "accuracy.md"
USUAL_ERRORS = ROOT / "placer" / "explanation" / "accuracy.py"
REFERENCE = ROOT / "docs" / "dev" / "reference-systems.md"


#: A machine of a class that no profile, network or number was fitted to.
NEVER_MET = "cpu-amd-zen5-2-core"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class Replay:
    """A file of measurements, and what predicts it: its own calibration, an estimate, or ``by``.

    That is a GPU of the catalog, or the journal of another calibration of the same machine.

    ``row`` begins the row of docs/accuracy.md that has its errors.
    """

    path: str
    row: str
    estimated: bool = False
    by: str | Path | None = None

    def report(self) -> Report:
        return record.load(RECORDS / self.path)

    def profile(self) -> Profile:
        own = profile_for(self.report(), RECORDS / self.path, self.by)
        return estimate_for(own) if self.estimated else own


@dataclass(frozen=True)
class GpuRecord:
    """A machine with a GPU: calibrated, and from what others published of it."""

    name: str
    folder: str
    calibrated: Replay
    published: Replay


def _gpu_record(name: str, folder: str, gpu: str) -> GpuRecord:
    path = f"{folder}/measurements.json"
    return GpuRecord(
        name, folder, Replay(path, f"| {name}, calibrated |"),
        Replay(path, f"| {name}, from what others published |", by=gpu),
    )  # fmt: skip


CALIBRATED = (
    Replay("cpu-2-core/measurements.json", "| `cpu-2-core` | AMD EPYC, AVX2 |"),
    Replay("cpu-avx512-2-core/measurements.json", "| `cpu-avx512-2-core` | AMD EPYC, AVX-512, contended |"),
    Replay("cpu-avx512-2-core-calm/measurements.json",
           "| `cpu-avx512-2-core-calm` | another of that class, quiet at times |"),
    Replay("cpu-avx512-2-core-november/measurements.json",
           "| `cpu-avx512-2-core-november` | another of that class |"),
    Replay("cpu-intel-avx512-2-core/measurements.json",
           "| `cpu-intel-avx512-2-core` | Intel Xeon, AVX-512, from the shipped profile |"),
    Replay(f"{NEVER_MET}/measurements.json", f"| `{NEVER_MET}` | AMD EPYC of a class that nothing was fitted to |"),
    Replay(f"{NEVER_MET}/measurements.json", f"| `{NEVER_MET}`, second calibration | the same, minutes later |",
           by=RECORDS / NEVER_MET / "second_calibration.journal.xz"),
    Replay(f"{NEVER_MET}/measurements.json", f"| `{NEVER_MET}`, third calibration | the same, minutes later |",
           by=RECORDS / NEVER_MET / "third_calibration.journal.xz"),
)  # fmt: skip
ESTIMATED = (
    Replay("cpu-2-core/measurements.json", "| `cpu-2-core` | AMD EPYC, AVX-512 |", estimated=True),
    Replay("cpu-avx512-2-core/measurements.json", "| `cpu-avx512-2-core` (contended) | AMD EPYC, AVX2 |",
           estimated=True),
    Replay("cpu-avx512-2-core-calm/measurements.json", "| `cpu-avx512-2-core-calm` | AMD EPYC, AVX2 |",
           estimated=True),
    Replay("cpu-intel-avx512-2-core/measurements.json", "| `cpu-intel-avx512-2-core` | AMD EPYC, AVX-512 |",
           estimated=True),
    Replay(f"{NEVER_MET}/measurements.json", f"| `{NEVER_MET}` | AMD EPYC, AVX-512 |", estimated=True),
)  # fmt: skip
HELD_OUT = (
    Replay("cpu-avx512-2-core-november/held_out.json",
           "| `held_out.json` of `...-november` | 158 networks drawn at random, that no fit ever saw |"),
    Replay(f"{NEVER_MET}/held_out.json", "| `held_out.json` of `cpu-amd-zen5-2-core` | 160 of these networks |"),
)  # fmt: skip
THREADS = Replay("cpu-avx512-2-core/threads.json", "")
#: The reference systems on the CPU that their cards are put beside.
SYSTEMS = Replay("cpu-intel-avx512-2-core/reference.json", "")
GPUS = (
    _gpu_record("H100", "nvidia-h100-80gb-hbm3-16-core", "NVIDIA H100 80GB HBM3"),
    _gpu_record("H200", "nvidia-h200-16-core", "NVIDIA H200"),
    _gpu_record("second H200", "nvidia-h200-16-core-second", "NVIDIA H200"),
)
#: Records that users shared: every file that lies there.
SHARED = tuple(Replay(path.name, "") for path in shared.files(RECORDS))
ALL = (
    *CALIBRATED, *ESTIMATED, *HELD_OUT, THREADS, SYSTEMS,
    *(gpu.calibrated for gpu in GPUS), *(gpu.published for gpu in GPUS), *SHARED,
)  # fmt: skip
Predicted = Mapping[Replay, Sequence[Cell]]


def predicted(replays: Iterable[Replay], say: Callable[[str], object] = lambda _: None) -> Predicted:
    """The cells of each record, predicted anew. A step that several records measured is traced once."""
    reports = {replay: replay.report() for replay in replays}
    profiles = {replay: replay.profile() for replay in reports}
    cells = [cell for report in reports.values() for cell in report.cells]
    entries = entries_of(cells)
    found: dict[Replay, list[Cell]] = defaultdict(list)
    for network, measured in group_by(cells, attrgetter("network")).items():
        say(network)
        entry = entries[network]
        traced = None if entry.missing() else traced_network(entry, measured)
        for replay, report in reports.items():
            here = [cell for cell in report.cells if cell.network == network]
            if traced is None:
                found[replay] += [unpredicted(cell, f"not installed: {', '.join(entry.missing())}") for cell in here]
            else:
                found[replay] += priced_cells(here, traced, profiles[replay])
    return found


@dataclass(frozen=True)
class Figures:
    """What stands on a page in place of what ``pattern`` finds there, which has to be there."""

    page: Path
    pattern: str
    text: str

    def written(self, content: str) -> str:
        """The page with these figures. Raises SystemExit where it has no place for them."""
        new, count = re.subn(self.pattern, lambda _: self.text, content, flags=re.MULTILINE)
        if count != 1:
            raise SystemExit(f"{self.page.relative_to(ROOT)}: {count} places for {self.text.splitlines()[0]!r}")
        return new


def row(page: Path, begins: str, *cells: str) -> Figures:
    """The cells that follow those a row of a table begins with; any after them stay."""
    text = begins + "".join(f" {cell} |" if cell else " |" for cell in cells)
    return Figures(page, rf"^{re.escape(begins)}(?: [^|\n]*\|){{{len(cells)}}}", text)


def usual_error(replay: Replay, found: Score) -> Figures:
    """The errors by which ``explain`` says how far off predictions usually are: those of the record's row."""
    names = re.findall(r'Record\("([^"]+)"', USUAL_ERRORS.read_text(encoding="utf-8"))
    name = next(name for name in names if replay.row.startswith(f"| {name}"))
    text = f'Record("{name}", {found.median_error:.2f}, {found.p90_error:.2f})'
    return Figures(USUAL_ERRORS, rf'Record\("{re.escape(name)}", [\d.]+, [\d.]+\)', text)


def figures(found: Predicted) -> Iterator[Figures]:
    """All that can be said of the records that were predicted; what sums several up only where all of them were."""
    for replay in CALIBRATED:
        if replay in found:
            yield from calibrated_cpu(replay, found[replay])
    for replay in ESTIMATED:
        if replay in found:
            reached = score(found[replay])
            yield row(ACCURACY, replay.row, _errors(reached), _whole(reached.inside))
            yield usual_error(replay, reached)
    for replay in HELD_OUT:
        if replay in found:
            reached, repeats = score(found[replay]), _errors(repeatability_score(found[replay]))
            yield row(ACCURACY, replay.row, _errors(reached), _whole(reached.inside), "", "", repeats)
    if THREADS in found:
        yield thread_choices(found[THREADS])
    if SYSTEMS in found:
        yield predicted_reference_systems()
    for gpu in GPUS:
        if gpu.calibrated in found:
            yield from calibrated_gpu(gpu, found[gpu.calibrated])
        if gpu.published in found:
            yield from gpu_row(gpu.published, found[gpu.published])
    if all(replay in found for replay in SHARED):
        yield shared_records(SHARED, found)
    if all(replay in found for replay in ALL):
        yield from in_all(found)


def calibrated_cpu(replay: Replay, cells: Sequence[Cell]) -> Iterator[Figures]:
    """A calibrated CPU beside simpler rules and its own repeats."""
    reached, others = score(cells), baseline_scores(cells)
    yield row(
        ACCURACY, replay.row, _errors(reached), _whole(reached.inside), _errors(others["isolated_sum"]),
        _errors(others["roofline"]), _errors(repeatability_score(cells)),
    )  # fmt: skip
    yield usual_error(replay, reached)


def thread_choices(cells: Sequence[Cell]) -> Figures:
    """Wrong choices between one thread and two."""
    rows = {found.rule: found for found in thread_decisions(cells)}
    placer, two, one = (rows[rule] for rule in ("placer", "always all threads", "always 1 thread"))
    return Figures(
        ACCURACY, r'placer is wrong in \d+ of \d+ steps,\s"always two" in \d+, "always one" in \d+',
        f'placer is wrong in {placer.wrong} of {placer.scenarios} steps,\n"always two" in {two.wrong}, '
        f'"always one" in {one.wrong}',
    )  # fmt: skip


def calibrated_gpu(gpu: GpuRecord, cells: Sequence[Cell]) -> Iterator[Figures]:
    """A calibrated GPU, the CPU beside it, its larger batches, and the reference systems there."""
    yield from gpu_row(gpu.calibrated, cells)
    on_cpu, on_gpu = _on_cpu(cells), _on_gpu(cells)
    yield row(ACCURACY, f"| CPU beside the {gpu.name}, 16 threads |", *_gpu_cells(on_cpu))
    larger = [cell for _, cell in larger_batches(on_gpu)]
    yield row(
        ACCURACY, f"| {gpu.name}, larger batches |", str(len(larger)), _errors(score(larger)),
        _errors(as_the_smallest_batch(on_gpu)),
    )  # fmt: skip
    yield measured_reference_systems(gpu, cells)


def gpu_row(replay: Replay, cells: Sequence[Cell]) -> Iterator[Figures]:
    """A GPU's steps, and what ``explain`` says of its like."""
    on_gpu = _on_gpu(cells)
    yield row(ACCURACY, replay.row, *_gpu_cells(on_gpu))
    yield usual_error(replay, score(on_gpu))


def shared_records(replays: Iterable[Replay], found: Predicted) -> Figures:
    """A row for each device and number of threads of each record that a user shared."""
    rows = []
    for replay in replays:
        report, profile = replay.report(), replay.profile()
        accelerators = {facts["device"]: facts["name"] for facts in report.fingerprint["accelerators"]}
        for (device, threads), cells in group_by(found[replay], attrgetter("device", "threads")).items():
            reached, estimated = score(cells), profile.fit(device, threads).estimated
            by = "an estimate" if estimated else f"its calibration of {profile.seconds:.0f} s"
            name = accelerators.get(device, f"{report.fingerprint['cpu']}, {thread_count(threads)}")
            what = f"`{replay.path}`", name, f"{report.placer}, {report.fingerprint['torch']}", by, str(reached.rows)
            repeats = _errors(repeatability_score(cells))
            rows.append((*what, _errors(reached), _whole(reached.inside), repeats))
    columns = ("record", "device", "placer, torch", "predicted by", "steps", "placer", "in interval", "repeats within")
    if rows:
        return _systems("shared", [Table("", columns, tuple(rows))], (0, 1, 2, 3), page=ACCURACY)
    return _systems("shared", ["none was shared yet"], (), page=ACCURACY)


def predicted_reference_systems() -> Figures:
    """The reference systems on the accounts' own hardware, and on a T4 beside the CPU of the record."""
    tables = what_if_tables(SYSTEMS.report(), SYSTEMS.profile(), ())
    return _systems("predicted", tables, (0, 1, 6, 8, 10, 11, 12), titles=True)


def measured_reference_systems(gpu: GpuRecord, cells: Sequence[Cell]) -> Figures:
    """The reference systems as they were measured on a machine, claim by claim."""
    return _systems(f"measured: {gpu.folder}", reference_tables(cells), (0, 1, 8, 9, 10, 11, 12, 13))


def _systems(
    what: str, items: Iterable[Table | str], words: Sequence[int], *, titles: bool = False, page: Path = REFERENCE
) -> Figures:
    """Tables, and lines below them, between two marks; columns of ``words`` stand on the left."""
    lines: list[str] = []
    for item in items:
        if isinstance(item, Table):
            lines += ["", f"{item.title}:", ""] if titles else []
            lines += item.markdown(words)
        else:
            lines += ["", f"{item[0].upper()}{item[1:]}."]
    begin, end = f"<!-- {what} -->\n", "<!-- end -->"
    text = begin + "\n".join([*lines, end])
    return Figures(page, rf"{re.escape(begin)}(?:.|\n)*?{re.escape(end)}", text)


def in_all(found: Predicted) -> Iterator[Figures]:
    """The rows of README.md, and the choices of all rules side by side."""
    for begins, replays in (("| CPU, after a minute of calibration |", CALIBRATED),
                            ("| CPU, before any calibration |", ESTIMATED)):  # fmt: skip
        scores = [score(found[replay]) for replay in replays]
        medians, most = [s.median_error for s in scores], [s.p90_error for s in scores]
        yield row(README, begins, *(f"{_number(min(v))} to {_whole(max(v))}" for v in (medians, most)))
    for begins, replays in (("| GPU, from what others published |", [gpu.published for gpu in GPUS]),
                            ("| GPU, after a calibration |", [gpu.calibrated for gpu in GPUS])):  # fmt: skip
        scores = [score(_on_gpu(found[replay])) for replay in replays]
        yield row(README, begins, _listed(s.median_error for s in scores), _listed(s.p90_error for s in scores))
    by_rule: dict[str, list[str]] = defaultdict(list)
    for gpu in GPUS:
        known = {judged.rule: judged.wrong for judged in decisions(found[gpu.calibrated])}
        known["published"] = decisions(found[gpu.published])[0].wrong
        for rule, wrong in known.items():
            by_rule[rule].append(str(wrong))
    for begins, rule in (
        ("| placer, calibrated |", "placer"), ("| placer, the GPU from what others published |", "published"),
        ("| always the GPU |", "always cuda"), ("| always the CPU |", "always cpu"),
        (f"| the CPU below {FEW_PARAMETERS:,} parameters, else the GPU |", f"cpu below {FEW_PARAMETERS:,} parameters"),
    ):  # fmt: skip
        yield row(ACCURACY, begins, *by_rule[rule], str(sum(map(int, by_rule[rule]))))


def _on_cpu(cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.device == "cpu"]


def _on_gpu(cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.device != "cpu"]


def _gpu_cells(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Steps, errors, bias, share in the interval, and repeats: the columns of the table of GPUs."""
    reached, repeats = score(cells), repeatability_score(cells)
    return (
        str(reached.rows), _errors(reached), f"{math.exp(reached.bias):.2f}", _whole(reached.inside), _errors(repeats)
    )  # fmt: skip


def _number(share: float) -> str:
    return f"{100 * share:.0f}"


def _whole(share: float) -> str:
    return f"{_number(share)} %"


def _errors(found: Score) -> str:
    return f"{_number(found.median_error)} / {_whole(found.p90_error)}"


def _listed(shares: Iterable[float]) -> str:
    *first, last = map(_number, shares)
    return f"{', '.join(first)} and {last} %"


def rewritten(some: Iterable[Figures]) -> dict[Path, str]:
    """The content of each page with its figures."""
    pages: dict[Path, str] = {}
    for each in some:
        content = pages.get(each.page) or each.page.read_text(encoding="utf-8")
        pages[each.page] = each.written(content)
    return pages


#: What is said in the lines of a network that an adaptive solver runs.
ADAPTIVE = "dopri5"


def changed_lines(old: str, new: str) -> list[tuple[str, str]]:
    """The lines that say something else, old and new: other words, or numbers that are not the same but for rounding.

    A fit's last digits depend on the machine's linear algebra: a number may move by one in its last place, or by 5 %.
    How many steps an adaptive solver takes depends on how a machine rounds: those lines may move by 10 %.
    """
    pairs = zip_longest(old.splitlines(), new.splitlines(), fillvalue="")
    return [(was, now) for was, now in pairs if not _same(was, now)]


def _same(was: str, now: str) -> bool:
    if NUMBER.sub("0", was) != NUMBER.sub("0", now):
        return False
    share = 0.1 if ADAPTIVE in now else 0.05
    for before, after in zip(NUMBER.findall(was), NUMBER.findall(now), strict=True):
        first, second = (float(number.replace(",", "")) for number in (before, after))
        last_place = 10.0 ** -len(after.partition(".")[2])
        if abs(first - second) > max(1.01 * last_place, share * abs(second)):
            return False
    return True


def main(arguments: list[str]) -> int:
    """Rewrite the pages, or with ``--check`` name those that would change. Returns the exit code."""
    if arguments not in ([], ["--check"]):
        raise SystemExit("usage: python docs/figures.py [--check]")
    pages = rewritten(figures(predicted(ALL, lambda text: print(text, file=sys.stderr))))
    changed = [page for page, content in pages.items() if changed_lines(page.read_text(encoding="utf-8"), content)]
    for page in changed:
        print(page.relative_to(ROOT))
    if changed and not arguments:  # all of them: pages share figures
        for page, content in pages.items():
            page.write_text(content, encoding="utf-8")
    return int(bool(changed and arguments))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
