"""Drives Debian's chromium over a pipe, in the browser's own protocol."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PROGRAM: Final = shutil.which("chromium")
SECONDS: Final = 60
OPTIONS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-default-browser-check",
    "--no-first-run",
    "--remote-debugging-pipe",
)
KEYS: Final = {"Enter": "\r", "Tab": "\t", "/": "/", "x": "x"}
# What a page is asked for.
SHADES: Final = "getComputedStyle(document.body).backgroundColor"
FOCUSED: Final = "document.activeElement.id || document.activeElement.textContent.trim()"
# The contrast of every text on the page with what is behind it, by WCAG's formula; the worst of them.
CONTRAST: Final = """(() => {
  const light = (shade) => {
    const parts = shade.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const shade = getComputedStyle(node).backgroundColor;
      if (!shade.startsWith("rgba(0, 0, 0, 0")) return shade;
    }
    return "rgb(255, 255, 255)";
  };
  let worst = 99;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.data.trim() || !node.checkVisibility()) continue;
    const [one, two] = [light(getComputedStyle(node).color), light(ground(node))].sort((a, b) => b - a);
    worst = Math.min(worst, (one + 0.05) / (two + 0.05));
  }
  return worst;
})()"""
# What a screen reader could not name.
NAMELESS: Final = """[...document.querySelectorAll("a, button, input:not([type=hidden])")].filter((one) =>
  !(one.innerText || one.getAttribute("aria-label") || (one.labels && one.labels.length))).length"""


def high(pipe: tuple[int, int]) -> tuple[int, int]:
    """Duplicate the pipe to unused descriptors."""
    reads, writes = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in pipe)
    for end in pipe:
        os.close(end)
    return reads, writes


class Browser:
    """One browser; what it says is kept in order."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM
        theirs_in, self._out = high(os.pipe())
        self._in, theirs_out = high(os.pipe())
        # The browser reads from 3 and writes to 4.
        command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", command, "sh", PROGRAM, *OPTIONS, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.events: list[dict[str, Any]] = []
        self._rest = b""
        self._number = 0

    def call(self, method: str, session: str = "", **given: object) -> Any:  # noqa: ANN401 - JSON
        self._number += 1
        asked = {"id": self._number, "method": method, "params": given}
        asked |= {"sessionId": session} if session else {}
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            told = self.hear()
            if told.get("id") == self._number:
                assert "error" not in told, (method, told["error"])
                return told["result"]

    def hear(self) -> dict[str, Any]:
        """The next message; events are kept."""
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser is silent"
            part = os.read(self._in, 1 << 20)
            assert part, "the browser is gone"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        if "method" in told:
            self.events.append(told)
        return told

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(SECONDS)


class Tab:
    """One page in it."""

    def __init__(self, browser: Browser, *, script: bool = True) -> None:
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        told = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self.target, self.session = target, told["sessionId"]
        for room in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{room}.enable")
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        # Without it a page that was just loaded may lack the focus for a moment, and then it shows no outline.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        browser.events.clear()

    def call(self, method: str, **given: object) -> Any:  # noqa: ANN401
        return self.browser.call(method, self.session, **given)

    def open(self, url: str) -> None:
        self.after(lambda: self.call("Page.navigate", url=url))

    def after(self, act: Callable[[], object]) -> None:
        """Do something that leads to another page, and wait for that."""
        loaded = self._loaded()
        act()
        while self._loaded() == loaded:
            self.browser.hear()

    def _loaded(self) -> int:
        return sum(one["method"] == "Page.loadEventFired" for one in self.browser.events)

    def ask(self, expression: str) -> Any:  # noqa: ANN401
        """The value of an expression; of a promise, what it promises."""
        told = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def text(self, selector: str) -> list[str]:
        """What a reader sees there."""
        found: list[str] = self.ask(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.innerText.trim())"
        )
        return found

    def key(self, key: str, *, shift: bool = False) -> None:
        given = {"key": key, "modifiers": 8 if shift else 0, "windowsVirtualKeyCode": code(key)}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=KEYS[key], **given)
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def write(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def look(self, *, dark: bool = False, width: int = 1200, height: int = 900) -> None:
        """With another size, or in the dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def picture(self, file: Path) -> None:
        told = self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(told["data"]))

    @property
    def complaints(self) -> list[Any]:
        """Whatever would stand in the console: errors, warnings, what the policy forbids; and requests that failed."""
        kinds = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        failed = [one for one in self.browser.events if one["method"] == "Network.loadingFailed"]
        return [one["params"] for one in self.browser.events if one["method"] in kinds] + failed

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)


def code(key: str) -> int:
    return {"Enter": 13, "Tab": 9, "/": 191}.get(key, ord(key[0].upper()))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    one = Browser(profile)
    try:
        yield one
    finally:
        one.close()
