"""Drives a headless Chromium through the DevTools protocol, over the pipe it offers: no port, no further package."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
#: Becomes Chromium, with the two pipes where it looks for them: as descriptors 3 and 4.
_LAUNCH = """
import os, sys
pipes = [os.dup(int(number)) for number in sys.argv[1:3]]
pipes = [os.dup(pipe) if pipe in (3, 4) else pipe for pipe in pipes]
for place, pipe in zip((3, 4), pipes):
    os.dup2(pipe, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
#: Seconds to wait for one answer.
PATIENCE = 60.0


class Page:
    """One page: ``problems`` are its console errors, exceptions and requests for anything but files and data."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._buffer, self._number = write, read, b"", 0
        self._session: str | None = None
        self.problems: list[str] = []
        self.loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, path: Path, *, width: int = 1100, height: int = 900, dark: bool = False) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.loaded = False
        self.call("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + PATIENCE
        while not self.loaded and time.monotonic() < deadline:
            self._receive(deadline)
        assert self.loaded

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression. What it throws fails the test."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(deadline - time.monotonic(), 0.0))
            assert ready, "chromium does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "chromium has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, facts: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method in ("Runtime.exceptionThrown", "Log.entryAdded") or facts.get("type") in ("error", "assert"):
            self.problems.append(str(facts))
        elif method == "Network.requestWillBeSent":
            url = facts["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.problems.append(f"request: {url}")


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A page in a Chromium of its own, with its user data in ``profile``; ended afterwards."""
    assert PROGRAM is not None
    to_browser, from_here = os.pipe()
    from_browser, to_here = os.pipe()

    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, str(to_browser), str(to_here), PROGRAM, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(to_browser, to_here),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(to_here)
    try:
        yield Page(from_here, from_browser)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(from_here)
        os.close(from_browser)
