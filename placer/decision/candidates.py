"""What work could run on: devices of this machine, those of other profiles, and GPUs of the catalog beside a host."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from placer import machine
from placer.decision.decision import Decision, unpredicted
from placer.decision.obstacles import Obstacles
from placer.errors import ProfileError
from placer.nest import distinct
from placer.placement import Optimizers, only_device
from placer.pricing import Residence
from placer.profile import Profile, changed_fields, default_threads
from placer.workload import Workload

#: Of equal accelerators the first one is taken that has at least this share of the most free memory that one has:
#: scripts expect number 0, unless another job has filled it.
MOSTLY_FREE = 0.5
#: Share of the time from which on a device counts as busy: a desktop that is drawn stays below.
BUSY = 0.5
#: What a GPU's name begins with that its reader does not need.
_MAKER = re.compile(r"^(?:NVIDIA|AMD|Intel|Apple)(?:\(R\))? (?:GeForce )?")


@dataclass(frozen=True)
class Candidate:
    """A device that work could run on: what it is called, and the profile that prices it, under the name it has there.

    ``here``: it is of this machine. ``threads`` is the number of CPU threads it is priced with (None: those that it was
    calibrated with), ``tried`` are other numbers that the CPU may be set to.
    ``asked``: the caller has it or asked about it; else it only stands beside those for which that is so.
    ``occupied`` says that other jobs keep it busy.
    """

    name: str
    device: str
    profile: Profile
    threads: int | None
    here: bool = False
    tried: tuple[int, ...] = ()
    asked: bool = True
    occupied: str = ""


@dataclass(frozen=True)
class Candidates:
    """All that is compared.

    ``profile`` is the one that this machine's devices, or those asked for, are priced by; ``fitted_as`` maps all of
    them to the names that they have in it, that of a twin as a rule. ``left_out`` says of devices that were asked
    about, or are there, why they cannot be used; ``notes`` tell a reader why it is these. ``this_machine``: the profile
    is of this machine, and nothing has changed since.
    """

    each: tuple[Candidate, ...]
    profile: Profile
    notes: tuple[str, ...] = ()
    fitted_as: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    this_machine: bool = True

    def beside(self, gpus: Sequence[Profile]) -> Candidates:
        """The same, with GPUs beside them that nobody asked about."""
        added = _elsewhere(self.each, [(gpu, [_accelerator(gpu)]) for gpu in gpus], asked=False)
        return replace(self, each=(*self.each, *added))


def gather(
    profile: Profile,
    devices: Sequence[str] | None,
    *,
    here: bool,
    modules: Sequence[nn.Module] = (),
    threads: str = "keep",
    what_if: Sequence[Profile] = (),
    others: Sequence[Profile] = (),
) -> Candidates:
    """The devices of ``profile`` that were asked for, an accelerator of each ``what_if`` and all of ``others``.

    ``here``: they are those of this machine. A model of these ``modules`` may be bound to one of them. ``threads``:
    whether other numbers of CPU threads are tried. Raises ProfileError for a device that was never calibrated.
    """
    notes: tuple[str, ...] = ()
    changed = () if here else changed_fields(profile)
    if changed and profile.created:
        notes = (f"the profile was measured on another machine or setup ({'; '.join(changed)})",)
    chosen, fitted_as, left_out = _devices_to_compare(devices, profile, modules, here=here)
    if here and (settings := _settings_told(chosen, profile)):
        notes = (f"what these settings change is not predicted: {', '.join(settings)}",)
    each = [_candidate(name, profile, here, threads) for name in chosen]
    thought = [(other, [_accelerator(other)]) for other in what_if]
    each += _elsewhere(each, [*thought, *((other, other.devices()) for other in others)])
    return Candidates(tuple(each), profile, notes, fitted_as, left_out, this_machine=not changed)


def _accelerator(profile: Profile) -> str:
    """The first accelerator of a profile; its CPU where it has none."""
    return next((name for name in profile.devices() if name != "cpu"), "cpu")


def _elsewhere(
    before: Sequence[Candidate], sources: Sequence[tuple[Profile, Sequence[str]]], *, asked: bool = True
) -> list[Candidate]:
    """Devices of other profiles, under names that no other has: ``cuda@its-profile``, or ``cuda@Tesla T4``."""
    added: list[Candidate] = []
    for profile, devices in sources:
        for device in devices:
            threads = default_threads(profile)
            fit = profile.fit(device, threads)
            published = fit.gpu and (fit.estimated or not fit.families)
            called = f"{device}@{without_maker(fit.gpu) if published else _label(profile.name)}"
            taken = {candidate.name for candidate in (*before, *added)}
            name, number = called, 2
            while name in taken:
                name, number = f"{called} ({number})", number + 1
            added.append(Candidate(name, device, profile, threads, asked=asked))
    return added


def _label(name: str) -> str:
    """What to call a profile by its path: its file, or the folder of one that is only called ``profile``."""
    path = Path(name.removesuffix(".xz").removesuffix(".json") or "profile")
    return path.parent.name if path.name == "profile" and path.parent.name else path.name


def _candidate(name: str, profile: Profile, here: bool, threads: str) -> Candidate:
    """A device of the profile that is compared with."""
    now = torch.get_num_threads() if of_this_cpu(profile) else default_threads(profile)
    tried = profile.threads("cpu") if name == "cpu" and threads == "tune" else ()
    return Candidate(name, name, profile, now, here, tried=tried, occupied=occupied(name) if here else "")


def of_this_cpu(profile: Profile) -> bool:
    """Whether a profile is of the CPU of this machine."""
    return profile.fingerprint.get("cpu") == machine.cpu_model()


def occupied(device: str) -> str:
    """A sentence on an accelerator of this machine that other processes keep busy; "" where that is not known.

    One that this process uses already is left out: its own work cannot be told from that of others.
    """
    if machine.split_device(device)[0] == "cpu" or machine.has_context(device):
        return ""
    share = machine.utilization(device)
    if share is None or share < BUSY:
        return ""
    return f"{device} is {share:.0%} busy with other jobs, and predicted as if it were free"


def _devices_to_compare(
    devices: Sequence[str] | None, profile: Profile, modules: Sequence[nn.Module], *, here: bool
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """The devices to compare, the names of fits by those that devices have now, and why others are left out.

    Those asked for, else all that are calibrated (``here``: and on this machine). Of equal accelerators of this machine
    there is one, that of the model of these ``modules`` if it is among them. Raises ProfileError when this machine's
    default accelerator could run it and was never calibrated: leaving it out silently would turn "not measured" into
    "not worth it".
    """
    calibrated = profile.devices()
    if not here:
        names = list(calibrated if devices is None else devices)
        for name in names:
            if name not in calibrated:
                raise _not_calibrated(name, calibrated)
        return names, {name: name for name in names}, {}
    asked = machine.available_devices() if devices is None else tuple(devices)
    needed = asked[:2] if devices is None else asked
    facts, obstacles = _facts(), Obstacles(modules)
    fitted_as: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in asked:
        if (obstacle := obstacles.on(name)) is not None:
            left_out[name] = obstacle
            continue
        fit = next((alias for alias in _named(name, profile, facts.get(name)) if alias in calibrated), None)
        if fit is not None:
            fitted_as[name] = fit
        elif (why := unusable(name, profile, facts.get(name))) is not None:
            left_out[name] = why
        elif name in needed:
            raise _not_calibrated(name, calibrated)
    if not fitted_as:
        raise ProfileError("; ".join(f"{name} cannot be used here ({why})" for name, why in left_out.items()))
    kinds: list[list[str]] = []
    for name in fitted_as:
        for twins in kinds:
            if _alike(facts.get(name), facts.get(twins[0])):
                twins.append(name)
                break
        else:
            kinds.append([name])
    return [of_twins(twins, home(modules)) for twins in kinds], fitted_as, left_out


def unusable(device: str, profile: Profile | None, facts: Mapping[str, Any] | None = None) -> str | None:
    """Why a device that torch lists cannot be used, as calibration found or versions tell; None: nothing is known."""
    if device == "cpu":
        return None
    facts = _facts().get(device) if facts is None else facts
    reasons: Mapping[str, str] = {} if profile is None else profile.unusable
    for name in (device,) if profile is None else _named(device, profile, facts):
        if name in reasons:
            return reasons[name]
    # One that computes for this process is not told from versions.
    return None if facts is None or machine.has_context(device) else machine.unsupported(facts)


def of_twins(twins: Sequence[str], home: str) -> str:
    """The one of several equal accelerators that a model goes to, which is on ``home`` now."""
    if home in twins:
        return home
    if any(map(machine.has_context, twins)):
        current = machine.current_device(machine.split_device(twins[0])[0])
        if current in twins:
            return current
    free = {name: machine.known_free_memory(name) or 0 for name in twins}
    return next(name for name in twins if free[name] >= MOSTLY_FREE * max(free.values()))


def _named(device: str, profile: Profile, facts: Mapping[str, Any] | None) -> list[str]:
    """What a profile may call a device of this machine: its own name first, then those of its twins.

    Where the driver may number the devices otherwise than torch does, what is known of a device may be another's.
    """
    if not machine.order_is_known():
        return [device]
    then = {old["device"]: old for old in profile.fingerprint.get("accelerators", ())}
    alike = [name for name, old in then.items() if _alike(old, facts)]
    by_its_name = [device] if device in alike or device not in then or not alike else []
    return [*by_its_name, *(name for name in alike if name != device)]


def _alike(facts: Mapping[str, Any] | None, others: Mapping[str, Any] | None) -> bool:
    return facts is not None and others is not None and machine.same_kind(facts, others)


def _facts() -> dict[str, dict[str, Any]]:
    return {str(facts["device"]): facts for facts in machine.describe_accelerators()}


def _not_calibrated(device: str, calibrated: Sequence[str]) -> ProfileError:
    names = ", ".join(calibrated) or "none"
    return ProfileError(f"{device} is not calibrated (calibrated: {names}); run: placer calibrate")


def without_maker(gpu: str) -> str:
    """A GPU's name as people say it: ``RTX 4090``, not ``NVIDIA GeForce RTX 4090``."""
    return _MAKER.sub("", gpu)


def _settings_told(chosen: Sequence[str], profile: Profile) -> tuple[str, ...]:
    """The settings that change kernels of the ``chosen`` devices in ways that the profile does not tell."""
    settings = unpredicted_settings(cudnn=set(chosen) != {"cpu"})
    precisions = {profile.fingerprint.get("matmul_precision"), machine.matmul_precision()}
    if "cpu" in chosen and len(precisions) > 1 and "medium" in precisions:  # it multiplies in bfloat16 where it can
        settings = (*settings, "float32 matmul precision")
    return settings


def unpredicted_settings(*, cudnn: bool = True) -> tuple[str, ...]:
    """The switches of torch that are not as usual, and change kernels in ways that are not predicted.

    Those of ``cudnn`` change none of the CPU's.
    """
    switches = torch.backends.cudnn
    settings = {
        "no cudnn": cudnn and not switches.enabled,
        "cudnn.benchmark": cudnn and switches.benchmark,
        "cudnn.deterministic": cudnn and switches.deterministic,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    return tuple(name for name, is_so in settings.items() if is_so)


def home(modules: Sequence[nn.Module]) -> str:
    """The one device that all weights are on, as profiles name it; the CPU where they differ, or are nowhere yet."""
    device = only_device(modules)
    return "cpu" if device is None or device.type == "meta" else machine.normal_device(str(device))


def residence(workload: Workload, fitted_as: Mapping[str, str]) -> Residence:
    """Where a workload is, and the bytes it holds there: all tensors that are there between two steps.

    ``fitted_as`` are the names that a profile has for the devices compared.
    """
    tensors = _sized_tensors(workload.modules)
    if workload.mode == "train":
        learnt: list[Any] = []
        for module in workload.modules:
            learnt += [parameter.grad for parameter in module.parameters()]
        if isinstance(workload.optimizer, torch.optim.Optimizer):
            learnt.append(dict(workload.optimizer.state))
        tensors += distinct(learnt)
    held: Counter[str] = Counter()
    for tensor in tensors:
        held[machine.normal_device(str(tensor.device))] += _bytes(tensor)
    return Residence(home=home(workload.modules), held=held, fitted_as=fitted_as)


def _sized_tensors(modules: Sequence[nn.Module]) -> list[Tensor]:
    """The parameters and buffers that have a shape, each once."""
    tensors: dict[int, Tensor] = {}
    for module in modules:
        for tensor in (*module.parameters(), *module.buffers()):
            if not is_lazy(tensor):
                tensors[id(tensor)] = tensor
    return list(tensors.values())


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def conventional(
    workload: Workload,
    devices: Sequence[str] | None,
    why: str,
    profile: Profile | None = None,
    optimizers: Optimizers = None,
) -> Decision:
    """The rule of every training script: an accelerator if there is one and the model fits in its free memory.

    One that cannot be used, by ``profile`` or by its version, is none, and neither is one that cannot run a step with
    these ``optimizers``. A model that is bound to a device stays there. Creates no context: where only that could tell
    what is free, the move will.
    """
    obstacles = Obstacles(workload.modules, optimizers)
    if obstacles.bound is not None:
        device = obstacles.bound.home
        return unpredicted(device, f"{device}: not to be moved: {obstacles.bound.why} ({why})")
    available = tuple(devices) if devices is not None else machine.available_devices()
    # Training adds gradients and two optimizer states.
    needed = sum(map(_bytes, _sized_tensors(workload.modules))) * (4 if workload.mode == "train" else 1)
    where = residence(workload, {})
    rule = "no accelerator is present"
    # The one that the model is on, then the one that the process has set as its current device.
    accelerators = [name for name in available if name != "cpu"]
    current = {machine.current_device(machine.split_device(name)[0]) for name in accelerators}
    for name in sorted(accelerators, key=lambda name: (name != where.home, name not in current)):
        free = machine.known_free_memory(name)
        if (refused := unusable(name, profile) or obstacles.on(name)) is not None:
            rule = f"{name} cannot be used: {refused}"
        elif free is None or needed <= free + where.held.get(name, 0):
            return unpredicted(name, f"{name}: by the default rule, as an accelerator is present ({why})")
        else:
            rule = "the model does not fit on the accelerator"
    device = "cpu" if "cpu" in available else available[0]
    return unpredicted(device, f"{device}: by the default rule, as {rule} ({why})")
