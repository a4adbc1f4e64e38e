"""``placer fleet``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from placer.cli.output import result_options, write
from placer.cli.target import checked, objective_option, parse_amounts, target_options, work

if TYPE_CHECKING:
    from placer.fleets import Machine

#: The form that is about the machine it is made on: with none named, only this one is priced.
_OF_A_NODE = "nfd"


@click.command("fleet")
@target_options(required=True)
@click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="FILE|NAME|NAME=N[:GPU]",
    help="A machine by its profile; here, this one; a CPU with N cores; or one called NAME with N vCPUs, and "
    "perhaps a GPU: g4dn.xlarge=4:T4. May be repeated.",
)
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="GPU",
    help="A GPU beside this machine's CPU (placer gpus lists them), or all. May be repeated.",
)
@click.option("--vcpus", multiple=True, metavar="N", help="A cloud CPU with N vCPUs. May be repeated.")
@click.option(
    "--nodes",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Machines of a CSV or JSON file: name; profile, vcpus or gpu; price, count. May be repeated.",
)
@click.option(
    "--catalog", type=click.Choice(["skypilot"]), help="The instance types of SkyPilot's catalog, with their prices."
)
@click.option("--profile", metavar="FILE|NAME", help="Take the machine of this profile for this one.")
@click.option(
    "--price",
    multiple=True,
    metavar="NAME=DOLLARS",
    help="Dollars per hour of a machine, by its name; or of a GPU that this machine's CPU drives. May be repeated.",
)
@objective_option("What stands first.")
@click.option(
    "--target",
    "limit",
    metavar="50ms|2h",
    help="What reaches it stands first, cheapest at the top. It is meant for all --steps, or all repeats of "
    "a job; without their number, for one step or job.",
)
@result_options(
    "text",
    "json",
    "html",
    "nfd",
    "slurm",
    text="nfd: labels for Kubernetes node feature discovery. slurm: #SBATCH lines.",
)
def command(
    target: str,
    machines: tuple[str, ...],
    gpus: tuple[str, ...],
    vcpus: tuple[str, ...],
    files: tuple[str, ...],
    catalog: str | None,
    profile: str | None,
    price: tuple[str, ...],
    objective: str,
    limit: str | None,
    form: str,
    output: str | None,
    **of_a_step: Any,
) -> None:
    """Say on which machine it should run, and for how much.

    Without a machine, this one is compared with the GPUs that clouds rent, driven by its CPU. It is called "here".
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in placer explain
    context = click.get_current_context()
    from placer.cli.machines import RENTED, host, named, of_file, of_gpus, parse_machine, parse_vcpus, priced
    from placer.fleets import rank
    from placer.units import parse_duration

    seconds = None if limit is None else checked(parse_duration, limit)
    prices = checked(parse_amounts, "price", price, "machine") or {}
    asked = [checked(parse_machine, text) for text in machines]
    clouds = [checked(parse_vcpus, text) for text in vcpus]
    here = host(profile)
    compared = [named(machine, here) for machine in asked] + of_gpus(gpus, here.profile) + clouds
    for path in files:
        compared += of_file(path, here.profile)
    if catalog is not None:
        from placer.integrations import skypilot

        compared += skypilot.machines()
    if not (machines or files or catalog):
        rented = [] if gpus or vcpus or form == _OF_A_NODE else RENTED
        compared = [here, *compared, *of_gpus(rented, here.profile)]
    compared = checked(priced, compared, prices, here)
    if form == _OF_A_NODE and len(compared) > 1:
        raise click.UsageError(
            f"--format nfd labels the node it runs on: name one machine, not {len(compared)}", context
        )
    model = work(context, target, **of_a_step)
    fleet = rank(model, compared, objective=objective, target=seconds)
    fleet = replace(fleet, notes=(*_notes(here, compared), *fleet.notes))
    write(fleet, form, output)


def _notes(here: Machine, machines: Sequence[Machine]) -> list[str]:
    """Which CPU drives the GPUs, and where the prices come from."""
    notes = []
    cpu = here.profile.fingerprint.get("cpu", "unknown CPU")
    if any(machine.gpu and machine.profile is here.profile for machine in machines):
        notes.append(f"the CPU beside the GPUs is {here.name}: {cpu}, {here.profile.fingerprint.get('cores')} cores")
    elif any(machine.name == here.name for machine in machines):
        notes.append(f"{here.name}: {cpu}, {here.profile.fingerprint.get('cores')} cores")
    dates = {machine.priced for machine in machines if machine.price is not None}
    if listed := sorted(dates - {""}):
        notes.append(f"prices on demand are those of SkyPilot's catalog of {' and '.join(listed)}")
    if "" in dates:
        notes.append("prices per hour are as given")
    return notes
