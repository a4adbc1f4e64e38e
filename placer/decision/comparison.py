"""Which devices are compared, where the workload is now, and the prediction for each of them."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from placer import machine
from placer import profile as profiles
from placer.decision import threads as thread_counts
from placer.decision.candidates import candidates, lacks
from placer.decision.objective import TIME, Objective
from placer.decision.split import accelerators_of, split_predictions
from placer.decision.threads import ThreadOption
from placer.errors import ProfileError
from placer.nest import tensors
from placer.placement import only_device
from placer.pricing import Prediction, Residence, predict
from placer.profile import Profile
from placer.tracing import Trace
from placer.workload import Workload


def unusual_settings() -> tuple[str, ...]:
    """The switches that are not as torch sets them, and change which kernels run."""
    cudnn = torch.backends.cudnn
    matmul, convolution, recurrent = machine.tf32()
    found = {
        "tf32 in matmul": matmul,
        "no tf32 in convolutions": not convolution,
        "no tf32 in recurrent layers": not recurrent,
        "no cudnn": not cudnn.enabled,
        "cudnn.benchmark": cudnn.benchmark,
        "cudnn.deterministic": cudnn.deterministic,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    return tuple(name for name, is_so in found.items() if is_so)


def setting_notes(profile: Profile, devices: Sequence[str]) -> tuple[str, ...]:
    """What a reader should know where a switch makes a prediction less sure."""
    said: list[str] = []
    cudnn = torch.backends.cudnn
    then, now = profile.fingerprint.get("matmul_precision"), machine.matmul_precision()
    if "cpu" in devices and "medium" in (then, now) and then != now:
        said.append(
            f"the CPU was calibrated with float32 matmul precision {then!r} and is now asked with {now!r}: a CPU with "
            "bfloat16 instructions multiplies faster with 'medium', which is not predicted"
        )
    if any(machine.split_device(device)[0] == "cuda" for device in devices):
        if not cudnn.enabled:
            said.append("cuDNN is off: convolutions and recurrent layers take longer on cuda than predicted")
        elif cudnn.benchmark:
            said.append(
                "cudnn.benchmark is on: convolutions on cuda may take less than predicted, and the first call of each "
                "shape takes longer"
            )
        elif cudnn.deterministic:
            said.append("cudnn.deterministic is on: convolutions on cuda may take longer than predicted")
    if torch.are_deterministic_algorithms_enabled():
        said.append("deterministic algorithms are on: gathers, scatters and their gradients may take longer than said")
    return tuple(said)


def home(workload: Workload) -> str:
    """The one device that all weights of a workload are on; the CPU where they differ, or are nowhere yet."""
    return device_name(only_device(workload.modules))


def device_name(device: torch.device | None) -> str:
    """A device as profiles name it; the CPU for none, and for tensors without memory."""
    return "cpu" if device is None or device.type == "meta" else machine.normal_device(str(device))


def residence(workload: Workload, fitted_as: Mapping[str, str]) -> Residence:
    """Where a workload is; ``fitted_as`` are the names that a profile has for the devices compared."""
    by_device: Counter[torch.device] = Counter()
    for tensor in {id(tensor): tensor for tensor in _held(workload)}.values():
        by_device[tensor.device] += tensor.numel() * tensor.element_size()
    held: Counter[str] = Counter()
    for device, size in by_device.items():
        held[machine.normal_device(str(device))] += size
    return Residence(home=home(workload), held=held, fitted_as=fitted_as)


def _held(workload: Workload) -> Iterator[Tensor]:
    """Every tensor that is there between two steps, and that the steps use."""
    training = workload.mode == "train"
    for module in workload.modules:
        for parameter in module.parameters():
            if not is_lazy(parameter):
                yield parameter
            if training and parameter.grad is not None:
                yield parameter.grad
        yield from (buffer for buffer in module.buffers() if not is_lazy(buffer))
    if training and isinstance(workload.optimizer, torch.optim.Optimizer):
        yield from tensors(dict(workload.optimizer.state))


#: What a GPU's name begins with that its reader does not need.
_MAKER = re.compile(r"^(?:NVIDIA|AMD|Intel|Apple)(?:\(R\))? (?:GeForce )?")


class Prices(NamedTuple):
    """A prediction per device, and the numbers of CPU threads that were compared (none unless that was asked for)."""

    predictions: dict[str, Prediction]
    tried: tuple[ThreadOption, ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What is compared: devices of a profile, and those of other machines beside them.

    ``what_if`` adds its accelerator, ``beside`` are profiles of which every device is added. ``notes`` tell a reader
    why it is these. ``fitted_as`` and ``left_out`` are those of ``Candidates``. ``here``: the devices are this
    machine's. ``objective`` is what makes one the best.
    """

    profile: Profile
    devices: tuple[str, ...]
    threads: str = "keep"
    what_if: Profile | None = None
    beside: tuple[Profile, ...] = ()
    notes: tuple[str, ...] = ()
    fitted_as: Mapping[str, str] = dataclasses.field(default_factory=dict)
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    here: bool = True
    objective: Objective = TIME

    def price(self, trace: Trace, workload: Workload) -> Prices:
        """A prediction per device (see ``predict_all``). Raises ProfileError."""
        where = residence(workload, self.fitted_as) if self.here else Residence(here=False)
        able = tuple(name for name in self.devices if lacks(name, trace) is None)
        predictions, tried = predict_all(trace, workload, self.profile, able or self.devices, self.threads, where)
        accelerators = accelerators_of(predictions, self.profile, where)
        threads = predictions["cpu"].threads if "cpu" in predictions else None
        others = [(other, other.devices()) for other in self.beside]
        if self.what_if is not None:
            others.insert(0, (self.what_if, (_accelerator(self.what_if),)))
        labels = _labels([other.name for other, _ in others])
        for (other, names), label in zip(others, labels, strict=True):
            found = _elsewhere(trace, workload, other, label, names, predictions)
            accelerators += accelerators_of(found, other, Residence(here=False))
            predictions.update(found)
        if workload.on_cpu:
            predictions.update(split_predictions(trace, workload, accelerators, self.profile, threads, where))
        return Prices(predictions, tried)

    def without(self, trace: Trace) -> dict[str, str]:
        """The devices that are left out for this trace, and why."""
        lacking = {name: why for name in self.devices if (why := lacks(name, trace)) is not None}
        return {**self.left_out, **(lacking if len(lacking) < len(self.devices) else {})}


def compare(
    profile: Profile,
    *,
    devices: Sequence[str] | None,
    threads: str = "keep",
    what_if: Profile | None = None,
    beside: tuple[Profile, ...] = (),
    here: bool = True,
    home: str = "cpu",
    notes: tuple[str, ...] = (),
    objective: Objective = TIME,
) -> Comparison:
    """The comparison that was asked for, of a model that is on ``home``.

    Raises ProfileError for a device that was never calibrated.
    """
    found = candidates(devices, profile, here=here, home=home)
    said = (*notes, *setting_notes(profile, found.devices), *found.notes) if here else notes
    return Comparison(
        profile, found.devices, threads, what_if, beside, said, fitted_as=found.fitted_as, left_out=found.left_out,
        here=here, objective=objective,
    )


def predict_all(
    trace: Trace, workload: Workload, profile: Profile, devices: Sequence[str], threads: str,
    where: Residence | None = None,
) -> Prices:  # fmt: skip
    """A prediction per device, the CPU's with the number of threads it will run with; and the numbers compared.

    With ``threads="tune"`` these are the calibrated ones and the one the process has, else none.
    """
    here = profile.fingerprint.get("cpu") == machine.cpu_model()
    now = torch.get_num_threads() if here else profiles.default_threads(profile)
    asked = partial(predict, trace, profile, data=workload.data, steps=workload.steps, residence=where,
                    loading=workload.loading)  # fmt: skip
    found = asked(devices=devices, threads=now)
    if "cpu" not in found:
        return Prices(found, ())
    if here:
        # Priced at the nearest calibrated count, but this is the one it would run with.
        found["cpu"] = dataclasses.replace(found["cpu"], threads=torch.get_num_threads())
    if threads != "tune":
        return Prices(found, ())
    current = found["cpu"].threads
    tried = {current: found["cpu"]}
    for count in profile.threads("cpu"):
        if count not in tried:
            tried[count] = asked(devices=("cpu",), threads=count)["cpu"]
    best = thread_counts.best_count({count: p.step_seconds for count, p in tried.items()}, current)
    found["cpu"] = tried[best]
    return Prices(found, thread_counts.options(tried, current))


def _accelerator(profile: Profile) -> str:
    """The first accelerator of a profile."""
    accelerator = next((name for name in profile.devices() if name != "cpu"), None)
    if accelerator is None:
        raise ProfileError(f"profile {profile.name!r} has no accelerator (calibrated: {', '.join(profile.devices())})")
    return accelerator


def _elsewhere(
    trace: Trace, workload: Workload, profile: Profile, label: str, devices: Sequence[str], taken: Container[str]
) -> dict[str, Prediction]:
    """Devices of another machine's profile, named ``cuda@label``; of the catalog's GPUs, ``cuda@Tesla T4``.

    Where such a name is ``taken``, a number follows it.
    """
    found = predict(
        trace, profile, devices=devices, threads=profiles.default_threads(profile), data=workload.data,
        steps=workload.steps, residence=Residence(here=False), loading=workload.loading,
    )  # fmt: skip
    named: dict[str, Prediction] = {}
    for device, prediction in found.items():
        fit = prediction.priced.fit
        gpu = fit.gpu if fit is not None and prediction.provenance != "calibrated" else ""
        own = f"{device}@{without_maker(gpu) or label}"
        numbered = (f"{own} ({number})" for number in itertools.count(2))
        name = next(name for name in itertools.chain((own,), numbered) if name not in taken)
        named[name] = dataclasses.replace(prediction, device=name)
    return named


def _labels(names: Sequence[str]) -> list[str]:
    """What to call profiles by their paths: the last part, with as many folders as tell it from the others."""
    paths = [Path(name.removesuffix(".json") or "profile") for name in names]
    parts = [path.parts[bool(path.anchor) :] for path in paths]
    return ["/".join(_distinct_end(own, parts)) for own in parts]


def _distinct_end(own: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    ends = (own[-length:] for length in range(1, len(own)))
    return next((end for end in ends if sum(other[-len(end) :] == end for other in others) == 1), own)


def without_maker(gpu: str) -> str:
    """A GPU's name as people say it: ``RTX 4090``, not ``NVIDIA GeForce RTX 4090``."""
    return _MAKER.sub("", gpu)
