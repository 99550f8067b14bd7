# SPDX-License-Identifier: Apache-2.0
"""Debian's chromium without a screen, driven over its DevTools protocol.

Source: https://chromedevtools.github.io/devtools-protocol/ (domains Target, Page, Runtime, Input, Emulation, Log).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import aiohttp

from detshare.ctl.core.patience import Patience

__all__ = ["Chromium", "Tab", "find"]

NAME: Final = "chromium"
IDLE_S: Final = 90.0
"""seconds in which neither this process nor the browser does anything: it hangs"""
_PORT: Final = "DevToolsActivePort"
_MOST: Final = 64 << 20
"""bytes of one message: pictures are long"""
_KEYS: Final = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Space": (" ", 32, " "),
    "End": ("End", 35, ""),
    "Home": ("Home", 36, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "PageDown": ("PageDown", 34, ""),
}
"""code -> (key, Windows' number of it, the text that it types)"""
_SHIFT: Final = 8
T = TypeVar("T")


def find() -> str | None:
    """The browser's path; None where there is none."""
    return shutil.which(NAME)


class Chromium:
    """One browser. Use as a context; its methods block, and may be called by one thread."""

    def __init__(self) -> None:
        found = find()
        if found is None:
            raise FileNotFoundError("chromium is not installed; as root: apt-get install chromium")
        self._folder = tempfile.TemporaryDirectory(prefix="dsb-", ignore_cleanup_errors=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chromium", daemon=True)
        self._count = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        # what is drawn is the same on each machine: no GPU, one scale, no animation of the browser's own
        self._process = subprocess.Popen(
            [
                found, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-extensions", "--disable-component-update", "--disable-background-networking",
                "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1", "--remote-debugging-port=0",
                f"--user-data-dir={self._folder.name}", "about:blank",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self._folder.name},
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._thread.start()
        port = Path(self._folder.name) / _PORT
        self._wait(lambda: port.exists() and port.read_text().count("\n") >= 1, "the browser's start")
        number, path = port.read_text().split("\n")[:2]
        self._run(self._connect(f"ws://127.0.0.1:{number}{path}"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._loop.is_running():
            with contextlib.suppress(Exception):
                self._run(self._disconnect())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def tab(self, width: int = 1400, height: int = 900, *, dark: bool = False, narrow: bool = False) -> Tab:
        """A new tab with a profile of its own, as another browser would have."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        made = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            made.send(f"{domain}.enable")
        made.shape(width, height, dark=dark, narrow=narrow)
        return made

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The answer to one command. RuntimeError where it was refused."""
        return self._run(self._send(method, session, params))

    def _wait(self, true: Callable[[], bool], what: str) -> None:
        patience = Patience(IDLE_S)
        while not true():
            if self._process.poll() is not None:
                raise RuntimeError(f"chromium ended with status {self._process.returncode} instead of {what}")
            if why := patience.spent():
                raise RuntimeError(f"{what} did not come: it {why}")
            time.sleep(0.02)

    def _run(self, job: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(job, self._loop)
        try:
            self._wait(future.done, "an answer")
        except RuntimeError:
            future.cancel()
            raise
        return future.result()

    async def _connect(self, url: str) -> None:
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(url, max_msg_size=_MOST)
        self._reader = asyncio.create_task(self._read())

    async def _disconnect(self) -> None:
        self._reader.cancel()
        await self._socket.close()
        await self._session.close()

    async def _read(self) -> None:
        async for message in self._socket:
            data = json.loads(message.data)
            if "id" in data:
                if (answer := self._answers.pop(data["id"], None)) is not None and not answer.done():
                    answer.set_result(data)
            elif (tab := self._tabs.get(data.get("sessionId", ""))) is not None:
                tab.hear(data["method"], data["params"])

    async def _send(self, method: str, session: str | None, params: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        answer = self._answers[self._count] = asyncio.get_running_loop().create_future()
        sent = {"id": self._count, "method": method, "params": params}
        await self._socket.send_str(json.dumps(sent | ({"sessionId": session} if session else {})))
        told = await answer
        if "error" in told:
            raise RuntimeError(f"{method}: {told['error'].get('message')}")
        result: dict[str, Any] = told["result"]
        return result


class Tab:
    """One page that is open."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser, self._session = browser, session
        self.complaints: list[str] = []
        """what the browser found wrong: exceptions, errors in the console, refusals by the page's policy"""
        self.asked: list[str] = []
        """addresses that were asked for"""

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **params)

    def hear(self, method: str, params: dict[str, Any]) -> None:
        """An event, in the reader's thread."""
        if method == "Runtime.exceptionThrown":
            told = params["exceptionDetails"]
            self.complaints.append(str(told.get("exception", {}).get("description") or told.get("text")))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            entry = params["entry"]
            self.complaints.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str([each.get("value") or each.get("description") for each in params["args"]]))
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])

    def shape(self, width: int, height: int, *, dark: bool = False, calm: bool = False, narrow: bool = False) -> None:
        """The window, and what the person prefers. `calm`: less motion."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=narrow
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"},
        ]
        self.send("Emulation.setEmulatedMedia", features=features)

    def go(self, url: str) -> None:
        """Open an address."""
        answer = self.send("Page.navigate", url=url)
        if answer.get("errorText"):
            raise RuntimeError(f"{url}: {answer['errorText']}")
        self.until("document.readyState === 'complete'")

    def eval(self, script: str) -> Any:
        """The value of an expression, awaited. RuntimeError where it throws."""
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", allowUnsafeEvalBlockedByCSP=False, **asked)
        if "exceptionDetails" in answer:
            told = answer["exceptionDetails"]
            raise RuntimeError(f"{script}: {told.get('exception', {}).get('description') or told['text']}")
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """The value of an expression once it counts as true. AssertionError where this machine rests before."""
        patience = Patience(IDLE_S)
        while True:
            try:
                if answer := self.eval(script):
                    return answer
            except RuntimeError as error:
                if "context" not in str(error):  # of a page that is just being left
                    raise
            if why := patience.spent():
                shown = self.eval("document.body.innerText.slice(0, 1500)")
                raise AssertionError(f"{script}: it {why}; complaints {self.complaints}; shown:\n{shown}")
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        """What an element shows; empty where there is none."""
        return str(self.eval(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, selector: str) -> None:
        """With the pointer, in the middle of an element."""
        found = json.dumps(selector)
        self.until(f"!!document.querySelector({found})")
        self.eval(f"document.querySelector({found}).scrollIntoView({{block: 'center'}})")
        box = self.eval(
            f"(() => {{ const b = document.querySelector({found}).getBoundingClientRect();"
            " return [b.x + Math.min(b.width / 2, 60), b.y + b.height / 2]; })()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            at = {"x": box[0], "y": box[1], "button": "none" if kind == "mouseMoved" else "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=kind, **at)

    def away(self) -> None:
        """The pointer leaves what it is over."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1, button="none")

    def key(self, code: str, *, shift: bool = False) -> None:
        """One of the keys above, or a character."""
        key, number, text = _KEYS.get(code, (code, ord(code[0].upper()), code))
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": _SHIFT if shift else 0}
        typed = {"text": text} if text else {}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **about, **typed)
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.send("Input.insertText", text=text)

    def shot(self, path: Path) -> None:
        """The window as a picture (PNG)."""
        data = self.send("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        self.send("Page.close")
