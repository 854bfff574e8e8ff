"""The one law: data flows one way, and an import may only point left."""

import ast
import inspect
import subprocess
import sys
from functools import cache
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
RANK |= dict.fromkeys(("methods", "parts"), RANK["algorithms"]) | dict.fromkeys(
    ("plugins", "problems"), RANK["config"]
)
RANK |= {"estimator": RANK["tabular"]}
ALONE = "moml.serving.moml_serve"  # copied into exports, where there is no moml
SOURCE = Path(moml.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


@cache
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


def test_imports_point_left():
    for path in FILES:
        if path == SOURCE / "__init__.py":
            continue  # the public names: it sees every room
        room = room_of(path)
        assert room in RANK, f"{room} is no room of the house: give it a place in the law"
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "moml" and len(parts) > 1:
                assert parts[1] in RANK, f"{path} imports {name} from the top instead of its room"
                assert RANK[parts[1]] <= RANK[room], f"{path} imports {name}, to its right"


def test_predictor_stands_alone():
    [predictor] = [path for path in FILES if path.name == "moml_serve.py"]
    assert not [name for name in imports(predictor) if name.split(".")[0] == "moml"]
    assert not [path for path in FILES if ALONE in imports(path)]


def test_rooms_are_small():
    folders = {path.parent for path in FILES}
    crowded = {folder.name: n for folder in folders if (n := len(list(folder.glob("*.py")))) > 15}
    assert not crowded


def test_algorithms_touch_nothing_outside():
    outside = {"os", "pathlib", "time", "random", "io", "sys", "datetime", "logging"}
    for path in FILES:
        if room_of(path) == "algorithms":
            assert not outside & {name.split(".")[0] for name in imports(path)}, path


def test_import_is_light():
    heavy = ["orbax", "tyro", "pyarrow", "flwr", "rich", "matplotlib", "flax", "torch", "sklearn"]
    heavy += ["lightgbm"]
    heavy += ["equinox", "safetensors", "pandas", "PIL", "pooch", "polars"]
    heavy += ["wandb", "mlflow", "onnx", "onnxruntime", "optuna", "tensorboardX"]
    use = "[getattr(moml, name) for name in moml.__all__]"  # they are imported at first use
    script = f"import sys, moml; {use}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_public_names_are_few_and_documented():
    assert len(moml.__all__) <= 32
    assert moml.__all__ == sorted(moml.__all__)
    more = [getattr(moml.plugins, name) for name in moml.plugins.__all__]
    more += [moml.models.conv4, moml.models.resnet18, moml.models.wrap_loss, moml.tasks.keyed]
    for public in (*(getattr(moml, name) for name in moml.__all__), *more):
        assert (public.__doc__ or "").strip(), public
        words = [] if inspect.ismodule(public) else ["Parameters", ">>>"]
        words += ["Returns"] * inspect.isfunction(public)
        assert all(word in public.__doc__ for word in words), public


@pytest.mark.parametrize("name", moml.methods.METHODS)
def test_every_method_says_what_its_keywords_are(name):
    factory = moml.methods.METHODS[name]
    assert all(word.help for word in keywords(factory).values())
    for section in ("Parameters\n---", "Returns\n---", "Examples\n---"):
        assert section in factory.__doc__
