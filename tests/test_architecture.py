"""The one law: data flows one way, and an import may only point left."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import moml
from moml.algorithms.signature import keywords

ROOMS = [
    *("types", "data", "tasks", "models", "algorithms", "runtime", "storage", "training"),
    *("config", "runs", "tabular", "serving", "flower", "report", "paper", "cli"),
]
RANK = {room: i for i, room in enumerate(ROOMS)}
RANK |= dict.fromkeys(("errors", "atomic", "kept", "registry"), RANK["types"])
RANK |= dict.fromkeys(("methods", "parts"), RANK["algorithms"]) | {"problems": RANK["config"]}
RANK |= {"estimator": RANK["tabular"]}
ALONE = "moml.serving.moml_serve"  # copied into exports, where there is no moml
SOURCE = Path(moml.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.append(node.module or "")
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_left(path):
    if path.parent == SOURCE and path.name == "__init__.py":
        return  # the public names: it sees every room
    room = room_of(path)
    assert room in RANK, f"{room} is no room of the house: give it a place in the law"
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "moml" and len(parts) > 1:
            assert parts[1] in RANK, f"{room} imports {name} from the top instead of its room"
            assert RANK[parts[1]] <= RANK[room], f"{room} imports {name}, which lies to its right"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_predictor_stands_alone(path):
    if path.name == "moml_serve.py":
        assert not [name for name in imports(path) if name.split(".")[0] == "moml"]
    assert ALONE not in imports(path)


def test_rooms_are_small():
    folders = {path.parent for path in FILES}
    crowded = {folder.name: n for folder in folders if (n := len(list(folder.glob("*.py")))) > 15}
    assert not crowded


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_algorithms_touch_nothing_outside(path):
    if room_of(path) != "algorithms":
        return
    outside = {"os", "pathlib", "time", "random", "io", "sys", "datetime", "logging"}
    assert not outside & {name.split(".")[0] for name in imports(path)}


def test_import_is_light():
    heavy = ["orbax", "tyro", "pyarrow", "flwr", "rich", "matplotlib", "flax", "torch", "sklearn"]
    heavy += ["equinox", "safetensors", "pandas", "PIL", "pooch", "polars"]
    heavy += ["wandb", "mlflow", "onnx", "onnxruntime", "optuna", "tensorboardX"]
    use = "[getattr(moml, name) for name in moml.__all__]"  # they are imported at first use
    script = f"import sys, moml; {use}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_public_names_are_few_and_documented():
    assert len(moml.__all__) <= 44
    assert moml.__all__ == sorted(moml.__all__)
    for public in (getattr(moml, name) for name in moml.__all__):
        assert (public.__doc__ or "").strip(), public
        if inspect.isfunction(public):
            assert all(word in public.__doc__ for word in ("Parameters", "Returns", ">>>")), public


@pytest.mark.parametrize("name", moml.methods.METHODS)
def test_every_method_says_what_its_keywords_are(name):
    factory = moml.methods.METHODS[name]
    assert all(word.help for word in keywords(factory).values())
    for section in ("Parameters\n---", "Returns\n---", "Examples\n---"):
        assert section in factory.__doc__
