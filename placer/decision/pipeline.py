"""The one pipeline: a question is traced, priced on every device where the work could run, and answered by a Table.

``choose`` moves to the best row of the table, ``explain`` says why it is the best, a fleet sorts the rows of its
machines, and advice, turns and sweeps compare those of changed questions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placer.decision.candidates import Candidate, Candidates, gather, of_this_cpu, residence
from placer.decision.current import Source, current_profile, profile_named
from placer.decision.decision import ThreadOption
from placer.decision.measured import with_measured
from placer.decision.objective import TIME, Objective, is_cpu
from placer.decision.recorded import with_recorded
from placer.decision.steps import Traced, TracedPart, trace_parts
from placer.decision.table import PricedPart, Table
from placer.errors import PlacerError, first_line
from placer.pricing import Prediction, Residence, predict
from placer.profile import check_source
from placer.workload import Job, Workload, check_available

#: The number of threads a process has is kept unless another one saves more than this share of the step: two counts
#: share most of a prediction's error, and changing the setting touches the whole process.
THREADS_TIE = 0.05
#: GPUs that a machine without an accelerator is compared with, unless other ones are named: a cheap one of a cloud, one
#: of a desktop, and a fast one.
USUAL_GPUS = ("T4", "RTX 4090", "H100")


@dataclass(frozen=True)
class Question:
    """Work that is to be priced, the ``candidates`` that it could run on, and the ``objective`` that is minimized.

    ``work`` that was traced is not traced again. ``recorded``: step times that earlier runs recorded here take the
    place of predicted ones, or move those of other sizes. ``measure`` (never, unsure, always): real steps are timed
    now, of a single step on devices of this machine, and take the place of both.
    """

    work: Workload | Job | Traced
    candidates: Candidates
    objective: Objective = TIME
    recorded: bool = False
    measure: str = "never"

    def of(self, work: Workload | Job | Traced) -> Question:
        """The same question of other work, by predictions alone."""
        return Question(work, self.candidates, self.objective)

    def asked_alone(self) -> Question:
        """The same question without GPUs that nobody asked about."""
        return self._among([candidate for candidate in self.candidates.each if candidate.asked])

    def all_alike(self) -> Question:
        """The same question with GPUs that nobody asked about compared like all others."""
        return self._among([replace(candidate, asked=True) for candidate in self.candidates.each])

    def trying(self, threads: tuple[int, ...]) -> Question:
        """The same question, the CPU also with these numbers of threads."""
        cpu = [replace(c, tried=threads) if c.name == "cpu" else c for c in self.candidates.each]
        return self._among(cpu)

    def _among(self, candidates: Sequence[Candidate]) -> Question:
        return replace(self, candidates=replace(self.candidates, each=tuple(candidates)))


def ask(
    work: Workload | Job | Traced,
    *,
    devices: Sequence[str] | None = None,
    threads: str = "keep",
    profile: Source | Sequence[Source] | None = None,
    what_if: Source | Sequence[Source] | None = None,
    objective: Objective = TIME,
    recorded: bool = True,
) -> Question:
    """The question of ``placer.explain``, of arguments that were checked.

    With an explicit ``profile`` its devices are compared; with several, side by side. ``recorded``: step times of
    earlier runs on this machine take the place of predicted ones. Raises ValueError for a device that is not here, and
    PlacerError where a profile cannot be used.
    """
    profiles, added = sources(profile), sources(what_if)
    here = not profiles
    if here and devices is not None:
        check_available(devices)
    for source in (*profiles, *added):
        check_source(source)
    with only_placer_errors():
        compared = profile_named(profiles[0]) if profiles else current_profile()
        host = compared if "cpu" in compared.devices() else None
        candidates = gather(
            compared,
            devices,
            here=here,
            modules=work.modules,
            threads=threads,
            what_if=[profile_named(source, host) for source in added],
            others=[profile_named(source, host) for source in profiles[1:]],
        )
        # Dollars per hour are asked of every device: nobody gave those of GPUs that he did not name.
        open_ended = what_if is None and devices is None and len(profiles) < 2 and objective.name != "cost"
        only_cpus = all(is_cpu(candidate.name) for candidate in candidates.each)
        if open_ended and only_cpus and not candidates.left_out:
            candidates = candidates.beside([profile_named(gpu, host) for gpu in USUAL_GPUS])
    return Question(work, candidates, objective, recorded=recorded and here)


def sources(named: Source | Sequence[Source] | None) -> list[Source]:
    """What an argument names that takes one source or several; none for None."""
    if named is None or isinstance(named, (list, tuple)):
        return list(named or ())
    return [named]  # type: ignore[list-item]  # a sequence is a list or a tuple


def answer(question: Question) -> Table:
    """What the work takes on each candidate that can run it.

    Raises TraceError where a step cannot be traced, ProfileError where a profile cannot price it, and PlacerError where
    no candidate can run it.
    """
    traced, candidates = trace_parts(question.work), question.candidates
    able: list[Candidate] = []
    left_out, notes = dict(candidates.left_out), list(candidates.notes)
    for candidate in candidates.each:
        obstacle = traced.obstacles.on(candidate.device, here=candidate.here)
        if obstacle is None:
            able.append(candidate)
        elif candidate.asked:
            left_out[candidate.name] = obstacle
        else:
            notes.append(f"no GPU is compared: {obstacle}")
    left_out_lines = _lines_of_reasons(left_out)
    if not able:
        raise PlacerError(f"no device can run it; {'; '.join(left_out_lines)}")
    thread_options: tuple[ThreadOption, ...] = ()
    parts: list[PricedPart] = []
    for part in traced.parts:
        where = residence(part.workload, candidates.fitted_as)
        predictions: dict[str, Prediction] = {}
        for candidate in able:
            predictions[candidate.name], tried = _with_best_threads(part, candidate, where)
            thread_options = tried or thread_options
        parts.append(PricedPart(part.name, part.count, predictions, part.facts, part.model, part.identity))
    origins = [origin(name, prediction) for name, prediction in parts[0].predictions.items()]
    occupied = tuple(candidate.occupied for candidate in able if candidate.occupied)
    notes += [*left_out_lines, *filter(None, origins), *candidates.profile.remarks, *occupied]
    table = Table(
        tuple(parts),
        candidates.profile,
        traced.facts,
        traced.repeats,
        traced.unit,
        question.objective,
        tuple(dict.fromkeys(notes)),
        beside=frozenset(candidate.name for candidate in able if not candidate.asked),
        thread_options=thread_options,
        left_out=left_out_lines,
        occupied=occupied,
        this_machine=candidates.this_machine,
    )
    if question.recorded:
        table = with_recorded(table)
    if question.measure != "never":
        table = with_measured(table, traced.parts[0].workload, question.measure)
    return table


def _lines_of_reasons(reasons: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each of the ``reasons``, by device, that names all devices it holds for."""
    devices: dict[str, list[str]] = {}
    for name, why in reasons.items():
        devices.setdefault(why, []).append(name)
    return tuple(
        f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} left out: {why}" for why, names in devices.items()
    )


def _with_best_threads(
    part: TracedPart, candidate: Candidate, where: Residence
) -> tuple[Prediction, tuple[ThreadOption, ...]]:
    """A part on a candidate with the best of the numbers of threads that it tries, and all of those."""
    now = _predicted(part, candidate, where, candidate.threads)
    if not candidate.tried:
        return now, ()
    tried = {count: _predicted(part, candidate, where, count) for count in candidate.tried} | {now.threads: now}
    best = best_count({count: prediction.step_seconds for count, prediction in tried.items()}, now.threads)
    options = (
        ThreadOption(count, count == now.threads, prediction.step_seconds, prediction.low, prediction.high)
        for count, prediction in sorted(tried.items())
    )
    return tried[best], tuple(options)


def _predicted(part: TracedPart, candidate: Candidate, where: Residence, threads: int | None) -> Prediction:
    """A part on a candidate, which on this machine counts ``where`` the model is."""
    prediction = predict(
        part.trace,
        candidate.profile,
        devices=(candidate.device,),
        threads=threads,
        data=part.workload.data,
        outputs=part.workload.outputs,
        steps=part.workload.steps,
        residence=where if candidate.here else Residence(here=False),
        loading=part.workload.loading,
    )[candidate.device]
    if threads and is_cpu(candidate.name) and of_this_cpu(candidate.profile):
        # Priced at the nearest calibrated number of threads, but this is the one it would run with.
        prediction = replace(prediction, threads=threads)
    return replace(prediction, device=candidate.name)


def best_count(steps: Mapping[int, float], now: int) -> int:
    """The number of threads with the shortest step; ``now`` where none is shorter by more than the tie.

    ``steps`` maps numbers of threads to seconds. Of equal steps the fewest threads win.
    """
    best = min(steps, key=lambda count: (steps[count], count))
    return now if now in steps and steps[best] >= steps[now] * (1.0 - THREADS_TIE) else best


def origin(name: str, prediction: Prediction) -> str:
    """Where the numbers of a device come from, if not from a calibration of this machine; else ""."""
    fit = prediction.priced.fit
    if fit is None or prediction.provenance == "calibrated":
        return f"{name} is not on this machine: its numbers were measured elsewhere" if "@" in name else ""
    if not fit.gpu:
        return f"{name}: from the measurements of another CPU ({fit.reference}), scaled to this one (no calibration)"
    published = prediction.provenance == "published"
    source = "published measurements" if published else "its data sheet and measurements of other GPUs"
    host = fit.reference or "usual CPUs"
    return f"{fit.gpu}: from {source} (no calibration), with the host speed of {host}"


@contextlib.contextmanager
def only_placer_errors() -> Iterator[None]:
    """The boundary of "choose never breaks a training script": pricing sees ops nobody foresaw.

    What it raises must end in a warning, not in a crash.
    """
    try:
        yield
    except PlacerError:
        raise
    except Exception as error:
        raise PlacerError(f"prediction failed with {type(error).__name__}: {first_line(error)}") from error
