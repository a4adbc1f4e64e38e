"""``placer profile``: show machine profiles, and carry them from one machine to another."""

from __future__ import annotations

from pathlib import Path

import click

from placer.cli.output import say, show_line, show_text
from placer.cli.target import checked, loaded
from placer.printable import printable


@click.group("profile")
def command() -> None:
    """Show, list, export and import machine profiles."""


@command.command("show")
@click.argument("source", metavar="[SOURCE]", required=False)
@click.option(
    "--all", "everything", is_flag=True, help="Every number: all numbers of CPU threads, and all fitted costs."
)
def show(source: str | None, everything: bool) -> None:
    """Show the data sheet of this machine, or that of SOURCE, a file or a name."""
    from placer import machine, profile
    from placer.calibration import render_summary
    from placer.explanation import machine_line

    sheet = loaded(source)
    show_line(f"profile: {sheet.name}")
    show_line(f"machine: {machine_line(sheet.fingerprint)}")
    show_line(f"created: {sheet.created}")
    show_text(render_summary(sheet, everything=everything))
    if source is None:
        for field in profile.stale_fields(sheet, machine.fingerprint()):
            show_line(f"stale: {field}; run: placer calibrate")


@command.command("list")
def list_profiles() -> None:
    """List the profiles that can be used.

    First own and imported ones, then those that come with placer.
    """
    from placer import profile

    this_machine = profile.default_path().stem
    for name in profile.imported():
        show_text(f"{printable(name)}\t{'this machine' if name == this_machine else 'imported'}")
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

    to_export = loaded(source)
    if Path(file).exists() and not force:
        raise ProfileError(f"{file} exists; overwrite it with --force")
    say(f"written to {profile.save(to_export, file)}")


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

    to_keep = profile.load(Path(file))
    target = checked(profile.named_path, name or Path(file.removesuffix(".xz")).stem)
    if target.exists() and not force:
        raise ProfileError(f"a profile called {target.stem!r} exists; give --name, or overwrite it with --force")
    profile.save(to_keep, target)
    show_line(target.stem)
