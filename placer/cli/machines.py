"""Which machines a command line names: profiles, GPUs, CPUs, numbers of vCPUs, a file of them, a catalog of clouds."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.decision import current_profile, profile_named, without_maker
from placer.errors import PlacerError, UnknownCPU, UnknownGPU
from placer.fleets import Machine, cpu_called, cpu_class, gpu_beside, machine_named
from placer.profile import Profile, catalog_name, find_cpu, find_gpu, find_instance, gpus

#: What this machine is called among others, and on the command line.
HERE, SHORT = "this machine", "here"
#: GPUs that clouds rent by the hour: what is compared where nobody names a machine.
RENTED = ("T4", "V100", "L4", "A10G", "A100 40GB", "A100 80GB", "L40S", "H100", "H200")
#: What a machine in a file may say.
FIELDS = ("name", "profile", "vcpus", "gpu", "price", "count")
_ALL = "all"


def host(profile: str | None) -> Machine:
    """This machine, or the one of a profile: with its CPU, other GPUs are compared."""
    if profile is None:
        cpu_profile = current_profile()
        return Machine(HERE, cpu_profile, note="; ".join(cpu_profile.warnings) if cpu_profile.estimated else "")
    cpu_profile = profile_named(profile)
    path = Path(cpu_profile.name or profile)
    name = path.parent.name if path.name in ("profile.json", "profile.json.xz") else path.stem
    return Machine(name or profile, cpu_profile)


def parse_machine(text: str) -> Machine | str:
    """``NAME=N``, with ``:GPU`` or without; anything else is a name, or a file.

    N are cores of a CPU of the catalog, else vCPUs: see ``cpu_called``. Raises ValueError, UnknownGPU.
    """
    name, assigned, rest = text.partition("=")
    if Path(text).exists():
        return text
    if not assigned:
        name, _, gpu = text.rpartition(":")
        try:
            find_cpu(name)
        except UnknownCPU:
            return text
        raise ValueError(f"--machine {text!r}: give the number of vCPUs, or cores, too, like {name}=48:{gpu}")
    number, _, gpu = rest.partition(":")
    try:
        if not name.strip():
            raise ValueError("it has no name")
        profile = cpu_called(name.strip(), float(number))
    except ValueError as error:
        raise ValueError(
            f"--machine {text!r} is not a name with vCPUs, or cores, and perhaps a GPU, like g4dn.xlarge=4:T4 ({error})"
        ) from None
    return Machine(name.strip(), profile, gpu=_gpu(gpu), note=str(profile.fingerprint["cpu"]))


def parse_vcpus(text: str) -> Machine:
    """A cloud CPU of which only the number of vCPUs is known. Raises ValueError."""
    try:
        return Machine(f"{float(text):g} vCPUs", cpu_class(float(text)))
    except ValueError as error:
        raise ValueError(f"--vcpus {text!r}: {error}") from None


def _gpu(name: str) -> str:
    """The name in the catalog of a GPU; "" of none. Raises UnknownGPU."""
    return find_gpu(name.strip()).name if name.strip() else ""


def named(asked: Machine | str, here: Machine) -> Machine:
    """What was asked for; by a name: ``here``, or a machine by its profile or its GPU. Raises ProfileError."""
    if isinstance(asked, Machine):
        return asked
    return here if asked == SHORT else machine_named(asked, here.profile)


def of_gpus(names: Iterable[str], cpu: Profile) -> list[Machine]:
    """Each GPU beside that CPU; ``all``: every one of the catalog that is a card. Raises UnknownGPU."""
    cards = [sheet.name for sheet in gpus().values() if not sheet.integrated]
    wanted: list[str] = []
    for name in names:
        wanted += cards if name.lower() == _ALL else [find_gpu(name).name]
    return [gpu_beside(name, cpu) for name in dict.fromkeys(wanted)]


def of_file(path: str, cpu: Profile) -> list[Machine]:
    """The machines of a CSV file with a header, or of a JSON list: see ``FIELDS``.

    Raises PlacerError, which names the row, for anything else, and OSError where there is no such file.
    """
    content = Path(path).read_bytes()
    try:
        text = content.decode("utf-8-sig")
        rows = json.loads(text) if Path(path).suffix == ".json" else list(csv.DictReader(io.StringIO(text, newline="")))
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise ValueError("not a list of objects")
    except (ValueError, csv.Error) as error:
        raise PlacerError(f"{path} is no list of machines: {error}") from None
    if not rows:
        raise PlacerError(f"{path} names no machine: give each a row with name, and profile or vcpus or gpu")
    machines, classes = [], dict[str, Machine]()
    for number, row in enumerate(rows, 1):
        try:
            machines.append(_of_row(row, cpu, classes))
        except (ValueError, TypeError, OverflowError, UnknownGPU) as error:
            raise PlacerError(f"{path}, machine {number}: {error}") from None
    return machines


def priced(machines: Sequence[Machine], prices: Mapping[str, float], here: Machine) -> list[Machine]:
    """The machines, with the prices that were given by their names, or by a GPU's beside this machine's CPU.

    Raises ValueError for the price of a name that no machine has.
    """
    with_prices = list(machines)
    for name, price in prices.items():
        numbers = [number for number, machine in enumerate(machines) if _is_called(machine, name, here)]
        if not numbers:
            names = ", ".join(dict.fromkeys(without_maker(machine.name) for machine in machines[:12]))
            raise ValueError(f"--price {name!r} names no machine that is compared: {names}")
        for number in numbers:
            with_prices[number] = replace(machines[number], price=price, priced="")
    return with_prices


def _is_called(machine: Machine, name: str, here: Machine) -> bool:
    name = here.name if name == SHORT else name
    if name.lower() in (machine.name.lower(), without_maker(machine.name).lower()):
        return True
    return bool(machine.gpu) and catalog_name(name) == machine.name


def _of_row(row: Mapping[str, Any], cpu: Profile, profiles: dict[str, Machine]) -> Machine:
    """One machine of a file. Profiles are read once: machines of one profile are of one kind."""
    fields = {str(key).strip(): value for key, value in row.items() if value not in (None, "")}
    wrong = [key for key in fields if key not in FIELDS]
    if wrong:
        raise ValueError(f"unknown field {wrong[0]!r}; known: {', '.join(FIELDS)}")
    if not fields.get("name"):
        raise ValueError("it has no name")
    name, gpu = str(fields["name"]), _gpu(str(fields.get("gpu", "")))
    if "profile" in fields and "vcpus" in fields:
        raise ValueError(f"{name} has a profile and vcpus: give one of them")
    count = float(fields.get("count", 1))
    if count != int(count):
        raise ValueError(f"count of {name} must be a whole number, not {fields['count']!r}")
    price = float(fields["price"]) if "price" in fields else None
    if "profile" in fields:
        text = str(fields["profile"])
        if text not in profiles:
            profiles[text] = machine_named(text, cpu)
        with_profile = profiles[text]
        machine = replace(with_profile, gpu=gpu or with_profile.gpu)
    elif "vcpus" in fields or find_instance(name):
        vcpus = float(fields["vcpus"]) if "vcpus" in fields else None
        machine = Machine(name, cpu_called(name, vcpus), gpu=gpu)
    elif gpu:
        machine = gpu_beside(gpu, cpu)
    else:
        raise ValueError(f"what is {name}? Give profile or vcpus, or a gpu that the CPU of this machine drives")
    return replace(machine, name=name, price=price, count=int(count))
