"""SkyPilot: how long a task takes on each candidate of its optimizer, and what the instances of its catalog cost.

>>> estimate = estimator(model, (64, 84), mode="train", steps=100_000)
>>> task.set_resources({sky.Resources(cpus="4"), sky.Resources(accelerators="T4")})
>>> task.set_time_estimator(estimate)
>>> optimize(task, minimize="cost")

SkyPilot is imported by ``optimize`` alone.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from placer.errors import PlacerError, PlacerWarning, ProfileError
from placer.fleets import Machine, Traced, cpu_class, traced
from placer.integrations.skypilot_catalog import cheapest_of_kinds, gpu_called, offers
from placer.profile import Profile, find_gpu
from placer.workload import Job, Workload, check_choice, make_workload

#: Seconds that a candidate takes which cannot do the work: some thirty years. SkyPilot's optimizer fails on infinity.
NEVER = 1e9
#: vCPUs that SkyPilot picks where nobody says how many.
DEFAULT_VCPUS = 8


@dataclass(frozen=True)
class Prices:
    """Dollars per hour on demand of the cheapest instances of SkyPilot's catalog.

    ``gpus``: with one GPU, by its name in ``placer gpus``. ``cpus``: without any, by vCPUs.
    """

    gpus: Mapping[str, float]
    cpus: Mapping[float, float]


def estimator(
    what: Callable[..., Any] | Workload | Job, batch_shape: Any = None, *,
    hosts: Callable[[float], Profile] | None = None, **workload: Any,
) -> Callable[[Any], float]:  # fmt: skip
    """A function for ``Task.set_time_estimator``: from ``sky.Resources`` to the seconds that all of the work takes.

    Args:
        what: a model or a step, with the arguments that ``placer.explain`` takes for it; a ``Workload``; or a ``Job``.
            It must say how much there is to do: ``steps=``, of a job ``repeats=``.
        hosts: the profile of a CPU with so many vCPUs; None: ``placer.fleets.cpu_class``.

    The step is traced now, and priced once for each GPU and number of vCPUs. A candidate with a GPU runs on the GPU,
    driven by the CPU of its vCPUs, one without runs on the CPU. One GPU is priced where a candidate has several, as
    placer does not share out a model; a warning says so. What placer does not know, such as a TPU, and what the work
    does not fit on takes ``NEVER``, and a warning names it. Each is told once.

    Raises:
        ValueError, TypeError: a wrong argument, or no number of steps.
        TraceError: the step cannot be traced.
    """
    if isinstance(what, (Job, Workload)):
        if batch_shape is not None or workload:
            raise ValueError(f"a {type(what).__name__} says what to run: give no batch_shape, mode, steps and the like")
    else:
        what = make_workload(what, batch_shape, **workload)
    if isinstance(what, Job) and what.repeats is None:
        raise ValueError("how long will it take? Say how often the job runs: placer.Job(parts, repeats=10)")
    if isinstance(what, Workload) and what.steps is None:
        raise ValueError("how long will it take? Say how many steps there are: steps=100_000")
    return _Estimator(traced(what), hosts or cpu_class)


def for_task(task: Any, what: Callable[..., Any] | Workload | Job, batch_shape: Any = None, **workload: Any) -> Any:
    """``task`` itself, with an ``estimator`` of the work set on it. Raises as that does."""
    return task.set_time_estimator(estimator(what, batch_shape, **workload))


def optimize(task: Any, *, minimize: str = "cost") -> Any:
    """Let SkyPilot's optimizer choose for a task with an estimator, and keep its choice: the ``sky.Resources``.

    The task then asks for these alone. It has to run before ``sky.launch``, in this process: SkyPilot's server gets
    tasks as YAML, which holds no estimator, and assumes an hour for each candidate. ``minimize`` is ``"cost"`` or
    ``"time"``. SkyPilot's own errors pass through, as where no cloud is enabled.

    Raises:
        ValueError: the task has no estimator, or ``minimize`` is neither.
        PlacerError: SkyPilot is not installed.
    """
    check_choice("minimize", minimize, ("cost", "time"))
    if task.time_estimator_func is None:
        raise ValueError("the task has no estimator: placer.integrations.skypilot.for_task(task, model, ...) sets one")
    try:
        import sky
        from sky.optimizer import Optimizer
        from sky.utils.common import OptimizeTarget
    except ImportError as error:
        raise PlacerError(f"SkyPilot cannot be imported ({error}): pip install skypilot") from None
    with sky.Dag() as dag:
        dag.add(task)
    Optimizer.optimize(dag, minimize=OptimizeTarget[minimize.upper()], quiet=True)
    best = task.best_resources
    task.set_resources(best)
    return best


def machines(
    cloud: str | None = None, gpus: Iterable[str] | None = None, region: str | None = None
) -> list[Machine]:
    """The instance types of SkyPilot's catalog, for ``placer.fleet``; the cheapest first.

    One for each GPU and number of vCPUs: the cheapest of all clouds and regions, or of those that are named. Instances
    have one GPU that placer knows, or none. ``gpus`` keeps only those with one of these, and those without any.

    Raises:
        PlacerError: no catalog on this disk, or no such cloud or region in it.
        UnknownGPU: placer's catalog has no GPU of that name.
    """
    wanted = None if gpus is None else {find_gpu(name).name for name in gpus}
    found: list[Machine] = []
    for offer in cheapest_of_kinds(offer for offer in offers(cloud, region) if offer.count in (0, 1)):
        gpu = gpu_called(offer.gpu) if offer.gpu else ""
        if gpu is None or (gpu and wanted is not None and gpu not in wanted) or not (gpu or offer.vcpus):
            continue
        found.append(Machine(
            offer.instance, cpu_class(offer.vcpus or DEFAULT_VCPUS, offer.memory_gb), gpu=gpu, price=offer.price,
            note=f"{offer.cloud} {offer.region}, price of {offer.date}", priced=offer.date,
        ))  # fmt: skip
    return found


def prices(cloud: str | None = None, region: str | None = None) -> Prices:
    """What the cheapest instances of SkyPilot's catalog cost per hour. Raises PlacerError where there is no catalog."""
    by_gpu: dict[str, float] = {}
    by_vcpus: dict[float, float] = {}
    for offer in cheapest_of_kinds(offer for offer in offers(cloud, region) if offer.count in (0, 1)):
        gpu = gpu_called(offer.gpu) if offer.gpu else ""
        if gpu:
            by_gpu.setdefault(gpu, offer.price)
        elif gpu == "" and offer.vcpus:
            by_vcpus.setdefault(offer.vcpus, offer.price)
    return Prices(dict(sorted(by_gpu.items())), dict(sorted(by_vcpus.items())))


class _Estimator:
    """Seconds of traced work on the resources that SkyPilot asks for, each kind priced once."""

    def __init__(self, work: Traced, hosts: Callable[[float], Profile]) -> None:
        self._work, self._hosts = work, hosts
        self._seconds: dict[tuple[str, float], float] = {}
        self._told: set[str] = set()

    def __call__(self, resources: Any) -> float:
        accelerator, count = next(iter((resources.accelerators or {}).items()), ("", 0))
        gpu = gpu_called(accelerator) if accelerator else ""
        if gpu is None:
            self._tell(f"placer knows no GPU {accelerator!r}: it takes NEVER; placer gpus lists those that it knows")
            return NEVER
        if gpu and count != 1:
            self._tell(f"{accelerator}:{count:g} is priced as one {accelerator}: placer does not share out a model")
        return self._on(gpu, _number(resources.cpus) or DEFAULT_VCPUS)

    def _on(self, gpu: str, vcpus: float) -> float:
        if (gpu, vcpus) not in self._seconds:
            self._seconds[gpu, vcpus] = self._priced(gpu, vcpus)
        return self._seconds[gpu, vcpus]

    def _priced(self, gpu: str, vcpus: float) -> float:
        name = gpu or f"{vcpus:g} vCPUs"
        machine = Machine(name, self._hosts(vcpus), gpu=gpu)
        try:
            totals = self._work.totals(machine)
        except ProfileError as error:
            self._tell(f"{name} takes NEVER: {error}")
            return NEVER
        total = next((each for device, each in totals.items() if (device == "cpu") != bool(gpu)), None)
        if total is None or total.total_seconds is None or not total.fits:
            self._tell(f"{name} takes NEVER: the work does not {'run there' if total is None else 'fit its memory'}")
            return NEVER
        return total.total_seconds

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            warnings.warn(PlacerWarning(message), stacklevel=3)


def _number(asked: str | None) -> float | None:
    """vCPUs from SkyPilot's ``"8"`` or ``"8+"``; None where nobody said."""
    found = re.match(r"\d+(\.\d+)?", str(asked or ""))
    return float(found[0]) if found else None
