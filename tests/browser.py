"""Headless Chromium over its debugging pipe: opens a page as a person would and says what the page did.

Debian's package chromium is enough; there is no driver and no library between.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from tests import processes

NAMES = ("chromium", "chromium-browser", "google-chrome")
# no background requests of the browser's own; the sandbox cannot be had as root
_FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-pipe""".split()


class Page:
    """A page in Chromium. `messages`: what its console and log said; `requests`: addresses that were asked for."""

    def __init__(self, commands: int, answers: int) -> None:
        """`commands` and `answers`: descriptors of the pipe."""
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.messages: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, file: Path, *, width: int, scheme: Literal["light", "dark"]) -> None:
        """Load a file at a width in pixels."""
        self.messages, self.requests = [], []
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **metrics)
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._call("Page.navigate", url=file.as_uri())
        self.evaluate(
            "new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))"
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of a script in the page; what it promises, awaited."""
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, *, whole: bool = True) -> bytes:
        """Return a PNG of the page."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def print(self) -> bytes:
        """Return a PDF of the page on A4, in the colours of paper."""
        answer = self._call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)
        return base64.b64decode(answer["data"])

    def show_as_printed(self, *, width: int) -> None:
        """Lay the open page out for paper, where the reader's screen is dark."""
        metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **metrics)
        dark = [{"name": "prefers-color-scheme", "value": "dark"}]
        self._call("Emulation.setEmulatedMedia", media="print", features=dark)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self._answers, 1 << 20)
            assert read, "Chromium ended"
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        method, said = event.get("method"), event.get("params", {})
        if method == "Log.entryAdded":
            self.messages.append(said["entry"]["text"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.messages.append(json.dumps(said))
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])


@contextlib.contextmanager
def opened_page(profile: Path) -> Iterator[Page]:
    """Start Chromium with an empty profile; the test is skipped where there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    (read_command, command), (answer, write_answer) = os.pipe(), os.pipe()
    # it reads descriptor 3 and writes to 4
    shell = f'exec "$0" "$@" 3<&{read_command} 4>&{write_answer}'
    arguments = ["bash", "-c", shell, program, *_FLAGS, f"--user-data-dir={profile}"]
    process = processes.start(arguments, pass_fds=(read_command, write_answer), stderr=subprocess.DEVNULL)
    os.close(read_command)
    os.close(write_answer)
    try:
        yield Page(command, answer)
    finally:
        os.close(command)
        os.close(answer)
        processes.end_all(processes.started() - {process})
