"""``python -m placer`` is the ``placer`` command."""

from __future__ import annotations

from placer.cli import main

if __name__ == "__main__":
    main(prog_name="placer")
