"""Which devices are compared: those that are calibrated and can be used, one of each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from placer import machine
from placer.errors import ProfileError
from placer.profile import Profile
from placer.tracing import Trace

#: Of equal accelerators the first one is taken that has at least this share of the most free memory that one has:
#: scripts expect number 0, unless another job has filled it.
MOSTLY_FREE = 0.5
#: Dtypes that a kind of device cannot hold.
_LACKS = {"mps": frozenset({"float64", "complex128"})}
_ORDER = (
    "there are GPUs of several kinds, and CUDA numbers them by speed: which one is cuda shows when one is used; "
    "set CUDA_DEVICE_ORDER=PCI_BUS_ID to be sure"
)


@dataclass(frozen=True)
class Candidates:
    """The devices to compare, by the name they have now.

    ``fitted_as`` maps them to the names under which the profile has their fit, that of a twin as a rule. ``left_out``
    says of devices that were asked about, or are there, why they cannot be used.
    """

    devices: tuple[str, ...]
    fitted_as: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about the devices."""
        several = sum(machine.split_device(name)[0] == "cuda" for name in self.devices) > 1
        return (_ORDER,) if several and not machine.order_is_known() else ()


def candidates(devices: Sequence[str] | None, profile: Profile, *, here: bool, home: str = "cpu") -> Candidates:
    """The devices to compare: those asked for, else all that are calibrated (``here``: and on this machine).

    Of equal accelerators of this machine there is one, that of the model (``home``) if it is among them. Raises
    ProfileError when this machine's default accelerator works and was never calibrated: leaving it out silently would
    turn "not measured" into "not worth it".
    """
    calibrated = profile.devices()
    if not here:
        for name in devices or ():
            if name not in calibrated:
                raise _not_calibrated(name, calibrated)
        return Candidates(calibrated if devices is None else tuple(devices))
    asked = machine.available_devices() if devices is None else tuple(devices)
    needed = asked[:2] if devices is None else asked
    facts = _facts()
    fitted_as: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in asked:
        fit = _fitted_as(name, profile, facts.get(name))
        why = None if fit is not None else unusable(name, profile, facts.get(name))
        if fit is not None:
            fitted_as[name] = fit
        elif why is not None:
            left_out[name] = why
        elif name in needed:
            raise _not_calibrated(name, calibrated)
    if not fitted_as:
        raise ProfileError("; ".join(f"{name} cannot be used here ({why})" for name, why in left_out.items()))
    return Candidates(tuple(_of_each_kind(fitted_as, facts, home)), fitted_as, left_out)


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


def lacks(device: str, trace: Trace) -> str | None:
    """Why a kind of device cannot run a step that needs a dtype it does not have; None where it can."""
    missing = _LACKS.get(machine.split_device(device)[0])
    if missing is None:
        return None
    kept = (*trace.parameters, *trace.buffers, *trace.batch, *(t for call in trace.calls for t in call.outputs))
    found = next((spec.dtype for spec in kept if spec.dtype in missing), None)
    return None if found is None else f"{device} has no {found}"


def of_twins(twins: Sequence[str], home: str) -> str:
    """The one of several equal accelerators that a model goes to, which is on ``home`` now."""
    if home in twins or len(twins) == 1:
        return home if home in twins else twins[0]
    if any(map(machine.has_context, twins)):
        current = machine.current_device(machine.split_device(twins[0])[0])
        # The first one is also the current one of a process that has set none, and may have put its models elsewhere.
        return current if current in twins[1:] else max(twins, key=machine.reserved_memory)
    free = {name: machine.known_free_memory(name) or 0 for name in twins}
    return next(name for name in twins if free[name] >= MOSTLY_FREE * max(free.values()))


def _of_each_kind(found: Mapping[str, str], facts: Mapping[str, Mapping[str, Any]], home: str) -> list[str]:
    kinds: list[list[str]] = []
    for name in found:
        for twins in kinds:
            if name in facts and twins[0] in facts and machine.same_kind(facts[name], facts[twins[0]]):
                twins.append(name)
                break
        else:
            kinds.append([name])
    return [of_twins(twins, home) for twins in kinds]


def _fitted_as(device: str, profile: Profile, facts: Mapping[str, Any] | None) -> str | None:
    """The name under which a profile has the fit of a device of this machine, or of its twin; None without one."""
    calibrated = profile.devices()
    return next((name for name in _named(device, profile, facts) if name in calibrated), None)


def _named(device: str, profile: Profile, facts: Mapping[str, Any] | None) -> list[str]:
    """What a profile may call a device of this machine: its own name first, then those of its twins.

    Where the driver may number the devices otherwise than torch does, what is known of a device may be another's.
    """
    if not machine.order_is_known():
        return [device]
    then = {old["device"]: old for old in profile.fingerprint.get("accelerators", ())}
    alike = [name for name, old in then.items() if facts is not None and machine.same_kind(old, facts)]
    own = [device] if device in alike or device not in then or not alike else []
    return [*own, *(name for name in alike if name != device)]


def _facts() -> dict[str, dict[str, Any]]:
    return {str(facts["device"]): facts for facts in machine.describe_accelerators()}


def _not_calibrated(device: str, calibrated: Sequence[str]) -> ProfileError:
    known = ", ".join(calibrated) or "none"
    return ProfileError(f"{device} is not calibrated (calibrated: {known}); run: placer calibrate")
