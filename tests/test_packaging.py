"""The wheel and the sdist, built and installed apart from this checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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


def test_the_wheel_is_typed_and_holds_no_tests(built):
    [wheel] = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "moml/py.typed" in names
    assert not [name for name in names if "tests" in name or "benchmarks" in name]
