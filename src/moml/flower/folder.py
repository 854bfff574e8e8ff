"""The folder of a federation: an app for Flower that is moml itself, the experiment, and `.flower`.

`.flower` is Flower's own home: connections, logs, keys, the nodes' memories, compiled programs.
"""

import json
import os
import shutil
import sysconfig
from pathlib import Path
from typing import NamedTuple

from moml.errors import ConfigError
from moml.run.config import Config
from moml.run.files import writable_folder, write_text
from moml.run.toml import dump

NAME = "moml"  # of the connection
APP = """\
# A Flower app that is moml itself: it must be installed (moml[flower]) wherever this runs.
# `moml flower run` adds the experiment in config.toml to these settings.
[project]
name = "moml-federation"
version = "1.0.0"
license = "Apache-2.0"
dependencies = ["moml[flower]"]

[tool.flwr.app]
publisher = "moml"
fab-include = ["pyproject.toml"]

[tool.flwr.app.components]
serverapp = "moml.flower.server_app:app"
clientapp = "moml.flower.client_app:app"

[tool.flwr.app.config]
config = ""             # filled in by `moml flower run`, as are experiment and out
experiment = "default"
out = ""
method = ""             # "": as config.toml says
rounds = {rounds}              # 0: as many as the iterations in config.toml are
min-nodes = 1           # a run begins when so many nodes are there
timeout = 600           # seconds that a round waits for answers
"""
CONNECTION = """\
# Where `moml flower run` finds the SuperLink; `moml flower up` writes its own address here.
[superlink]
default = "{name}"

[superlink.{name}]
address = {address}
{security}
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
    rounds: int,
    address: str = "127.0.0.1:8000",
    root_certificates: Path | None = None,
) -> Places:
    """A new folder of a federation; one that holds something already is refused."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty; give a new folder")
    places = Places(writable_folder(folder).absolute())
    places.home.mkdir(mode=0o700)
    write_text(APP.format(rounds=rounds), places.root / "pyproject.toml")
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
    security = "insecure = true" if insecure else "# its certificate is one that this system trusts"
    if root_certificates is not None:
        security = f"root-certificates = {quoted(str(root_certificates.absolute()))}"
    text = CONNECTION.format(name=NAME, address=quoted(address), security=security)
    write_text(text, places.connections)


def quoted(text: str) -> str:
    """Text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


def environment(places: Places) -> dict[str, str]:
    """For Flower's programs: nothing is sent home, installed or compiled twice."""
    scripts = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    if shutil.which("flower-superlink", path=scripts) is None:
        raise ConfigError("Flower is not installed; pip install 'moml[flower]'")
    return (
        {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # nodes of one machine share its GPU
        | os.environ
        | {
            "PATH": scripts,
            "FLWR_HOME": str(places.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "JAX_COMPILATION_CACHE_DIR": str(places.home / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    )
