"""The ``placer`` command: one module per subcommand, each imported when it is asked for.

Nothing here or at the top of a subcommand's module imports torch, so that help is immediate.
"""

from __future__ import annotations

from placer.cli.group import main

__all__ = ["main"]
