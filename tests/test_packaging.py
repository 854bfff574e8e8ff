"""The wheel and the sdist, built and installed apart from this checkout; a release's files."""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_installs_and_imports(built, kind, tmp_path):
    [package] = built.glob(kind)
    quiet = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    install = [sys.executable, "-m", "pip", "install", *quiet, "--target", tmp_path, package]
    subprocess.run(install, check=True, capture_output=True)
    script = "import moml; print(moml.__file__, moml.__version__)"
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))


def test_the_wheel_is_typed_small_and_holds_no_tests(built):
    [wheel] = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "moml/py.typed" in names
    assert not [name for name in names if "tests" in name or "benchmarks" in name]
    assert wheel.stat().st_size < 1_000_000


def test_twine_accepts_both(built):
    check = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir())]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_the_core_has_few_dependencies():
    assert len({Requirement(each).name for each in PROJECT["dependencies"]}) < 10


def test_the_version_is_said_once_and_cited():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.M)
    assert cited and cited[1] == PROJECT["version"]
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(r"^## (\S+)", changes, re.M)[1] == PROJECT["version"]


def test_the_workflow_runs_every_python_that_is_offered():
    named = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if ":: Python :: 3." in c}
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    tried = re.search(r"python: (\[.+\])", workflow)
    assert tried and set(json.loads(tried[1])) == named


@pytest.mark.slow  # installs the core's dependencies
def test_the_wheel_in_a_fresh_environment(built, tmp_path):
    [wheel] = built.glob("*.whl")
    venv.create(tmp_path / "fresh", with_pip=True)
    scripts = tmp_path / "fresh" / "bin"
    own = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "XLA_FLAGS", "MOML_DATA")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    environment |= {"PATH": f"{scripts}:/usr/bin:/bin", "MOML_CACHE": "off"}

    def run(*command, code=0):
        done = subprocess.run(
            [scripts / command[0], *command[1:]], cwd=tmp_path, env=environment,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    pip = ("python", "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel)
    run(*pip, "check")
    assert PROJECT["version"] in run("moml", "--version")
    assert "moml-v1" in run("moml", "methods")
    run("moml", "train", "sine", "--iterations", "200", "--out", "run")
    run("moml", "score", "run", "--json", "rows.json")
    assert json.loads((tmp_path / "rows.json").read_text())[0]["metric"] == "test_error"
    run("moml", "report", "run", "--out", "page.html")
    assert "<svg" in (tmp_path / "page.html").read_text()
    assert 'pip install "moml[report]"' in run("moml", "demo", code=2)
