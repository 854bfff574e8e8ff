"""Execute the notebooks in this folder and store their outputs: `make notebooks`.

    python docs/notebooks/run.py                all of them
    python docs/notebooks/run.py sine flower    some of them, by name

Nothing is written unless a notebook has run to its end. Its last picture is also written as a PNG,
for the gallery of the first page. Each prints its seconds, and those of the processor.
"""

import os
import resource
import sys
import tempfile
import time
from base64 import b64decode
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
QUIET = {"JAX_PLATFORMS": "cpu", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}


def execute(path: Path) -> float:
    """Run one notebook in an empty folder, with this interpreter; return its seconds."""
    notebook = nbformat.read(path, as_version=4)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=900, coalesce_streams=True, resources=resources).execute()
        here = [f"{path}{os.sep}" for path in (folder, os.path.realpath(folder))]
    seconds = time.monotonic() - began
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", ())]
    for output in outputs:
        for name in here:  # no folder of this machine
            if "text" in output:
                output.text = output.text.replace(name, "")
    for cell in notebook.cells:
        cell.metadata = {name: cell.metadata[name] for name in ("tags",) if name in cell.metadata}
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "pygments_lexer": "ipython3"},
    }
    nbformat.write(notebook, path)
    pictures = [each for each in outputs if "image/png" in each.get("data", {})]
    path.with_suffix(".png").write_bytes(b64decode(pictures[-1].data["image/png"]))
    return seconds


def main() -> None:
    """Execute those that are named, or all."""
    os.environ |= QUIET  # the same outputs on every machine
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for path in [HERE / f"{name}.ipynb" for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb")):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds, after = execute(path), resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{path.stem:<24}{seconds:5.0f} s, processor {used:5.0f} s", flush=True)


if __name__ == "__main__":
    main()
