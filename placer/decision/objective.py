"""What a choice minimizes: time, money or energy. Each is seconds on a device times what a second costs there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from placer.errors import PlacerError
from placer.pricing import Cost
from placer.profile import catalog_name
from placer.units import format_count, format_dollars, format_joules, format_seconds

#: What may be minimized.
OBJECTIVES = ("time", "cost", "energy")
#: Steps that a price is told of where nobody said how many there will be.
MANY = 1_000_000
_HOUR = 3600.0
_Cost = TypeVar("_Cost", bound=Cost)


def is_cpu(device: str) -> bool:
    """Whether a device is a CPU, of this machine or of another."""
    return device.partition("@")[0].partition(":")[0] == "cpu"  # another machine's is called cpu@its-profile


class Unit(NamedTuple):
    """What a step is called: one of them as the subject of a sentence, and one that is counted."""

    one: str = "a step"
    counted: str = "step"


#: What predictions are of, as a rule.
STEP = Unit()
#: What they are of where a step is a whole job.
JOB = Unit("the job", "repeat")


@dataclass(frozen=True)
class Objective:
    """What to minimize: ``name``, one of ``OBJECTIVES``.

    ``price`` (dollars per hour) and ``watts`` are what the caller gave, as pairs by device, sorted.
    """

    name: str = "time"
    price: tuple[tuple[str, float], ...] = ()
    watts: tuple[tuple[str, float], ...] = ()

    def applied(self, cost: _Cost, steps: int | None) -> _Cost:
        """The cost of ``steps`` steps (None: a long run, of which one counts), at the caller's prices and powers."""
        watts = _of_device(self.watts, cost.device)
        return replace(
            cost,
            total_seconds=None if steps is None else cost.one_time_seconds + steps * cost.step_seconds,
            dollars_per_hour=_of_device(self.price, cost.device),
            watts=cost.watts if watts is None else watts,
        )

    def per_second(self, cost: Cost) -> float:
        """What a second on the device costs: 1, dollars, or joules. Raises PlacerError where that is not known."""
        if self.name == "time":
            return 1.0
        rate = cost.dollars_per_hour if self.name == "cost" else cost.watts
        if rate is None:
            raise PlacerError(_unknown(self.name, cost.device))
        return rate / _HOUR if self.name == "cost" else rate

    def counted(self, cost: Cost) -> float:
        """What a choice compares: seconds, dollars or joules of one step in a long run, of the whole otherwise."""
        return self.per_second(cost) * cost.seconds

    def amount(self, cost: Cost) -> str:
        """What is compared of a cost, as people read it; of a long run, dollars are those of a million steps."""
        value = self.counted(cost)
        if self.name == "time":
            return format_seconds(value)
        if self.name == "energy":
            return format_joules(value)
        return format_dollars(value if cost.total_seconds is not None else MANY * value)

    def spends(self, steps: int | None, unit: Unit) -> str:
        """The words before an amount of so many steps; of a long run, of one, or of many where it is money."""
        verb = "cost" if self.name == "cost" else "take"
        if steps is None:
            return f"a million {unit.counted}s {verb}" if self.name == "cost" else f"{unit.one} {verb}s"
        return f"{format_count(steps, unit.counted)} {verb}{'s' if steps == 1 else ''}"


#: The fastest device.
TIME = Objective()


def objective_of(name: Any = "time", price: Any = None, watts: Any = None) -> Objective:
    """The checked arguments ``objective``, ``price`` and ``watts``. Raises ValueError or TypeError."""
    prices, powers = _pairs("price", price), _pairs("watts", watts)
    if name == "cost" and not prices:
        raise ValueError(
            'objective "cost" needs price, in dollars per hour of the machine: {"cpu": 0.10, "cuda": 2.50}'
        )
    if name not in OBJECTIVES:
        raise ValueError(f"objective must be {' or '.join(map(repr, OBJECTIVES))}, not {name!r}")
    return Objective(str(name), prices, powers)


def check_priced(objective: Objective, devices: Iterable[str]) -> None:
    """Raise ValueError for a device without a price."""
    for device in devices:
        if _of_device(objective.price, device) is None:
            raise ValueError(_unknown("cost", device))


def _unknown(name: str, device: str) -> str:
    option, amount = ("price", "2.50") if name == "cost" else ("watts", "250")
    typed = f"--{option} " + (f'"{device}={amount}"' if " " in device else f"{device}={amount}")
    if name == "cost":
        return f'no price is given for {device}: price={{"{device}": dollars per hour}}, or {typed}'
    return f'the power of {device} is not known: give it, watts={{"{device}": 250}} or {typed}'


def _of_device(pairs: tuple[tuple[str, float], ...], device: str) -> float | None:
    """What was given for a device by its name, for another machine's by that machine's, or for its kind.

    ``cuda@Tesla T4`` is found under that name, under any that the catalog has for ``Tesla T4``, and under ``cuda``;
    ``cuda:1`` also under ``cuda``.
    """
    by_name = dict(pairs)
    kind, _, machine = device.partition("@")
    gpu = catalog_name(machine) if machine and by_name else ""
    aliases = [name for name in by_name if gpu and catalog_name(name) == gpu]
    for name in (device, machine, *aliases, kind, kind.partition(":")[0]):
        if name in by_name:
            return by_name[name]
    return None


def _pairs(what: str, numbers: Any) -> tuple[tuple[str, float], ...]:
    if numbers is None:
        return ()
    if not isinstance(numbers, Mapping):
        raise TypeError(f'{what} must map device names to numbers, like {{"cpu": 0.10, "cuda": 2.50}}, not {numbers!r}')
    for name, value in numbers.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not isinstance(name, str) or not is_number or not 0.0 < value < math.inf:
            raise ValueError(f"{what} must map device names to positive numbers, not {name!r} to {value!r}")
    return tuple(sorted((name, float(value)) for name, value in numbers.items()))
