"""What batch systems read of a fleet: labels of a Kubernetes node, and the lines that ask Slurm for a machine."""

from __future__ import annotations

import re
from collections.abc import Mapping

from placer.errors import PlacerError
from placer.explanation import kind
from placer.fleets.data import FleetData, FleetRow
from placer.fleets.rendering import called, of_how_many, short_gpu
from placer.printable import printable
from placer.units import format_duration, format_interval

#: Namespace of labels that node feature discovery sets without further configuration.
NAMESPACE = "feature.node.kubernetes.io"
#: Characters that the name of a Kubernetes label has at most, and its value.
LONGEST = 63


def nfd(fleet: FleetData) -> str:
    """Labels for the node that runs it, as a file of node feature discovery's local feature source.

    Each line is ``<namespace>/<name>=<value>``, comments begin with ``#`` (NFD, "Customization guide", "Local feature
    source"). Name and value have at most 63 letters, digits, ``-``, ``_`` and ``.``, and a letter or digit at both ends
    (Kubernetes, "Labels and Selectors"). Times are whole microseconds, as the node affinity operators Gt and Lt compare
    integers. Raises ValueError for several machines: a file is about the node it is on.
    """
    if len(fleet.rows) > 1:
        raise ValueError(f"nfd labels one node, the one it runs on: compare one machine, not {len(fleet.rows)}")
    row = fleet.rows[0]
    low, high = row.between
    facts = {
        "device": row.device, "us": _microseconds(row.seconds), "low-us": _microseconds(low),
        "high-us": _microseconds(high), "numbers": kind(row.device, row.provenance),
        "fits": str(row.fits).lower(),
    }  # fmt: skip
    name = _label(target_name(fleet.workload), LONGEST - len("placer..numbers"))
    lines = [f"# placer: {_what(fleet)} on {called(row)}; times in microseconds"]
    lines += [f"{NAMESPACE}/placer.{name}.{key}={_label(value, LONGEST)}" for key, value in facts.items()]
    return "\n".join(lines) + "\n"


def slurm(fleet: FleetData) -> str:
    """The ``#SBATCH`` lines of a batch script for the best machine: ``--gres=gpu:<type>:1``, or nothing for a CPU.

    ``--gres`` takes ``name[[:type]:count]`` (Slurm, "sbatch"). Types are what a site calls its GPUs in gres.conf, so a
    comment says what to check. Raises PlacerError where no machine does it.
    """
    best = fleet.best
    if best is None:
        raise PlacerError(f"no machine to ask Slurm for: {called(fleet.rows[0])}: {fleet.rows[0].verdict}")
    lines = [f"# placer: {_what(fleet)} on {best.device} of {called(best)}: {_told(fleet, best)}"]
    if best.device == "cpu":
        return "\n".join([*lines, "# No GPU is needed: no --gres."]) + "\n"
    kind = gres_type(best.gpu)
    lines.append("# The type of the GPU is the site's own name: sinfo -o %G lists them.")
    lines.append(f"#SBATCH --gres=gpu:{kind}:1" if kind else "#SBATCH --gres=gpu:1")
    return "\n".join(lines) + "\n"


def gres_type(gpu: str) -> str:
    """What sites usually call a GPU: ``t4`` for a Tesla T4, ``rtx_4090`` for an NVIDIA GeForce RTX 4090; "" of none."""
    return re.sub(r"[^a-z0-9]+", "_", short_gpu(gpu).lower()).strip("_")


def target_name(workload: Mapping[str, object]) -> str:
    """The name of what runs."""
    return str(printable(workload.get("target", "model")))


def _what(fleet: FleetData) -> str:
    name = target_name(fleet.workload)
    return name if fleet.count is None else f"{of_how_many(fleet)} of {name}"


def _told(fleet: FleetData, row: FleetRow) -> str:
    each = f" a {fleet.unit}" if fleet.count is None else " in all"
    return f"{format_duration(row.seconds)}{each}, 90% between {format_interval(*row.between, row.seconds)}"


def _microseconds(seconds: float) -> str:
    return str(max(round(seconds * 1e6), 1))


def _label(text: str, longest: int) -> str:
    """Text as the name or the value of a label may be."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:longest].strip("-_.") or "model"
