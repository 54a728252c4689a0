"""Debian's Chromium without a window, over its remote-debugging pipe, which needs no package."""

import json
import os
import shutil
import subprocess
from collections import deque
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def executable() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab. As a context manager, it ends with the block."""

    def __init__(self, folder: Path, width: int = 1280, height: int = 900):
        commands, self.write = os.pipe()
        self.read, answers = os.pipe()
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={folder}",
            "--remote-debugging-pipe",
        ]
        # Chromium reads file 3 and writes file 4.
        shell = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, executable(), *options, "about:blank"],
            pass_fds=(commands, answers),
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": str(folder)},
        )
        os.close(commands)
        os.close(answers)
        self.rest, self.count, self.session, self.events = b"", 0, None, deque()
        targets = self.call("Target.getTargets")["targetInfos"]
        tab = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_) -> None:
        os.close(self.write)
        self.process.terminate()
        self.process.wait()
        os.close(self.read)

    def call(self, method: str, **parameters) -> dict:
        """Return the answer to one command; earlier events are kept."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self.count:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self) -> dict:
        while b"\0" not in self.rest:
            part = os.read(self.read, 1 << 20)
            assert part, "Chromium has ended"
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def resize(self, width: int, height: int = 900) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, url: str) -> list[str]:
        """Load a page; return its network requests and its errors."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return [line for event in self.events for line in complaints(event)]

    def evaluate(self, script: str):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")


def complaints(event: dict) -> list[str]:
    method, about = event.get("method"), event.get("params", {})
    if method == "Network.requestWillBeSent":
        url = about["request"]["url"]
        return [] if url.startswith(("file:", "data:", "blob:", "about:")) else [f"asks the network for {url}"]
    if method == "Network.loadingFailed" and not about.get("canceled"):
        return [f"fails to load: {about['errorText']}"]
    if method == "Runtime.exceptionThrown":
        return [about["exceptionDetails"].get("exception", {}).get("description", "a script fails")]
    if method == "Log.entryAdded" and about["entry"]["level"] == "error":
        return [about["entry"]["text"]]
    return []
