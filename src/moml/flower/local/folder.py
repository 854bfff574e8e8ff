"""The folder of a federation: an app for Flower that is moml itself, the experiment, and `.flower`.

`.flower` is Flower's own home: connections, logs, keys, the nodes' memories, compiled programs.
"""

import json
import os
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from moml.config.config import Config
from moml.config.toml import dump
from moml.errors import ConfigError
from moml.flower.app.settings import DEFAULTS
from moml.storage.files import writable_folder, write_text

NAME = "moml"  # of the connection
APP = """\
# A Flower app that is moml itself: moml[flower] must be installed wherever it runs.
[project]
name = "moml-federation"
version = "1.0.0"
description = "A federation of moml"
license = "Apache-2.0"
dependencies = ["moml[flower]"]

[tool.flwr.app]
publisher = "moml"
fab-include = ["pyproject.toml"]

[tool.flwr.app.components]
serverapp = "moml.flower.app.server_app:app"
clientapp = "moml.flower.app.client_app:app"

[tool.flwr.app.config]
"""
COMMENTS = {  # on the settings, in the app
    "config": "from config.toml; `moml flower run` fills it in, as experiment and out",
    "method": "instead of the experiment's",
    "plugin": "modules that the server imports; `moml flower run --plugin` fills it in",
    "rounds": "0: as many as the experiment's iterations are",
    "min-nodes": "a run begins when so many nodes are there",
    "timeout": "seconds that a round waits for answers",
    "privacy": "server, client (who clips; the server adds the noise) or local",
}
CONNECTION = f"""\
# Where `moml flower run` finds the SuperLink; `moml flower up` writes its own address here.
[superlink]
default = "{NAME}"

[superlink.{NAME}]
"""


class Places(NamedTuple):
    """Paths in the folder of a federation."""

    root: Path
    home: Path  # Flower's home; nobody else may read it
    config: Path  # the experiment
    connections: Path  # Flower's file of connections
    keys: Path  # certificates and node keys of this machine
    runs: Path  # a folder for each run


def places_of(folder: Path) -> Places:
    """Return the paths in a folder, whether they exist or not."""
    root, home = folder.absolute(), folder.absolute() / ".flower"
    connections, keys = home / "config.toml", home / "keys"
    return Places(root, home, root / "config.toml", connections, keys, root / "runs")


def init(
    folder: Path,
    config: Config,
    *,
    address: str = "127.0.0.1:8000",
    root_certificates: Path | None = None,
) -> Places:
    """Create the folder of a federation; it must be new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty; give a new folder")
    if config.memory == "disk" or config.option("memory_dtype") == "bfloat16":
        raise ConfigError(
            "nodes keep their clients' memories: leave out memory = disk, memory_dtype = bfloat16"
        )
    places = places_of(writable_folder(folder))
    places.home.mkdir(mode=0o700)
    write_text(APP + toml(DEFAULTS, COMMENTS), places.root / "pyproject.toml")
    write_text("/.flower/\n/runs/\n", places.root / ".gitignore")
    write_text(dump(config), places.config)
    connect(places, address, insecure=False, root_certificates=root_certificates)
    return places


def opened(folder: Path) -> Places:
    """Return the paths of a folder that `init` created."""
    places = places_of(folder)
    if not places.config.exists() or not places.home.is_dir():
        raise ConfigError(f"{folder} is no folder of `moml flower init`")
    return places


def connect(
    places: Places, address: str, *, insecure: bool, root_certificates: Path | None
) -> None:
    """Write the address of the SuperLink and how it is authenticated."""
    values: dict[str, str | bool] = {"address": address, "insecure": insecure}
    if root_certificates is not None:  # else those that this system trusts
        values["root-certificates"] = str(root_certificates.absolute())
    write_text(CONNECTION + toml(values), places.connections)


def toml(
    values: Mapping[str, str | int | float], comments: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Format text and numbers as lines of TOML, some with a comment."""
    comment = lambda key: f"  # {comments[key]}" if key in comments else ""
    line = lambda key, value: f"{key} = {json.dumps(value, ensure_ascii=False)}{comment(key)}\n"
    return "".join(line(key, value) for key, value in values.items())


COLOURS = {"FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"}  # coloured JSON cannot be read


def environment(places: Places) -> dict[str, str]:
    """Return the environment for Flower's programs: no telemetry or colours, compiled once."""
    scripts = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    if shutil.which("flower-superlink", path=scripts) is None:
        raise ConfigError("Flower is not installed; pip install 'moml[flower]'")
    usual = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # nodes of one machine share its GPU
        "JAX_COMPILATION_CACHE_DIR": str(places.home / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    fixed = {
        "PATH": scripts,
        "FLWR_HOME": str(places.home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    }
    inherited = {name: value for name, value in os.environ.items() if name not in COLOURS}
    return usual | inherited | fixed
