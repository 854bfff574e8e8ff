"""The short form of `make test-chaos`: each kind of trial once, without the slow commands."""

import re
import subprocess
import sys
from pathlib import Path


def test_nothing_is_lost_and_no_damage_is_accepted_silently():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.chaos.run", "--short", "--seeds", "7"],
        capture_output=True, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    counts = {name: int(count) for count, name in re.findall(r"(\d+) ([a-z ]+)", last)}
    assert counts["lost"] == 0 == counts["accepted silently"]
    assert counts["kills"] >= 3 and counts["damaged files"] >= 5 and counts["refused"] >= 1
    assert counts["full disks"] == 2 == counts["second processes"]
