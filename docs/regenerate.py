"""Writes what README.md and docs/ show anew: ``python docs/regenerate.py`` (``--check`` only compares).

A fenced ``console`` block whose command names the record below shows what that command prints. Every figure in such a
block comes from the record and from the code as it is now; nothing is measured here. A block whose last line is ``...``
shows only the first lines, and one whose first line it is the last ones: as many as it has.
``docs/figures.py`` writes the figures that rest on records, ``docs/picture.py`` draws the picture.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: The machine profile every shown figure comes from, relative to the checkout.
RECORD = "calibration/records/cpu-2-core/profile.json.xz"
BLOCK = re.compile(r"^```console\n\$ (?P<command>placer [^\n]*)\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)

#: The note that this machine is not the record's: it depends on who runs this script.
ELSEWHERE = re.compile(r"^- the profile was measured on another machine or setup.*\n(?:  .*\n)*", re.MULTILINE)

#: The last line of a block that shows the beginning of an output only, or the first one of a block that shows its end.
SHORTENED = "..."


def pages() -> list[Path]:
    """The documents a reader sees, README first."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def output_of(command: str) -> str:
    """What a ``placer ...`` command prints on any machine, run from the checkout with the usual number of threads."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    arguments = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(
        arguments, cwd=ROOT, env={**environment, "PYTHONIOENCODING": "utf-8"}, capture_output=True, encoding="utf-8",
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr.strip()}")
    return ELSEWHERE.sub("", done.stdout).strip("\n") + "\n"


def rewritten(text: str, run: Callable[[str], str] = output_of) -> str:
    """``text`` with the output of every block that names the record as ``run`` gives it now."""

    def block(match: re.Match[str]) -> str:
        command, old = match["command"], match["output"].splitlines()
        if RECORD not in command:
            return match[0]
        new = run(command)
        if old[:1] == [SHORTENED] and len(old) > 1:
            new = "\n".join([SHORTENED, *new.splitlines()[1 - len(old) :]]) + "\n"
        elif old[-1:] == [SHORTENED]:
            new = "\n".join([*new.splitlines()[: len(old) - 1], SHORTENED]) + "\n"
        return f"```console\n$ {command}\n{new}```"

    return BLOCK.sub(block, text)


def main(arguments: list[str]) -> int:
    """Rewrite every page, or with ``--check`` name those that would change. Returns the exit code."""
    if arguments not in ([], ["--check"]):
        raise SystemExit("usage: python docs/regenerate.py [--check]")
    if not (ROOT / RECORD).is_file():
        raise SystemExit(f"there is no {RECORD}: every figure in the documents comes from it")
    # The figures come first: outputs quote how far off predictions usually are.
    others = [
        subprocess.run([sys.executable, ROOT / "docs" / script, *arguments], check=False).returncode
        for script in ("figures.py", "picture.py")
    ]
    changed = 0
    for page in pages():
        old = page.read_text(encoding="utf-8")
        new = rewritten(old)
        if new != old:
            changed += 1
            print(page.relative_to(ROOT))
            if not arguments:
                page.write_text(new, encoding="utf-8")
    return max(*others, int(bool(changed and arguments)))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
