"""Write docs/measured.md: run every benchmark and the demonstration, and put down what they print.

    python docs/measure.py                 all of it
    python docs/measure.py --skip torch    without bench_torch.py, where PyTorch is not installed

Run it on a quiet machine. Nothing is written unless everything has run.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measured.md"
COLUMNS = (
    "dataset", "setting", "method", "protocol", "metric", "mean", "std", "seeds", "lost", "paper",
    "samples", "iterations", "seconds",
)  # fmt: skip


def run(*command: str) -> str:
    """The output of a command; its errors go to the terminal, and a failure ends the script."""
    print("$", " ".join(shown(command)), file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(shown(command))} ended with exit code {done.returncode}")
    return done.stdout.replace(f"{ROOT}{os.sep}", "").rstrip()


def shown(command: tuple[str, ...]) -> list[str]:
    """A command as a reader would type it: no folder of this machine."""
    words = [word.replace(f"{ROOT}{os.sep}", "") for word in command]
    if words[0] == sys.executable:
        words[0] = "python"
    return words


def processor() -> str:
    """The processor by its name, where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def machine() -> str:
    """One line: processor, cores, device and versions."""
    import jax

    import moml

    return (
        f"{processor()}, {os.cpu_count()} cores; JAX device {jax.devices()[0].device_kind}; "
        f"{platform.system()}, Python {platform.python_version()}, jax {jax.__version__}, "
        f"moml {moml.__version__}"
    )


def benchmark(script: Path) -> str:
    """A section: what the script says it measures, the command, what it prints."""
    output = run(sys.executable, str(script))
    if not any(line.startswith("ratio ") for line in output.splitlines()):
        sys.exit(f"{script.name} printed no line `ratio NAME VALUE`")
    summary = next(line for line in script.read_text().splitlines() if line.startswith('"""'))
    summary = summary.strip('"').strip()
    name = script.stem.removeprefix("bench_")
    return f"### {name}\n\n{summary}\n\n```text\n$ python benchmarks/{script.name}\n{output}\n```\n"


def number(value: Any, digits: str = ".3g") -> str:
    """A number of a row, or a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:{digits}}" if isinstance(value, float) else str(value)


def cells(row: dict[str, Any]) -> list[str]:
    """A result row as the cells of a table."""
    setting = ", ".join(f"{name} {number(value)}" for name, value in row["setting"].items())
    paper = number(row["paper_mean"])
    if row["paper_std"] is not None:
        paper += f" ± {number(row['paper_std'])}"
    values = row | {
        "setting": setting,
        "mean": number(row["mean"]),
        "std": number(row["std"]),
        "paper": paper,
        "seconds": number(row["seconds"], ".1f"),
    }
    return [str(values[name]) for name in COLUMNS]


def demonstration(*options: str) -> str:
    """The rows of `moml demo` as a table."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        demo = (sys.executable, "-c", "from moml.cli import main; main()", "demo")
        run(*demo, *options, "--out", folder, "--json", str(rows))
        table = [COLUMNS, ["---"] * len(COLUMNS), *map(cells, json.loads(rows.read_text()))]
    lines = [f"| {' | '.join(line)} |" for line in table]
    command = " ".join(["moml demo", *options, "--json rows.json"])
    return f"```text\n$ {command}\n```\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    """Run everything, then write the page."""
    parser = argparse.ArgumentParser(description="Write docs/measured.md.")
    parser.add_argument("--skip", nargs="*", default=[], help="benchmarks to leave out, by name")
    parser.add_argument("--demo", nargs=argparse.REMAINDER, default=[], help="options of the demo")
    given = parser.parse_args()
    scripts = sorted((ROOT / "benchmarks").glob("bench_*.py"))
    wanted = [s for s in scripts if s.stem.removeprefix("bench_") not in given.skip]
    speed = "\n".join(benchmark(script) for script in wanted)
    demo = demonstration(*given.demo)
    left_out = f" Left out: {', '.join(given.skip)}." if given.skip else ""
    PAGE.write_text(
        f"""# Measured

Written by `python docs/measure.py` on {datetime.date.today():%d %B %Y}; not edited by hand.

Machine: {machine()}.{left_out}

## Speed

Each script times its sides in turns, in one process. A ratio is the best time of the first over
the best time of the second, or of medians where the script says so.

{speed}
## The demonstration

`mean` and `std` are over the seeds that were not lost; `paper` is the figure that the paper prints
for the setting, a dash where it prints none.

{demo}""",
        encoding="utf-8",
    )
    print(f"wrote {PAGE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
