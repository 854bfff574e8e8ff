"""Flower's own command line, asked for JSON."""

import json
import subprocess
from typing import Any

from moml.errors import FlowerError
from moml.flower.local.folder import NAME, Places, environment


def flwr(places: Places, *words: str) -> dict[str, Any]:
    """The answer of `flwr WORDS --format json`, asked of this folder's SuperLink.

    It has a session of its own: Ctrl-C is for us, and must not leave half a request behind.
    """
    done = subprocess.run(
        ["flwr", *words, "--format", "json"],
        env=environment(places),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {}
    if not answer.get("success"):
        told = (answer.get("error-message") or done.stderr or done.stdout).split("\n")
        said = [line.strip() for line in told if line.strip()] or ["no answer"]
        raise FlowerError(f"flwr {words[0]}: {said[-1]}")
    return answer


def online(places: Places) -> list[str]:
    """When each node that is online came online, oldest first; an ISO time."""
    nodes = flwr(places, "supernode", "list", NAME)["nodes"]
    return sorted(node["online-at"] for node in nodes if node["status"] == "online")
