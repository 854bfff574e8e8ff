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
from typing import Any, NamedTuple

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
WORDS = {  # of the settings, in the app
    "config": "from config.toml; `moml flower run` fills it in, as experiment and out",
    "method": "instead of the experiment's",
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
    """Where things are in the folder of a federation."""

    root: Path

    @property
    def home(self) -> Path:
        """Flower's home; nobody else may read it."""
        return self.root / ".flower"

    @property
    def config(self) -> Path:
        """The experiment."""
        return self.root / "config.toml"

    @property
    def connections(self) -> Path:
        """Flower's file of connections."""
        return self.home / "config.toml"

    @property
    def keys(self) -> Path:
        """Certificates and node keys of this machine."""
        return self.home / "keys"

    @property
    def runs(self) -> Path:
        """A folder for each run."""
        return self.root / "runs"


def init(
    folder: Path,
    config: Config,
    *,
    address: str = "127.0.0.1:8000",
    root_certificates: Path | None = None,
) -> Places:
    """A new folder of a federation; one that holds something already is refused."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty; give a new folder")
    if config.memory == "disk" or config.option("memory_dtype") == "bfloat16":
        raise ConfigError(
            "nodes keep their clients' memories: leave out memory = disk, memory_dtype = bfloat16"
        )
    places = Places(writable_folder(folder).absolute())
    places.home.mkdir(mode=0o700)
    write_text(APP + toml(DEFAULTS, WORDS), places.root / "pyproject.toml")
    write_text("/.flower/\n/runs/\n", places.root / ".gitignore")
    write_text(dump(config), places.config)
    connect(places, address, insecure=False, root_certificates=root_certificates)
    return places


def opened(folder: Path) -> Places:
    """The folder that `init` made."""
    places = Places(folder.absolute())
    if not places.config.exists() or not places.home.is_dir():
        raise ConfigError(f"{folder} is no folder of `moml flower init`")
    return places


def connect(
    places: Places, address: str, *, insecure: bool, root_certificates: Path | None
) -> None:
    """Write where the SuperLink is, and how it is known to be that."""
    told: dict[str, Any] = {"address": address, "insecure": insecure}
    if root_certificates is not None:  # else those that this system trusts
        told["root-certificates"] = str(root_certificates.absolute())
    write_text(CONNECTION + toml(told), places.connections)


def toml(values: Mapping[str, Any], words: Mapping[str, str] = MappingProxyType({})) -> str:
    """Text and numbers as lines of TOML, with words behind some of them."""
    lines = []
    for key, value in values.items():
        comment = f"  # {words[key]}" if key in words else ""
        lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}{comment}\n")
    return "".join(lines)


def environment(places: Places) -> dict[str, str]:
    """For Flower's programs: nothing is sent home, installed or compiled twice."""
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
    return usual | os.environ | fixed
