"""Workload x Profile -> Plan: the stages between the arguments and the move, in order."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from placer.decision import interpolation as between
from placer.decision import threads as thread_counts
from placer.decision.decision import Decision, decide
from placer.decision.observed import workload_key
from placer.decision.plans import Plan
from placer.decision.threads import ThreadOption
from placer.errors import ProfileError, ProfileStale
from placer.machine import host as machine
from placer.nest import tensors
from placer.placement.anchored import anchor
from placer.pricing.prediction import Prediction
from placer.profile import profile as profiles
from placer.profile.profile import Profile
from placer.tracing.trace import Trace
from placer.workload.workload import Workload

_tracing = threading.RLock()
_loaded: dict[str, tuple[tuple[int, int, int], Profile]] = {}


def load_profile(source: Profile | str | os.PathLike[str] | None) -> Profile:
    """A profile without its samples, read only when its file changed since the last time. Raises ProfileError."""
    if isinstance(source, Profile):
        return source
    check_source(source)
    path = _own_path(os.environ.get("PLACER_HOME")) if source is None else str(profiles.locate(source)[0])
    try:
        status = os.stat(path)  # noqa: PTH116 - on every repeated call, and a Path costs five times as much
    except (OSError, ValueError):
        return profiles.load(source, samples=False)  # nothing there: the loader knows what to say
    stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
    known = _loaded.get(path)
    if known is None or known[0] != stamp:
        known = _loaded[path] = (stamp, profiles.load(source, samples=False))
    return known[1]


@functools.cache
def _own_path(home: str | None) -> str:
    """This machine's profile; ``home`` is what it depends on."""
    return str(profiles.default_path())


def check_source(source: object) -> None:
    """TypeError for what cannot name a profile."""
    if not isinstance(source, (Profile, str, os.PathLike, type(None))):
        raise TypeError(f"profile must be a path, a name, a Profile or None, not {source!r}")


def changed_fields(profile: Profile) -> tuple[str, ...]:
    """What makes this machine another one than the profile's, readable; empty: nothing."""
    return profiles.stale_fields(profile, machine.fingerprint())


def check_fresh(profile: Profile) -> None:
    """Raise ProfileStale, naming the fields, if the machine changed since calibration."""
    if changed := changed_fields(profile):
        raise ProfileStale(f"the machine changed since calibration ({'; '.join(changed)}); run: placer calibrate")


def candidates(devices: Sequence[str] | None, profile: Profile, *, here: bool) -> tuple[str, ...]:
    """The devices to compare: those asked for, else all that are calibrated (``here``: and on this machine).

    Raises ProfileError when this machine's default accelerator was never calibrated: leaving it out silently would turn
    "not measured" into "not worth it".
    """
    calibrated = profile.devices()
    if devices is not None:
        missing = [name for name in devices if name not in calibrated]
        if missing:
            raise _not_calibrated(missing[0], calibrated)
        return tuple(devices)
    if not here:
        return calibrated
    available = machine.available_devices()
    default = available[:2]
    missing = [name for name in default if name not in calibrated]
    if missing:
        raise _not_calibrated(missing[0], calibrated)
    return tuple(name for name in available if name in calibrated)


def predict_all(
    trace: Trace, workload: Workload, profile: Profile, devices: Sequence[str], threads: str
) -> tuple[dict[str, Prediction], tuple[ThreadOption, ...]]:
    """A prediction per device, the CPU's with the number of threads it will run with; and the numbers compared.

    With ``threads="tune"`` these are the calibrated ones and the one the process has, else none.
    """
    from placer.pricing.predict import predict

    here = profile.fingerprint.get("cpu") == machine.cpu_model()
    now = torch.get_num_threads() if here else _own_threads(profile)
    found = predict(trace, profile, devices=devices, threads=now, data=workload.data, steps=workload.steps)
    if "cpu" not in found:
        return found, ()
    if here:
        # Priced at the nearest calibrated count, but this is the one it would run with.
        found["cpu"] = dataclasses.replace(found["cpu"], threads=torch.get_num_threads())
    if threads != "tune":
        return found, ()
    current = found["cpu"].threads
    tried = {current: found["cpu"]}
    for count in profile.threads("cpu"):
        if count not in tried:
            other = predict(trace, profile, devices=("cpu",), threads=count, data=workload.data, steps=workload.steps)
            tried[count] = other["cpu"]
    best = thread_counts.best_count({count: p.step_seconds for count, p in tried.items()}, current)
    found["cpu"] = tried[best]
    return found, thread_counts.options(tried, current)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What is compared: devices of a profile, and those of other machines beside them.

    ``what_if`` adds its accelerator, ``beside`` are profiles of which every device is added.
    """

    profile: Profile
    devices: tuple[str, ...]
    threads: str = "keep"
    what_if: Profile | None = None
    beside: tuple[Profile, ...] = ()

    def price(self, trace: Trace, workload: Workload) -> tuple[dict[str, Prediction], tuple[ThreadOption, ...]]:
        """A prediction per device, and the numbers of CPU threads that were compared (see ``predict_all``)."""
        predictions, tried = predict_all(trace, workload, self.profile, self.devices, self.threads)
        if self.what_if is not None:
            predictions.update(_elsewhere(trace, workload, self.what_if, _accelerator(self.what_if)))
        for other in self.beside:
            predictions.update(_elsewhere(trace, workload, other, *other.devices()))
        return predictions, tried


def compare(
    profile: Profile,
    *,
    devices: Sequence[str] | None,
    threads: str = "keep",
    what_if: Profile | None = None,
    beside: tuple[Profile, ...] = (),
    here: bool = True,
) -> Comparison:
    """The comparison that was asked for. Raises ProfileError for a device that was never calibrated."""
    return Comparison(profile, candidates(devices, profile, here=here), threads, what_if, beside)


def make_plan(workload: Workload, comparison: Comparison, notes: tuple[str, ...] = ()) -> Plan:
    """Trace, price, decide. Raises TraceError or ProfileError."""
    trace = trace_workload(workload)
    predictions, tried = comparison.price(trace, workload)
    profile = comparison.profile
    for name in predictions:
        if "@" in name:
            notes = (*notes, f"{name} is not on this machine: its numbers were measured elsewhere")
    return Plan(
        decision=with_threads(decide(predictions, workload.steps), tried),
        predictions=predictions,
        workload=describe(workload, trace),
        profile=profile,
        notes=(*notes, *profile_notes(profile)),
        key=workload_key(trace, workload),
        kinds=hash(frozenset((call.op, call.phase, call.layer) for call in trace.calls)),
    )


def interpolated(below: Plan, above: Plan, up: float, down: float, workload: Workload) -> Plan | None:
    """The plan of a workload whose sizes lie between those of two plans; None where it has to be traced.

    ``up`` and ``down`` are the distances to them (see ``between.growth``).
    """
    if below.before is None or above.before is None:  # compare like with like: both as priced, or both as seen
        below, above = below.before or below, above.before or above
    predictions = between.interpolate(below, above, up, down, workload.steps)
    if predictions is None:
        return None
    decision = decide(predictions, workload.steps)
    ends = " and ".join("; ".join(plan.workload["inputs"]) for plan in (below, above))
    note = f"interpolated between the inputs {ends}, which were traced; memory and ops are those of the larger"
    return dataclasses.replace(
        above,
        decision=dataclasses.replace(decision, reason=f"{decision.reason} (interpolated between other shapes)"),
        predictions=predictions,
        workload={**above.workload, "inputs": describe_inputs(workload)},
        notes=(*above.notes, note),
        key="",
        before=None,
        interpolated=True,
    )


def with_threads(decision: Decision, tried: tuple[ThreadOption, ...]) -> Decision:
    """The decision with the numbers of threads that were compared, and a word on them where the CPU was chosen."""
    if not tried:
        return decision
    said = thread_counts.reason(decision.threads, tried) if decision.device == "cpu" else ""
    return dataclasses.replace(decision, thread_options=tried, reason=decision.reason + said)


@contextlib.contextmanager
def cpu_threads(predictions: Mapping[str, Prediction]) -> Iterator[None]:
    """The number of threads the CPU's prediction is for, restored afterwards."""
    wanted = predictions["cpu"].threads if "cpu" in predictions else torch.get_num_threads()
    with thread_counts.running_with(wanted):
        yield


def trace_workload(workload: Workload) -> Trace:
    """The trace of one step, one at a time: it takes over hooks and imports of the whole process. Raises TraceError."""
    from placer.tracing import trace

    with _tracing:
        return trace(workload)


def _after_fork() -> None:
    """In the child, where the thread that held the lock does not exist."""
    global _tracing
    _tracing = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def reachable(workload: Workload, devices: Sequence[str] | None) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The devices to choose from, and why they are fewer: a model that must not be moved has only its own.

    Unless others were asked for: then the script knows what it does.
    """
    bound = anchor(workload.modules)
    if bound is None or (devices is not None and bound[0] not in devices):
        return None if devices is None else tuple(devices), ()
    return (bound[0],), (f"not to be moved: {bound[1]}",)


def describe(workload: Workload, trace: Trace | None = None) -> dict[str, Any]:
    """A workload as plain values, for explanations and the history."""
    inputs = describe_inputs(workload)
    mode, optimizer = workload.mode, workload.optimizer_name
    parameters = sum(p.numel() for module in workload.modules for p in module.parameters())
    if workload.is_step_function and trace is not None:  # what it is shows when it runs
        mode, optimizer = trace.mode, trace.optimizer.lower() if trace.optimizer else None
        parameters = sum(p.numel for p in trace.parameters)
    return {
        "target": _target_name(workload.target),
        "mode": mode,
        "inputs": inputs,
        "optimizer": optimizer,
        "loss": None if workload.loss is None else _target_name(workload.loss),
        "steps": workload.steps,
        "data": workload.data,
        "autocast": None if workload.autocast is None else str(workload.autocast).removeprefix("torch."),
        "parameters": parameters,
        "op_calls": None if trace is None else len(trace.calls),
    }


def describe_inputs(workload: Workload) -> list[str]:
    """Shape and dtype of every input."""
    return [_spec(tensor) for tensor in tensors((workload.args, workload.kwargs))]


def describe_machine(profile: Profile) -> dict[str, Any]:
    """What the numbers were measured on, as plain values."""
    known = ("cpu", "cores", "memory_bytes", "accelerators", "torch", "threads")
    facts = {key: profile.fingerprint[key] for key in known if key in profile.fingerprint}
    return {**facts, "calibrated": profile.created, "profile": profile.name}


def profile_notes(profile: Profile) -> tuple[str, ...]:
    """What a reader should know about the profile itself."""
    unfinished = () if profile.complete else ("calibration did not finish; run: placer calibrate",)
    return (*unfinished, *profile.warnings)


def conventional(workload: Workload, devices: Sequence[str] | None, why: str) -> Decision:
    """The rule of every training script: an accelerator if there is one and the model fits in its free memory."""
    devices, bound = reachable(workload, devices)
    available = tuple(devices) if devices is not None else machine.available_devices()
    threads = torch.get_num_threads()
    if bound:
        return Decision(available[0], threads, None, f"{available[0]}: {bound[0]} ({why})")
    need = rough_memory(workload)
    rule = "no accelerator is present"
    for name in available:
        if name == "cpu":
            continue
        free = _answering_memory(name)
        if free is not None and need <= free:
            return Decision(name, threads, None, f"{name}: by convention, as an accelerator is present ({why})")
        rule = "the accelerator does not answer" if free is None else "the model does not fit on the accelerator"
    device = "cpu" if "cpu" in available else available[0]
    return Decision(device, threads, None, f"{device}: by convention, as {rule} ({why})")


def _answering_memory(device: str) -> int | None:
    """Free bytes; None of a device that is listed and cannot be used: gone since, or its driver is too old."""
    try:
        return machine.memory(device)[0]
    except (RuntimeError, ValueError, OSError):
        return None


def rough_memory(workload: Workload) -> int:
    """Bytes of parameters and buffers, four times over for training (gradients and two optimizer states)."""
    held: dict[int, Tensor] = {}
    for module in workload.modules:
        held.update({id(t): t for t in (*module.parameters(), *module.buffers()) if not is_lazy(t)})
    size = sum(tensor.numel() * tensor.element_size() for tensor in held.values())
    return size * (4 if workload.mode == "train" else 1)


def _accelerator(profile: Profile) -> str:
    """The first accelerator of a profile."""
    accelerator = next((name for name in profile.devices() if name != "cpu"), None)
    if accelerator is None:
        raise ProfileError(f"profile {profile.name!r} has no accelerator (calibrated: {', '.join(profile.devices())})")
    return accelerator


def _elsewhere(trace: Trace, workload: Workload, profile: Profile, *devices: str) -> dict[str, Prediction]:
    """Devices of another machine's profile, named ``cuda@that-profile``."""
    from placer.pricing.predict import predict

    count = _own_threads(profile)
    found = predict(trace, profile, devices=devices, threads=count, data=workload.data, steps=workload.steps)
    named: dict[str, Prediction] = {}
    for device, prediction in found.items():
        total = _memory_of(profile.fingerprint, device)
        name = f"{device}@{Path(profile.name).stem or 'profile'}"
        fits = total is None or prediction.peak_memory_bytes <= total
        named[name] = dataclasses.replace(prediction, device=name, fits=fits)
    return named


def _own_threads(profile: Profile) -> int | None:
    """What another machine runs with by default."""
    threads = profile.fingerprint.get("threads")
    return threads if isinstance(threads, int) and threads > 0 else None


def _memory_of(fingerprint: Mapping[str, Any], device: str) -> int | None:
    if device == "cpu":
        return int(fingerprint.get("memory_bytes") or 0) or None
    for facts in fingerprint.get("accelerators") or ():
        if facts.get("device") == device:
            return int(facts.get("memory_bytes") or 0) or None
    return None


def _not_calibrated(device: str, calibrated: Sequence[str]) -> ProfileError:
    known = ", ".join(calibrated) or "none"
    return ProfileError(f"{device} is not calibrated (calibrated: {known}); run: placer calibrate")


def _spec(tensor: Tensor) -> str:
    shape = "×".join(map(str, tensor.shape)) or "scalar"
    return f"{shape} {str(tensor.dtype).removeprefix('torch.')}"


def _target_name(target: object) -> str:
    if hasattr(target, "__name__"):
        return str(target.__name__)
    return type(target).__name__
