"""``placer profile``: show machine profiles, and carry them from one machine to another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from placer.cli.options import checked, loaded
from placer.cli.output import say, show_line, show_text, terminal
from placer.printable import printable
from placer.units import format_seconds, three_digits

if TYPE_CHECKING:
    from placer.profile import DeviceFit, Profile

#: What is compared of a device: its name in the table, the rate in the fit, and its unit (none: seconds).
_ROWS = (
    ("float32 products", "flops/float32", "FLOP/s"),
    ("bfloat16 products", "flops/bfloat16", "FLOP/s"),
    ("float16 products", "flops/float16", "FLOP/s"),
    ("memory", "bytes_per_second", "B/s"),
    ("smallest op", "dispatch_seconds", ""),
    ("launch delay", "launch_seconds", ""),
    ("wait when idle", "sync_seconds", ""),
    ("copy to device", "copy/h2d/pageable/bytes_per_second", "B/s"),
    ("  from pinned", "copy/h2d/pinned/bytes_per_second", "B/s"),
    ("copy to host", "copy/d2h/pageable/bytes_per_second", "B/s"),
    ("context, once", "context_seconds", ""),
)


@click.group("profile")
def command() -> None:
    """Show, list, export and import machine profiles."""


@command.command("show")
@click.argument("sources", metavar="[SOURCE]...", nargs=-1)
@click.option("--all", "everything", is_flag=True,
              help="Every number: all numbers of CPU threads, and all fitted costs.")  # fmt: skip
def show(sources: tuple[str, ...], everything: bool) -> None:
    """Show the data sheet of this machine.

    Or that of SOURCE, a file or a name; of several, side by side.
    """
    from placer import machine, profile
    from placer.calibration import render_summary
    from placer.explanation import machine_parts

    if len(sources) > 1:
        if everything:
            raise click.UsageError("--all takes one SOURCE", click.get_current_context())
        show_text(_side_by_side([loaded(name, samples=False) for name in sources]), colored=terminal()[1])
        return
    source = sources[0] if sources else None
    found = loaded(source)
    show_line(f"profile: {found.name}")
    show_line(f"machine: {', '.join(machine_parts(found.fingerprint))}")
    show_line(f"created: {found.created}")
    show_text(render_summary(found, everything=everything))
    if source is None:
        for field in profile.stale_fields(found, machine.fingerprint()):
            show_line(f"stale: {field}; run: placer calibrate")


@command.command("list")
def list_profiles() -> None:
    """List the profiles that can be used.

    First own and imported ones, then those that come with placer.
    """
    from placer import profile

    own = profile.default_path().stem
    for name in profile.imported():
        show_text(f"{printable(name)}\t{'this machine' if name == own else 'imported'}")
    for name in profile.shipped():
        show_text(f"{name}\tshipped")


@command.command("path")
def path() -> None:
    """Where this machine's profile is, or would be."""
    from placer import profile

    show_line(str(profile.default_path()))


@command.command("export")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--profile", "source", metavar="FILE|NAME", help="Another profile than this machine's.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def export(file: str, source: str | None, force: bool) -> None:
    """Write a profile to FILE, to be imported on another machine. It holds no user name, host name or path."""
    from placer import profile
    from placer.errors import ProfileError

    found = loaded(source)
    if Path(file).exists() and not force:
        raise ProfileError(f"{file} exists; overwrite it with --force")
    say(f"written to {profile.save(found, file)}")


@command.command("import")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--name", help="Name to keep it under.  [default: FILE without its suffix]")
@click.option("--force", is_flag=True, help="Overwrite a profile of that name.")
def import_profile(file: str, name: str | None, force: bool) -> None:
    """Check a profile FILE and keep it under a name.

    The name is for --profile and --what-if.
    """
    from placer import profile
    from placer.errors import ProfileError

    found = profile.load(Path(file))
    target = checked(profile.named_path, name or Path(file).stem)
    if target.exists() and not force:
        raise ProfileError(f"a profile called {target.stem!r} exists; give --name, or overwrite it with --force")
    profile.save(found, target)
    show_line(target.stem)


def _side_by_side(found: Sequence[Profile]) -> str:
    """The profiles beside each other, one table per device; a dash where nothing was measured."""
    from placer.explanation import Section, render_sections

    heads = ["", *(Path(profile.name).stem or profile.name for profile in found)]
    tables = []
    for device in dict.fromkeys(name for profile in found for name in profile.devices()):
        fits = [profile.fit(device) if device in profile.devices() else None for profile in found]
        rows = [[words, *(_cell(fit, rate, unit) for fit in fits)] for words, rate, unit in _ROWS]
        rows = [row for row in rows if set(row[1:]) != {"-"}]
        if device == "cpu":
            rows.append(["threads", *("-" if fit is None else f"{fit.threads}" for fit in fits)])
        tables.append(Section(device, heads=heads, rows=rows))
    noise = [
        [words, *(f"{profile.noise[key]:.1%}" if key in profile.noise else "-" for profile in found)]
        for words, key in (("median", "median_spread"), ("90th percentile", "p90_spread"))
    ]
    width, color = terminal()
    tables.append(Section("noise of repeated steps", heads=heads, rows=noise))
    return render_sections(tables, width=width, color=color)


def _cell(fit: DeviceFit | None, rate: str, unit: str) -> str:
    if fit is None or rate not in fit.rates:
        return "-"
    value = fit.rates[rate]
    if not unit:
        return format_seconds(value)
    for scale, prefix in ((1e12, "T"), (1e9, "G")):
        if value >= scale:
            return f"{three_digits(value / scale)} {prefix}{unit}"
    return f"{three_digits(value / 1e6)} M{unit}"
