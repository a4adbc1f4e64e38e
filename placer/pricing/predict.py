"""Trace x Profile -> one Prediction per device: its time, memory and power."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np
import torch

from placer import machine
from placer.errors import ProfileError, UnknownGPU
from placer.pricing import timeline
from placer.pricing.compiled import compiled_step
from placer.pricing.cost_model import CostModel
from placer.pricing.framework import HOST_DOUBT, framework_seconds
from placer.pricing.ops import row_of
from placer.pricing.physics import step_bounds
from placer.pricing.prediction import SOURCES, Prediction, PricedTrace, Provenance, backed
from placer.pricing.shapes import FAMILIES
from placer.pricing.shapes.moves import settings
from placer.pricing.shapes.products import Convolution
from placer.pricing.timeline import copy_seconds, waiting_doubt
from placer.pricing.work import is_update
from placer.profile import Device, Profile, find_gpu, memory_of
from placer.tracing import OpCall, Trace, once_per_trace
from placer.workload import Loading

#: What a CUDA context takes of a device that this process does not use yet: 0.3 to 0.6 GB with PyTorch's kernels.
CONTEXT_BYTES = {"cuda": 500_000_000}
#: Share by which an accelerator's allocator and the workspaces of its libraries exceed what tensors need: 5 to 10 %.
ALLOCATOR_SHARE = 0.07


@dataclass(frozen=True)
class Residence:
    """Where a workload is, and whose devices are asked about.

    ``here``: those of this machine. ``home`` is the one device that all its weights are on, the CPU where they differ.
    ``held`` is what it holds of each device: bytes of parameters, buffers, gradients and optimizer state that its steps
    use. ``fitted_as`` maps devices to their twins, under whose names the profile has their fit.
    """

    here: bool = True
    home: str = "cpu"
    held: Mapping[str, int] = field(default_factory=dict)
    fitted_as: Mapping[str, str] = field(default_factory=dict)


def needed_bytes(trace: Trace, device: str) -> int:
    """The most memory that a step has in use at one time.

    On an accelerator the optimizer updates all tensors at once, which takes one more copy of those it updates when the
    activations are gone; and its allocator and libraries take more than the tensors need.
    """
    if device == "cpu":
        return trace.peak_bytes
    beyond = max(_update_bytes(trace) - trace.peak_activation_bytes, 0)
    return int((trace.peak_bytes + beyond) * (1.0 + ALLOCATOR_SHARE))


def available_bytes(device: str, fit: Device, residence: Residence) -> int | None:
    """What a workload could have of a device of this machine: what is free, and what it holds there already.

    Where only a device context could tell what is free, all of the device's memory, as calibration recorded it. None
    where nothing is known, as of a device that is not here (but for a GPU of the catalog: all it has).
    """
    total = int(fit.rates["memory_bytes"]) if "memory_bytes" in fit.rates else None
    if device not in machine.available_devices():
        return total if fit.gpu else None
    free = machine.known_free_memory(device)
    if free is None:
        free = total
    if free is None:
        return None
    if not machine.has_context(device):
        free -= CONTEXT_BYTES.get(machine.split_device(device)[0], 0)
    mine = free + residence.held.get(device, 0)
    # Less than the driver says where the process gets a part of the device only.
    return mine if total is None or device == "cpu" else min(mine, total)


def memory_elsewhere(profile: Profile, fit: Device) -> int | None:
    """What a workload could have of another machine's device, were nothing else on it; None where that is not known."""
    total = memory_of(profile, fit.device)
    if total is None or fit.gpu:  # the catalog counts what a context leaves
        return total
    return total - CONTEXT_BYTES.get(machine.split_device(fit.device)[0], 0)


@once_per_trace
def _update_bytes(trace: Trace) -> int:
    """Bytes of intermediates of an update of all tensors at once."""
    return sum(call.inputs[0].stored_bytes for call in trace.calls if is_update(call) and _has_copy(call))


def _has_copy(call: OpCall) -> bool:
    """Whether an update of all tensors at once keeps an intermediate as large as each of them."""
    chosen, traits = settings(call), row_of(call.op).traits
    if "no_lists" in traits or chosen.get("fused") or chosen.get("foreach") is False:
        return False
    return "adds_in_place" not in traits or bool(chosen.get("weight_decay"))


def first_calls_seconds(trace: Trace, rates: Mapping[str, float]) -> float:
    """Seconds that first calls take longer than later ones: of each op, and of each shape of a convolution."""
    of_ops = len(_ops_of(trace)) * rates.get("first_call_seconds", 0.0)
    return of_ops + _convolution_shapes(trace) * rates.get("first_use/shape", 0.0)


def libraries_seconds(trace: Trace, rates: Mapping[str, float]) -> float:
    """Seconds to load the libraries that a step needs, in a process that has none of them.

    A rate has the name of the library (``first_use/...``, see ``measuring.rates.first_use``).
    """
    families = {row_of(op).family for op in _ops_of(trace)} - {""}
    needed = {FAMILIES[family].library for family in families}
    return sum(rates.get(f"first_use/{name}", 0.0) for name in sorted(needed) if name)


@once_per_trace
def _ops_of(trace: Trace) -> frozenset[str]:
    return frozenset(call.op for call in trace.calls)


@once_per_trace
def _convolution_shapes(trace: Trace) -> int:
    """Different convolutions of a step."""
    shapes = set()
    for call in trace.calls:
        if issubclass(FAMILIES[row_of(call.op).family or "other"].shape, Convolution):
            shapes.add((call.op, tuple(t.shape for t in call.inputs), call.args))
    return len(shapes)


#: Watts of one hardware thread of a server, idle and fully used: means over the CPUs that AWS runs, of their
#: SPECpower_ssj2008 results (Cloud Carbon Footprint). Laptops and desktops differ by a factor of two.
CPU_IDLE, CPU_FULL = 0.74, 3.5
#: The share of its power limit that a GPU draws while it waits, in Teads' data set of AWS instances, which Cloud Carbon
#: Footprint uses: the eight A100 of a p4d.24xlarge draw 372 W idle, and 3,259 W fully used.
GPU_IDLE = 0.115


def step_watts(
    profile: Profile, fit: Device, components: Mapping[str, float], step_seconds: float, threads: int
) -> float | None:
    """Mean watts of the CPU and of the accelerator that ``fit`` is of, while a step of these components runs.

    On an accelerator, one thread of the host is busy: it issues ops, or waits for the device in a loop. The device is
    used while it computes; then it draws its power limit, which is too much for kernels of a few blocks. None where
    the number of hardware threads or the accelerator's power limit is not known.
    """
    cores = profile.fingerprint.get("host_cores") or profile.fingerprint.get("cores")
    if not isinstance(cores, int) or step_seconds <= 0.0:
        return None
    on_cpu = fit.device == "cpu"
    busy = min(threads if on_cpu else 1, cores)
    watts = cores * CPU_IDLE + busy * (CPU_FULL - CPU_IDLE)
    if on_cpu:
        return watts
    with suppress(UnknownGPU):
        limit = find_gpu(fit.gpu).watts if fit.gpu else 0.0
        if limit:
            used = min(components.get("compute", 0.0) / step_seconds, 1.0)
            return watts + limit * (GPU_IDLE + used * (1.0 - GPU_IDLE))
    return None


#: What is paid once that is the same for every accelerator that was not calibrated: see ``gpu.catalog_profile``.
_ASSUMED = frozenset(("context", "libraries", "first_calls", "compiler", "compilation"))
#: Half width of a 90 % interval of a normal variable, in standard deviations.
Z90 = 1.645

#: Seconds. No step takes 30 years: a profile that says so was not measured.
_LONGEST_STEP = 1e9

#: The cost models used last, so that one fit has one of them; at most so many.
_recent: list[CostModel] = []
_RECENT = 16


def predict(
    trace: Trace,
    profile: Profile,
    *,
    devices: Sequence[str],
    threads: int | None = None,
    data: str = "host",
    outputs: str | None = None,
    steps: int | None = None,
    residence: Residence | None = None,
    loading: Loading | None = None,
) -> dict[str, Prediction]:
    """Price ``trace`` on every device, by name, in the order given.

    ``data`` and ``outputs`` are those of a ``Workload``. ``threads`` is the number of CPU threads the step will run
    with (None: those of this process). ``residence`` says where the model is (None: on the CPU, and nobody knows what
    it holds). ``loading`` is what each step waits for. Raises ProfileError where the profile knows nothing of a device,
    or its numbers make no sense.
    """
    residence = residence or Residence()
    predictions: dict[str, Prediction] = {}
    for device in devices:
        try:
            with np.errstate(all="ignore"):  # a profile from elsewhere may hold any number; the result is checked
                model = cost_model(profile, residence.fitted_as.get(device, device), threads)
                predictions[device] = _predicted(
                    model, device, trace, profile, data, outputs, steps, residence, loading
                )
        except (ArithmeticError, np.linalg.LinAlgError) as error:
            raise _senseless(profile, device, str(error)) from error
        _check(predictions[device], profile)
    return predictions


def _check(prediction: Prediction, profile: Profile) -> None:
    """Raise ProfileError where a prediction's numbers make no sense: then those of the profile make none."""
    low, step, high = prediction.low, prediction.step_seconds, prediction.high
    times = (low, step, high, prediction.total_seconds or 1.0, *prediction.priced.seconds)
    ordered = 0.0 < low <= step <= high and step <= _LONGEST_STEP
    if not ordered or not all(map(math.isfinite, times)):
        what = f"a step of {step:g} s, from {low:g} to {high:g} s"
        raise _senseless(profile, prediction.device, what)


def _senseless(profile: Profile, device: str, what: str) -> ProfileError:
    return ProfileError(
        f"the numbers of profile {profile.name or 'in memory'} for {device} make no sense ({what}); "
        "run: placer calibrate"
    )


def _predicted(
    model: CostModel,
    device: str,
    trace: Trace,
    profile: Profile,
    data: str,
    outputs: str | None,
    steps: int | None,
    residence: Residence,
    loading: Loading | None,
) -> Prediction:
    trace, fit = trace.on(device), model.fit
    priced = compiled_step(replace(model.price(trace), device=device), model)
    if device == "cpu":
        step = timeline.on_cpu(priced, fit, loading=loading)
    else:
        step = timeline.on_accelerator(priced, fit, data=data, outputs=outputs, loading=loading)
    # What loading takes is known: it widens no interval.
    without_loading = step.seconds - step.components.get("loading", 0.0)
    sigma = log_sigma(priced, fit, without_loading) * (without_loading / step.seconds if step.seconds else 1.0)
    one_time = one_time_parts(trace, profile, fit, device, residence)
    if priced.compilation is not None:
        one_time |= {"compiler": priced.compilation.loading, "compilation": priced.compilation.seconds}
    calibrated = device == "cpu" or model.provenance == "calibrated"
    assumed = () if calibrated else _ASSUMED & one_time.keys()
    once = sum(one_time.values())
    available = available_bytes(device, fit, residence) if residence.here else memory_elsewhere(profile, fit)
    needed = needed_bytes(trace, device)
    least, usual, most = trace.evaluations or (1, 1, 1)
    bounds = step_bounds(priced, step.components, fit)
    return Prediction(
        device=device,
        threads=fit.threads,
        step_seconds=step.seconds,
        low=step.seconds * math.exp(-Z90 * sigma) * least / usual,
        high=step.seconds * math.exp(Z90 * sigma) * most / usual,
        one_time_seconds=once,
        total_seconds=None if steps is None else once + steps * step.seconds,
        components=step.components,
        peak_memory_bytes=needed,
        available_memory_bytes=available,
        fits=available is None or needed <= available,
        coverage=coverage(priced, model.provenance),
        sources=source_shares(priced),
        priced=priced,
        provenance=model.provenance,
        one_time=one_time,
        assumed=tuple(sorted(assumed)),
        bounded_by=max(bounds.items(), key=itemgetter(1))[0],
        watts=step_watts(profile, fit, step.components, step.seconds, fit.threads),
    )


def cost_model(profile: Profile, device: str, threads: int | None) -> CostModel:
    """The cost model of a device, built once per fit. ``threads`` None takes the number of this process.

    Raises ProfileError where the fit cannot price, naming the profile.
    """
    fit = profile.fit(device, threads or torch.get_num_threads())
    for model in tuple(_recent):
        if model.fit is fit:
            _recent[:] = [model, *(other for other in _recent if other is not model)]
            return model
    try:
        model = CostModel(fit)
    except ProfileError as error:  # the cost model does not know which profile its fit is from
        raise ProfileError(f"{profile.name or 'in memory'}: {error}") from error
    if fit.families or not fit.gpu:  # a fleet has hundreds of GPUs of the catalog
        _recent.insert(0, model)
        del _recent[_RECENT:]
    return model


def coverage(priced: PricedTrace, provenance: Provenance = "calibrated") -> float:
    """Share of the priced op time that is ``backed`` by measurements (1.0 for a step without ops)."""
    shares = source_shares(priced)
    return sum(share for source, share in shares.items() if backed(source, provenance)) if shares else 1.0


def source_shares(priced: PricedTrace) -> dict[str, float]:
    """Shares of the priced op time by source, from the best to the weakest; none for a step without ops."""
    sums = dict.fromkeys(SOURCES, 0.0)
    for seconds, source in zip(priced.seconds, priced.sources, strict=True):
        sums[source] += seconds
    total = sum(sums.values())
    return {source: seconds / total for source, seconds in sums.items() if seconds}


def log_sigma(priced: PricedTrace, fit: Device, step_seconds: float) -> float:
    """Standard deviation of log(step seconds).

    The error of an op repeats wherever it runs, so errors add up linearly within a family and as squares between
    families. ``fit.interval`` holds what a whole step adds to them, and how much measured ops count, measured on
    generated networks: what is guessed counts in full. While an accelerator waits for its host, doubt about its kernels
    is none about the step, and that about the host is.
    """
    if step_seconds <= 0.0:
        return fit.interval.get("base", 0.0)
    device = sum(priced.seconds)
    host = sum(priced.host_seconds) + framework_seconds(priced.counts, fit.framework)
    share = 1.0 if priced.device == "cpu" or device >= host else device / host
    alone = device + host if priced.device == "cpu" else step_seconds  # what it waits for others grows with its ops
    counted = fit.interval.get("ops", 1.0)
    sigma = [
        doubt_of_op if source == "guess" else counted * doubt_of_op
        for doubt_of_op, source in zip(priced.sigma, priced.sources, strict=True)
    ]
    ops = share * doubt(priced.families, priced.seconds, sigma) / max(alone, 1e-12)
    waiting = waiting_doubt(alone, fit.rates) if priced.device == "cpu" else 0.0
    compiled = 0.0 if priced.compilation is None else priced.compilation.doubt
    issuing = (1.0 - share) * fit.interval.get(HOST_DOUBT, 0.0)
    return math.hypot(fit.interval.get("base", 0.0), ops, waiting, issuing, compiled)


def doubt(families: Iterable[str], seconds: Iterable[float], sigma: Iterable[float]) -> float:
    """Standard deviation in seconds of the sum of ops: linear within a family, as squares between families."""
    by_family: dict[str, float] = {}
    for family, price, error in zip(families, seconds, sigma, strict=True):
        by_family[family] = by_family.get(family, 0.0) + price * error
    return math.sqrt(sum(v * v for v in by_family.values()))


def one_time_parts(trace: Trace, profile: Profile, fit: Device, device: str, residence: Residence) -> dict[str, float]:
    """Seconds paid once: the way of the weights to the device; on an accelerator also context, libraries, first calls.

    What was paid already is left out: a context that is there, the move of a model that is on the device.
    """
    home, here = residence.home, residence.here
    parts = dict.fromkeys(("context", "libraries", "first_calls", "weights"), 0.0)
    away = residence.fitted_as.get(home, home)
    if here and home not in ("cpu", device) and away in profile.devices():
        parts["weights"] += copy_seconds(trace.weight_sizes, profile.fit(away).rates, "d2h", "pageable")
    if device != "cpu":
        if not here or home != device:
            parts["weights"] += copy_seconds(trace.weight_sizes, fit.rates, "h2d", "pageable")
        if not here or not machine.has_context(device):
            parts["context"] = fit.rates.get("context_seconds", 0.0)
            parts["libraries"] = libraries_seconds(trace, fit.rates)
        parts["first_calls"] = first_calls_seconds(trace, fit.rates)
    return {name: seconds for name, seconds in parts.items() if seconds}
