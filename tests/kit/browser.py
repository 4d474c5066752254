"""Chromium under the control of a test, by the DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import importlib.util
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PATIENCE_S = 120.0
POLL_S = 0.05
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PIPED = ("--hide-scrollbars", "--ignore-certificate-errors", "--remote-debugging-pipe")
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")
"""Rules of axe-core that every page keeps."""


class BrowserError(AssertionError):
    """The page or the browser reports an error."""


class Browser:
    """A browser with one page."""

    def __init__(self, profile: Path, *options: str) -> None:
        assert BROWSER is not None
        self._room = contextlib.ExitStack()
        own = self._room.enter_context(room_of_its_own())
        self.room = Path(own["TMPDIR"])
        """Folder of the browser's temporary files, which ends with it."""
        commands, self._write = _pipe()
        self._read, answers = _pipe()
        self.errors: list[str] = []
        """Errors that the console of the page showed."""
        self._rest = b""
        self._number = 0
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$@" 3<&{commands} 4>&{answers}',
                "browser",
                BROWSER,
                *QUIET,
                *PIPED,
                *options,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[commands, answers],
            env=own,
        )
        os.close(commands)
        os.close(answers)
        self._session: str | None = None
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        found = self.send("Target.attachToTarget", targetId=page, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """Sends a command and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") != self._number:
                self._note(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def open(self, url: str) -> None:
        """Opens a page."""
        found = self.send("Page.navigate", url=url)
        if "errorText" in found:
            raise BrowserError(f"{url}: {found['errorText']}")
        self.until("document.readyState === 'complete'")

    def look(self, width: int, theme: str, height: int = 900) -> None:
        """Gives the page a width in pixels, and a theme."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def value(self, script: str) -> Any:
        """Returns the value of an expression in the page."""
        found = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            text = details.get("exception", {}).get("description", details["text"])
            raise BrowserError(text)
        return found["result"].get("value")

    def until(self, script: str) -> None:
        """Waits until an expression is true."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not self.value(f"Boolean({script})"):
            assert time.monotonic() < deadline_s, f"{script} is {self.value(script)!r}"
            time.sleep(POLL_S)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Writes a picture of the whole page, or of its part in the window."""
        found = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """Ends the browser, which removes its files, and kills it if it does not end."""
        try:
            with contextlib.suppress(BrowserError, OSError):
                self.send("Browser.close")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._read)
            os.close(self._write)
            self._room.close()

    def _next(self) -> Any:
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], PATIENCE_S)[0]:
                raise BrowserError("the browser does not answer")
            data = os.read(self._read, 2**20)
            if not data:
                raise BrowserError("the browser has ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        entry = parameters.get("entry", {})
        if event.get("method") == "Log.entryAdded" and entry.get("level") == "error":
            self.errors.append(f"{entry['text']} {entry.get('url', '')}")


def _pipe() -> tuple[int, int]:
    """A pipe without the numbers 3 and 4, which the browser's own pipes get."""
    ends = os.pipe()
    try:
        first, second = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    finally:
        for end in ends:
            os.close(end)
    return first, second


@contextlib.contextmanager
def browsing(profile: Path, *options: str) -> Iterator[Browser]:
    """Starts a browser, and ends it."""
    browser = Browser(profile, *options)
    try:
        yield browser
    finally:
        browser.close()


def opened(page: Path, profile: Path, bound_s: int = 300) -> tuple[str, str]:
    """The page as the browser has made it, and what it logged."""
    assert BROWSER is not None
    address = f"{page.as_uri()}#dark"
    logged = ("--enable-logging=stderr", "--virtual-time-budget=20000")
    command = [BROWSER, *QUIET, *logged, f"--user-data-dir={profile}", "--dump-dom", address]
    with room_of_its_own() as own:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=bound_s, check=True, env=own
        )
    return done.stdout, done.stderr


@contextlib.contextmanager
def room_of_its_own() -> Iterator[dict[str, str]]:
    """Yields the environment of a browser whose temporary files go with it. The path is short,
    since a socket in it may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="c-", dir="/tmp", ignore_cleanup_errors=True) as own:
        yield {**os.environ, "TMPDIR": own}


def axe() -> str:
    """Returns the script of axe-core, without the package's own code, which needs Playwright."""
    found = importlib.util.find_spec("axe_core_python")
    assert found is not None and found.submodule_search_locations is not None
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
