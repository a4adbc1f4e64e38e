"""How a reader tells what a device's numbers rest on: marks beside its name, and a line for each mark."""

from __future__ import annotations

from collections.abc import Mapping

from placer.decision import is_cpu
from placer.explanation.rows import DeviceRow

#: The provenance, in a legend, of a CPU that was not calibrated.
_ESTIMATED = "estimated"
#: Marks beside the names of devices that placer did not measure. A calibrated device has none.
MARKS = {_ESTIMATED: "§", "published": "†", "data sheet": "‡"}
_MEANING = {
    _ESTIMATED: "estimated from a similar CPU's measurements, not calibrated here; run: placer calibrate",
    "published": "from measurements that others published of this GPU, not from a calibration.",
    "data sheet": "from the GPU's data sheet and published measurements of other GPUs: nobody's timings of this one.",
}


def kind(name: str, provenance: str) -> str:
    """What a device's numbers rest on, in a word: its provenance; of a CPU that was not calibrated, ``estimated``."""
    return _ESTIMATED if is_cpu(name) and provenance != "calibrated" else provenance


def marked(name: str, provenance: str) -> str:
    """The name of a device with the mark of what its numbers rest on."""
    mark = kind_mark(name, provenance)
    return f"{name} {mark}" if mark else name


def kind_mark(name: str, provenance: str) -> str:
    """The mark of what a device's numbers rest on; "" of a calibrated one."""
    return MARKS.get(kind(name, provenance), "")


def headings(devices: Mapping[str, DeviceRow]) -> dict[str, str]:
    """What each device is called above its numbers."""
    return {name: marked(name, row.provenance) for name, row in devices.items()}


def legend(devices: Mapping[str, DeviceRow]) -> list[str]:
    """One line for each mark that stands somewhere."""
    found = {kind(name, row.provenance) for name, row in devices.items()}
    return [f"{MARKS[what]} {meaning}" for what, meaning in _MEANING.items() if what in found]


def all_calibrated(devices: Mapping[str, DeviceRow]) -> bool:
    """Whether placer measured every device."""
    return all(row.provenance == "calibrated" for row in devices.values())
