"""Headless Chromium through its own debugging pipe: real pages, clicks, keys and faults."""

from __future__ import annotations

import base64
import contextlib
import fcntl
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

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60.0  # seconds for one answer, on a busy machine
KEYS = {"Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, " ": 32}


def find_chromium() -> str | None:
    """Return the browser's path, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser process; it reads commands from file descriptor 3 and answers on 4."""

    def __init__(self, executable: str, profile: str) -> None:
        commands, self._out = map(_high, os.pipe())
        self._in, answers = map(_high, os.pipe())
        options = [
            "--headless=new",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-dev-shm-usage",
        ]
        options += [
            "--disable-background-networking",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        if os.getuid() == 0:
            options.append("--no-sandbox")  # Chromium refuses to run as root otherwise

        def connect() -> None:
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self.process = subprocess.Popen(
            [executable, *options, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=connect,
            pass_fds=(3, 4),
        )
        os.close(commands)
        os.close(answers)
        self._buffer, self._count = b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; events that come before it are kept."""
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") != number:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            result: dict[str, Any] = answer["result"]
            return result

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._in, 1 << 16) if ready else b""
            if not chunk:
                raise RuntimeError(f"Chromium does not answer (exit code {self.process.poll()})")
            self._buffer += chunk
        first, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(RuntimeError, OSError):
            self.call("Browser.close")
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._in)
        os.close(self._out)


def _high(number: int) -> int:
    """Return a copy of a file descriptor that is neither 3 nor 4."""
    copy = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(number)
    return copy


class Page:
    """One open page: of a file, or of a server on this machine by its address."""

    def __init__(
        self,
        browser: Browser,
        file: Path | str,
        width: int,
        height: int = 900,
        dark: bool = False,
        scale: float = 1.0,
    ) -> None:
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        address = file if isinstance(file, str) else file.resolve().as_uri()
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.protocol !== 'about:'")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to this page."""
        return self.browser.call(method, self.session, **parameters)

    def run(self, script: str) -> Any:
        """Return the value of an expression, or raise what it raised."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.run(condition):
            assert time.monotonic() < deadline, f"never true: {condition}"

    def centre(self, selector: str) -> tuple[float, float]:
        """Scroll to an element and return its middle."""
        found = json.dumps(selector)
        place = "{block: 'center', behavior: 'instant'}"
        self.run(f"document.querySelector({found}).scrollIntoView({place})")
        x, y = self.run(
            f"(() => {{ const box = document.querySelector({found}).getBoundingClientRect();"
            " return [box.left + box.width / 2, box.top + box.height / 2]; })()"
        )
        return float(x), float(y)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Move the mouse, or press or release its button."""
        pressed = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def click(self, selector: str) -> None:
        """Click with the mouse."""
        x, y = self.centre(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def press(self, key: str) -> None:
        """Press a key."""
        text = {"Enter": "\r", " ": " "}.get(key)
        named = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        down = {**named, "text": text} if text else named
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def screenshot(self, file: Path, top: float = 0.0, height: float | None = None) -> bytes:
        """Write a PNG of the page, the whole of it unless a part is asked for."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": top,
            "width": size["width"],
            "height": height or size["height"] - top,
            "scale": 1,
        }
        answer = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        content = base64.b64decode(answer["data"])
        file.write_bytes(content)
        return content

    def problems(self) -> list[str]:
        """Return errors and warnings the page caused so far."""
        self.run("1")  # whatever was on its way has arrived
        found = []
        for event in self._events():
            kind, data = event["method"], event["params"]
            if kind == "Runtime.exceptionThrown":
                found.append(str(data["exceptionDetails"]))
            elif kind == "Log.entryAdded" and data["entry"]["level"] in ("error", "warning"):
                found.append(data["entry"]["text"])
            elif kind == "Runtime.consoleAPICalled" and data["type"] in (
                "error",
                "warning",
                "assert",
            ):
                found.append(str(data["args"]))
        return found

    def requests(self) -> list[str]:
        """Return the addresses the page asked for."""
        self.run("1")
        return [
            event["params"]["request"]["url"]
            for event in self._events()
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _events(self) -> Iterator[dict[str, Any]]:
        return (
            event
            for event in self.browser.events
            if event.get("sessionId") == self.session and "method" in event
        )

    def close(self) -> None:
        """Close the page."""
        self.browser.call("Target.closeTarget", targetId=self.target)


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium with an empty profile, and end it."""
    executable = find_chromium()
    assert executable is not None, "Chromium is not installed"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(executable, profile)
        try:
            yield browser
        finally:
            browser.close()
