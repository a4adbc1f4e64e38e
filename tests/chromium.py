"""How a headless Chromium shows a page that needs no network."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
#: In a frame, as no window is narrower than 500 pixels. What an expression throws leaves no title.
_FRAME = """<!doctype html>
<meta name="color-scheme" content="light dark">
<iframe id="page" style="width: {width}px; height: {height}px; border: 0" srcdoc="{page}"
 onload="with (this.contentWindow) {{ parent.document.title = JSON.stringify({expression}) }}"></iframe>
"""


def evaluated(page: str, expression: str, folder: Path, *, screen: tuple[int, int], dark: bool = False) -> Any:
    """The value of a JavaScript expression in the page, on a screen of so many pixels; ``folder`` is the browser's."""
    assert PROGRAM is not None
    frame = folder / "frame.html"
    width, height = screen
    content = _FRAME.format(width=width, height=height, page=html.escape(page), expression=expression)
    frame.write_text(content, encoding="utf-8")
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    command = [PROGRAM, *_FLAGS, *scheme, f"--user-data-dir={folder}", "--dump-dom", frame.as_uri()]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=60)
    title = re.search(r"<title>(.*)</title>", done.stdout)
    assert title is not None, done.stderr
    return json.loads(html.unescape(title[1]))
