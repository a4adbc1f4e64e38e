"""The command group: finds subcommands, and turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from placer import __version__
from placer.cli.output import say, show_text
from placer.errors import PlacerError
from placer.printable import printable

#: Subcommand -> module of ``placer.cli`` whose ``command`` it is.
_COMMANDS = {
    "calibrate": "placer.cli.calibrate",
    "explain": "placer.cli.explain",
    "fleet": "placer.cli.fleet",
    "run": "placer.cli.run",
    "validate": "placer.cli.validate",
    "profile": "placer.cli.profile",
    "gpus": "placer.cli.gpus",
    "doctor": "placer.cli.doctor",
}


class RunLast(BaseException):
    """Raised by a command to run somebody else's code when the command line is done: its errors are its own."""

    def __init__(self, run: Callable[[], None]) -> None:
        super().__init__()
        self.run = run


class PlacerGroup(click.Group):
    """Imports a subcommand's module on first use. Exit codes: 0 done, 1 it could not, 2 wrong usage."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(module).command
        return command

    def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except RunLast as last:
            run = last.run
        except (click.ClickException, click.Abort) as error:
            if not standalone_mode:
                raise
            sys.exit(_refused(error))
        else:
            return sys.exit(code) if standalone_mode else code
        return run()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except PlacerError as error:
            return fail(ctx, str(error))
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            return fail(ctx, f"{where}{error.strerror or error}")
        except Exception as error:
            # The last boundary: a user gets one line, never a traceback, unless asked for.
            if os.environ.get("PLACER_DEBUG"):
                raise
            more = "unexpected; PLACER_DEBUG=1 shows where, placer doctor prints what a bug report needs"
            return fail(ctx, f"{type(error).__name__}: {error} ({more})")


def fail(ctx: click.Context, message: str) -> None:
    """One line on stderr, exit code 1."""
    say(" ".join(message.split()))
    ctx.exit(1)


def _refused(error: click.ClickException | click.Abort) -> int:
    """Say what click would, which repeats what was typed. Returns the exit code."""
    if isinstance(error, click.Abort):
        show_text("Aborted!", err=True)
        return 1
    error.message = printable(error.message)
    text = io.StringIO()
    error.show(text)
    show_text(text.getvalue(), err=True)
    return error.exit_code


@click.group(cls=PlacerGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="placer")
def main() -> None:
    """Predict whether a PyTorch workload runs faster on the CPU or on the accelerator."""
