"""What the processes of a run need to have alike, compared before anything is computed."""

import os
import time
from pathlib import Path
from secrets import token_hex

from moml.errors import ConfigError
from moml.run.files import writable_folder
from moml.run.team import Team, nothing

SEEN = 10.0  # seconds after which what one machine wrote is seen by the others


def same_folder(team: Team, folder: Path) -> None:
    """Refuse processes that do not see the folder of process 0, by a file that it puts there."""
    if team.processes == 1:
        return
    mark, _, place = team.agree("folder", f".seen-{token_hex(8)} {folder.resolve()}").partition(" ")
    put = lambda: (writable_folder(folder) / mark).touch()
    team.together("folder", put if team.leads else nothing)
    try:
        seen = team.exchange("folder", "yes" if _comes(folder / mark) else "")
    finally:
        if team.leads:
            (folder / mark).unlink(missing_ok=True)
    for process, sees in enumerate(seen):
        if not sees:
            raise ConfigError(
                f"process {process} does not see the folder {place} of process 0: all processes "
                "need to see the same one"
            )


def _comes(path: Path) -> bool:
    end = time.monotonic() + SEEN
    while not (there := os.path.exists(path)) and time.monotonic() < end:
        time.sleep(0.05)
    return there
