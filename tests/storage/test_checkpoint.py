import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

from moml.algorithms.parts.memory import debiased_ema, ema
from moml.errors import CheckpointError
from moml.storage import checkpoint
from moml.storage.checkpoint import Checkpoints

DTYPES = ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "bool"]
ODD = np.array([0x7FC01234, 0xFFC00001, 0x80000000, 0x7F800001, 0x00000001], np.uint32)


class State(NamedTuple):
    meta: Any
    optimiser: Any
    nothing: Any
    key: Any


def small(step=1):
    w = np.random.default_rng(step).standard_normal(40)
    return {"w": w, "step": np.array(step, np.int32)}


def same_bytes(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


def shapes(state):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)


def filled(folder, *steps, keep=9):
    with Checkpoints(folder, keep) as checkpoints:
        for step in steps:
            checkpoints.save(step, small(step), {"told": step})
    return checkpoints


def load(folder, like=None, **given):
    return Checkpoints(folder, 1).load(small() if like is None else like, **given)


def files_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_what_comes_back_is_what_was_saved(tmp_path):
    w = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.zeros(())}
    adam = optax.chain(optax.clip(1.0), optax.adam(0.1), optax.identity())
    state = State(
        meta={
            **{name: np.arange(3).astype(name) for name in DTYPES},
            "bfloat16": np.array([1.5, -0.0], ml_dtypes.bfloat16),
            "odd": ODD.view(np.float32),
            "minus zero": np.full((2, 2), -0.0),
            "minus zero half": np.full(2, -0.0, ml_dtypes.bfloat16),
            "scalar": np.array(-0.0),
            "true": np.array(True),
            "no rows": np.zeros((0, 3), ml_dtypes.bfloat16),
            "v1": ema(4).init(w),
            "v2": debiased_ema(4, 0.5).init(w),
        },
        optimiser=(adam.init(w), ()),
        nothing=None,
        key=jax.random.key_data(jax.random.key(3)),
    )
    notes = {"seed": 1, "list": [1, None, "ü"], "least": 5e-324}
    with Checkpoints(tmp_path / "new" / "checkpoints", 1) as checkpoints:
        checkpoints.save(12_000, state, notes, score=0.1)
        saved = checkpoints.load(shapes(state))
    assert (saved.step, saved.info, saved.score) == (12_000, notes, 0.1)
    same_bytes(saved.state, state)
    assert (tmp_path / "new" / "checkpoints" / "0000012000" / "manifest.json").is_file()


@pytest.mark.parametrize("state", [(), None, {"a": np.zeros((0, 2))}, np.arange(3.0)])
def test_states_of_little(tmp_path, state):
    with Checkpoints(tmp_path, 1) as checkpoints:
        checkpoints.save(0, state, {})
        same_bytes(checkpoints.load(state).state, state)


def test_the_copy_is_made_before_the_buffers_are_given_away(tmp_path):
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    state = jnp.zeros(100_000)
    with Checkpoints(tmp_path, 9) as checkpoints:
        for i in range(3):
            checkpoints.save(i, state, {})
            state = step(state)
        for i in reversed(range(3)):
            saved = checkpoints.load(state)
            assert saved.step == i and (saved.state == i).all()
            shutil.rmtree(checkpoints.path(i))


def test_nothing_there_is_none(tmp_path):
    assert load(tmp_path / "never") is None


def damages(original, rng):
    """Ninety-six ways to damage a file: flipped bits, cut ends, bytes added, nothing left."""
    for place in rng.integers(8 * len(original), size=90):
        hurt = bytearray(original)
        hurt[place // 8] ^= 1 << (place % 8)
        yield bytes(hurt)
    for length in (0, len(original) - 1, *rng.integers(len(original), size=2)):
        yield original[:length]
    yield original + b"\0"
    yield None


def test_damage_in_any_file_is_found_and_the_one_before_is_taken(tmp_path, caplog):
    folder = filled(tmp_path, 1, 2).path(2)
    rng = np.random.default_rng(0)
    trials = 0
    for name, original in files_of(folder).items():
        for hurt in damages(original, rng):
            trials += 1
            (folder / name).unlink() if hurt is None else (folder / name).write_bytes(hurt)
            caplog.clear()
            saved = load(tmp_path)
            assert saved.step == 1 and saved.info == {"told": 1}, (name, hurt)
            same_bytes(saved.state, small(1))
            assert f"{folder} is skipped: " in caplog.text and folder.name in caplog.text
            assert name in caplog.text or "manifest.json" in caplog.text
            assert "going back to the checkpoint of step 1" in caplog.text
        (folder / name).write_bytes(original)
    assert trials == 288
    assert load(tmp_path).step == 2


def test_what_does_not_belong_is_found(tmp_path):
    folder = filled(tmp_path, 1, 2).path(2)
    (folder / "more").write_text("")
    with pytest.raises(CheckpointError, match=r"it is of step 1.*more does not belong"):
        os.rename(folder.with_name("0000000001"), folder.with_name("0000000003"))
        load(tmp_path)


def test_when_none_is_good_nothing_is_deleted(tmp_path, caplog):
    checkpoints = filled(tmp_path, 1, 2)
    for step in (1, 2):
        (checkpoints.path(step) / "info.json").write_text("{}")
    before = files_of(tmp_path)
    with pytest.raises(CheckpointError, match=r"0000000002: info.json has .*0000000001: ") as told:
        load(tmp_path)
    assert told.value.exit_code == 2 and str(tmp_path) in str(told.value)
    assert files_of(tmp_path) == before


def test_another_format_is_refused_by_name(tmp_path, monkeypatch):
    filled(tmp_path, 1)
    for number, age in ((7, "a newer version"), (2, "version 0.1")):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "FORMAT", number)
            filled(tmp_path, 2)
        assert load(tmp_path).step == 1
        os.rename(tmp_path / "0000000001", tmp_path / ".hidden")
        told = f"it has format {number}, written by {age} of moml; this version reads format 3"
        with pytest.raises(CheckpointError, match=told) as refused:
            load(tmp_path)
        assert "\n" not in str(refused.value)
        os.rename(tmp_path / ".hidden", tmp_path / "0000000001")


@pytest.mark.parametrize(
    "like, told",
    [
        ({"step": np.int32(0), "v": np.zeros(40)}, r"\['w'\] float64\[40\] where \['v'\] float64"),
        ({"step": np.int32(0), "w": np.zeros(41)}, r"\[40\] where \['w'\] float64\[41\]"),
        ({"step": np.int64(0), "w": np.zeros(40)}, r"\['step'\] int32\[\] where \['step'\] int64"),
        ({"step": np.int32(0)}, r"\['w'\] float64\[40\] where nothing is expected"),
        ({**small(), "x": np.zeros(2)}, r"nothing where \['x'\] float64\[2\] is expected"),
    ],
)
def test_another_state_is_refused_by_its_first_leaf(tmp_path, like, told):
    filled(tmp_path, 1)
    with pytest.raises(CheckpointError, match="holds another state: .*" + told):
        load(tmp_path, like)


def test_the_caller_has_a_say(tmp_path, caplog):
    filled(tmp_path, 1, 2)
    reason = lambda info: "metrics are too short" if info["told"] == 2 else None
    assert load(tmp_path, usable=reason).step == 1
    assert "0000000002 is skipped: metrics are too short" in caplog.text


def test_the_newest_and_the_best_are_kept(tmp_path):
    with Checkpoints(tmp_path, 2) as checkpoints:
        for step, score in enumerate([5.0, 1.0, float("nan"), 3.0, 1.0, 2.0, None, None]):
            checkpoints.save(step, small(step), {}, score=score)
    assert checkpoints.steps() == [4, 6, 7]  # of equals the newer
    assert checkpoints.load(small(0), best=True).step == 4
    assert checkpoints.load(small(0)).step == 7
    with Checkpoints(tmp_path, 1) as checkpoints:
        checkpoints.save(8, small(8), {}, score=0.5)
    assert checkpoints.steps() == [8]
    assert [path.name for path in tmp_path.iterdir()] == ["0000000008"]
    with Checkpoints(tmp_path, 1) as checkpoints:
        checkpoints.save(3, small(3), {})
    assert checkpoints.steps() == [3, 8]  # never the one just written


def test_a_bad_one_takes_no_place_among_the_newest(tmp_path):
    filled(tmp_path, 1, 2, 3, 4)
    for step in ("0000000003", "0000000004"):
        (tmp_path / step / "info.json").write_text("")
    with Checkpoints(tmp_path, 2) as checkpoints:
        assert checkpoints.load(small()).step == 2
        assert checkpoints.steps() == [1, 2, 3, 4]
        checkpoints.save(3, small(3), {})
    assert checkpoints.steps() == [2, 3]
    assert load(tmp_path).step == 3


def test_what_a_killed_process_left_is_cleared_and_a_swap_undone(tmp_path):
    checkpoints = filled(tmp_path, 1)
    shutil.copytree(checkpoints.path(1), tmp_path / ".writing-0000000002")
    shutil.copytree(checkpoints.path(1), tmp_path / ".old-0000000000")
    (tmp_path / ".mine").mkdir()
    swapped = tmp_path / ".swapped-0000000001"
    os.rename(checkpoints.path(1), swapped)
    assert load(tmp_path).step == 1  # it was being replaced: others still read the old one
    assert checkpoints.steps() == [1] and checkpoint.newest_info(tmp_path)[0] == swapped
    checkpoints.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine", "0000000001"]
    assert load(tmp_path).step == 1


def test_a_failed_write_is_told_at_the_next_call_and_another_may_succeed(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    checkpoints = filled(tmp_path, 1)
    checkpoints = Checkpoints(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_arrays", fail)
        checkpoints.save(2, small(2), {})
        with pytest.raises(CheckpointError, match=f"step 2 in {tmp_path}: no space left"):
            checkpoints.save(3, small(3), {})
        with pytest.raises(KeyError), checkpoints:  # the first error is not hidden by the second
            checkpoints.save(3, small(3), {})
            raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["0000000001"]
    filled(tmp_path, 4)
    assert load(tmp_path).step == 4


def test_writing_goes_on_beside(tmp_path, monkeypatch):
    go, save = threading.Event(), checkpoint.write_arrays
    monkeypatch.setattr(checkpoint, "write_arrays", lambda *given: (go.wait(60), save(*given)))
    with Checkpoints(tmp_path, 1) as checkpoints:
        assert not checkpoints.busy
        checkpoints.save(1, small(), {})
        assert checkpoints.busy and checkpoints.steps() == []
        go.set()
        checkpoints.wait()
        assert not checkpoints.busy and checkpoints.steps() == [1]


# Processes of their own: what runs out of room, and what is killed.

COMMON = textwrap.dedent("""
    import json, os, resource, signal, sys
    import numpy as np
    from pathlib import Path
    from moml.errors import CheckpointError
    from moml.storage.checkpoint import Checkpoints
    folder = Path(sys.argv[1])
    def state(step):
        return {"w": np.random.default_rng(step).standard_normal((7, 100)), "step": np.int32(step)}
    def check():
        saved = Checkpoints(folder, 1).load(state(0))
        if saved is None:
            return 0
        for name, leaf in state(saved.step).items():
            assert leaf.tobytes() == saved.state[name].tobytes()
        return saved.step
""")
FULL = """
from moml.storage import checkpoint
if sys.argv[2] == "in the midst":
    checkpoint.check_space = lambda *_: None
checkpoints = Checkpoints(folder, 1)
checkpoints.save(1, state(1), {})
checkpoints.wait()
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
checkpoints.save(2, state(2) | {"more": np.ones(10**6)}, {})
try:
    checkpoints.wait()
except CheckpointError as error:
    print(json.dumps([str(error), check(), sorted(os.listdir(folder))]))
"""


def python(*given, prefix=()):
    command = [*prefix, sys.executable, "-c", *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_a_file_that_cannot_grow_leaves_the_last_good_one(tmp_path):
    done = python(COMMON + FULL, tmp_path, "limit")
    message = f"cannot save step 2 in {tmp_path}: File too large"
    assert json.loads(done.stdout) == [message, 1, ["0000000001"]]


@pytest.mark.parametrize(
    "noticed, reason",
    [("before", "no space left: 8.0 MB needed, 3"), ("in the midst", "no space left on device")],
)
def test_a_full_disk_leaves_the_last_good_one(tmp_path, noticed, reason):
    mount = ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=3m none {tmp_path} && "$@"']
    try:
        subprocess.run([*mount, "sh", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine gives no file system of our own")
    done = python(COMMON + FULL, tmp_path, noticed, prefix=[*mount, "sh"])
    message, *rest = json.loads(done.stdout)
    assert message.startswith(f"cannot save step 2 in {tmp_path}: {reason}")
    assert rest == [1, ["0000000001"]]
    assert noticed != "before" or done.stderr == ""


# A process for every moment: it dies at its n-th touch of the folder, the next one goes on.
KILLED = """
def die_at(moment):
    touches = 0
    def touch():
        nonlocal touches
        touches += 1
        if touches == moment:
            os.kill(os.getpid(), signal.SIGKILL)
    def hook(event, given):
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
            if str(folder) in str(given[0]):
                touch()
    sys.addaudithook(hook)
    sync = os.fsync
    def synced(handle): touch(); sync(handle); touch()  # before it and after
    os.fsync = synced
sure = Path(sys.argv[2])  # the step that was on disk for certain
def live(moment):
    with Checkpoints(folder, 1) as checkpoints:
        checkpoints.clear()
        step = check()
        assert step >= int(sure.read_text()), (step, sure.read_text())
        checkpoints.save(step + 1, state(step + 1), {})
        checkpoints.wait()
        sure.write_text(str(step + 1))
        die_at(moment)
        checkpoints.save(step + 1, state(step + 1), {})  # replaced
        checkpoints.save(step + 2, state(step + 2), {})
sure.write_text("0")
for moment in range(1, 1000):
    if not (pid := os.fork()):
        try:
            live(moment)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    hidden = sorted(name for name in os.listdir(folder) if name.startswith("."))
    print(json.dumps([moment, status, hidden]), flush=True)
    if status != signal.SIGKILL:
        break
"""


def test_killed_at_every_moment_of_a_save(tmp_path):
    done = python(COMMON + KILLED, tmp_path / "run", tmp_path / "sure")
    *killed, (_, last, _) = [json.loads(line) for line in done.stdout.splitlines()]
    assert last == 0, done.stderr  # it lived to the end: no touch was left to die at
    assert len(killed) >= 50 and all(status == 9 for _, status, _ in killed)
    left = {name.split("-")[0] for _, _, hidden in killed for name in hidden}
    assert left == {".writing", ".swapped", ".old"}


LOOP = """
checkpoints = Checkpoints(folder, 2)
checkpoints.clear()
step = check()
while True:
    step += 1
    checkpoints.save(step, state(step), {}, score=-step)
    checkpoints.wait()
    print(step, flush=True)
"""


def test_killed_at_random_moments(tmp_path):
    rng = np.random.default_rng(0)
    saved = 0
    for _ in range(3):
        command = [sys.executable, "-c", COMMON + LOOP, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            for _ in range(rng.integers(1, 4)):
                saved = int(child.stdout.readline())
            time.sleep(rng.uniform(0, 0.05))
            child.kill()
        found = int(python(COMMON + "print(check())", tmp_path).stdout)
        assert found >= saved


def test_rewriting_removes_a_damaged_one_and_changes_the_others(tmp_path):
    filled(tmp_path, 1, 2, 3)
    file = next(
        path for path in (tmp_path / f"{3:010d}").iterdir() if path.suffix == ".safetensors"
    )
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with Checkpoints(tmp_path, 9) as checkpoints:
        doubled = lambda state: state | {"w": 2 * state["w"]}
        assert checkpoints.rewrite(small(), doubled) == [3]
        assert checkpoints.steps() == [1, 2]
    same_bytes(load(tmp_path).state, doubled(small(2)))
