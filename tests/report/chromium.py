"""Headless Chromium over a pipe: open a file, ask it questions, keep all that it says."""

import json
import os
import shutil
import subprocess
import sys
import time
from base64 import b64decode

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
WIRED = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)  # Chromium reads from 3 and writes to 4
os.execv(sys.argv[3], sys.argv[3:])
"""


def found():
    """The program, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """A browser with a profile of its own; DevTools' messages end with a zero byte."""

    def __init__(self, profile):
        ours_read, theirs_write = os.pipe()
        theirs_read, ours_write = os.pipe()

        ends = (theirs_read, theirs_write)
        self.process = subprocess.Popen(
            [sys.executable, "-c", WIRED, *map(str, ends), found(), *FLAGS,
             f"--user-data-dir={profile}"],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_read)
        os.close(theirs_write)
        self._in, self._out = os.fdopen(ours_read, "rb", 0), os.fdopen(ours_write, "wb", 0)
        self._count, self._rest, self.events = 0, b"", []

    def close(self):
        """End it."""
        self._in.close()
        self._out.close()
        self.process.terminate()
        self.process.wait(30)

    def _next(self):
        while b"\0" not in self._rest:
            more = self._in.read(1 << 16)
            assert more, "Chromium has gone away"
            self._rest += more
        line, self._rest = self._rest.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, session=None, **parameters):
        """What a command of DevTools answers; events on the way are kept."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def open(self, address, width, height, scheme):
        """A tab of this size, with the page loaded."""
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", session, **size)
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", session, features=wanted)
        self.events = []
        self.call("Page.navigate", session, url=address)
        until = time.monotonic() + 60
        while "load" not in self.said("Page.lifecycleEvent", "Page.loadEventFired"):
            assert time.monotonic() < until, "the page does not load"
            self.events.append(self._next())
        return Tab(self, session, target)

    def said(self, *methods):
        """What the events of these kinds are about."""
        return [
            "load" if event["method"] == "Page.loadEventFired" else event["params"]
            for event in self.events
            if event.get("method") in methods
        ]


class Tab:
    """A page in the browser."""

    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target

    def ask(self, expression):
        """What an expression is there."""
        given = {"expression": expression, "returnByValue": True}
        answer = self.browser.call("Runtime.evaluate", self.session, **given)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def requests(self):
        """The addresses that were asked for."""
        return [said["request"]["url"] for said in self.browser.said("Network.requestWillBeSent")]

    def complaints(self):
        """Errors and whatever was written to the console."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return self.browser.said(*kinds)

    def picture(self):
        """What is seen, as PNG."""
        answer = self.browser.call("Page.captureScreenshot", self.session, format="png")
        return b64decode(answer["data"])

    def close(self):
        """Close the tab."""
        self.browser.call("Target.closeTarget", targetId=self.target)
