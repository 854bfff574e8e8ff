"""Flower's server app: the loop over rounds, each on disk before the next begins.

OUT/  run.json       experiment, configuration, and the token that memories are kept by
      checkpoints/   w and whose answers were counted, after every round
      rounds.jsonl   a line a round
      privacy.json   each client's releases, with privacy
      w.safetensors  the model, when all rounds are done
      log.txt, lock
"""

import json
import logging
import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy
from jaxtyping import PyTree

from moml.config.config import changed
from moml.config.plugins import import_plugins
from moml.config.toml import dump, parse
from moml.errors import CheckpointError, ConfigError
from moml.flower.app.learning import Server, server_of
from moml.flower.app.nodes import Nodes, exchange, wait
from moml.flower.app.privacy import Ledger
from moml.flower.app.records import arrays_of, size, tree_of
from moml.flower.app.settings import Settings, read
from moml.flower.app.strategy import Cohorts
from moml.runtime import compile_cache
from moml.storage.arrays import named_leaves, write_arrays
from moml.storage.checkpoint import Checkpoints
from moml.storage.files import writable_folder, write_text
from moml.storage.folder import Lock, open_log
from moml.storage.metrics import read as read_rows
from moml.training.loop import TrainingInfo, loop
from moml.types import Info, Meta, Record

app = ServerApp()
log = logging.getLogger("moml")
if _wrong := compile_cache.start():
    log.warning("%s", _wrong)


class State(NamedTuple):
    """What a round begins with."""

    meta: Meta
    heard: np.ndarray  # [n] the last round that a task's answer was counted in, -1: none
    server: PyTree = ()  # what the server's rule keeps


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Continue a run from its last checkpoint to its end."""
    import_plugins(str(context.run_config.get("plugin", "")).split())
    settings = read(context.run_config)
    out = writable_folder(settings.out, 0o700)
    with Lock(out), open_log(out):
        run(grid, settings, out)


def run(grid: Grid, settings: Settings, out: Path) -> State:
    """Run the rounds that are left."""
    server = server_of(settings.config)
    token = run_token(settings, out)
    host = lambda tree: jax.tree.map(np.asarray, tree)
    first = State(host(server.meta), np.full(server.n, -1, np.int32), host(server.state))
    ledger, private = None, settings.privacy
    with Checkpoints(out / "checkpoints", keep=2) as kept:
        kept.clear()
        found = kept.load(first)
        done, state = (0, first) if found is None else (found.step, State(*found.state))
        if private is not None:
            clients, file = len(server.cohort(0)[0]), out / "privacy.json"
            ledger = Ledger(private, server.n, clients, file, begun=done > 0)
        keep_rows(out, done)
        log.info("%s: from round %d of %d", settings.experiment, done, settings.rounds)
        if done < settings.rounds:
            wait(grid, settings.min_nodes, settings.timeout)
        nodes, rows = Nodes(), []

        def advance(state: State, number: int, size: int) -> tuple[State, Info]:
            state, row = one_round(grid, settings, server, nodes, ledger, token, number, state)
            rows.append(row)
            return state, Info(jnp.zeros(1), jnp.zeros(1))  # the row has the clients' mean loss

        def after(done: TrainingInfo) -> None:
            with open(out / "rounds.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            kept.save(done.step, done.carry, {})
            kept.wait()  # before anybody sees this model
            log.info("%s", describe(rows[-1]))
            print(describe(rows[-1]), flush=True)  # Flower shows it to whoever started the run

        method, rounds = settings.config.method, settings.rounds
        state, _ = loop(
            method, advance, state, steps=rounds, length=1, done=done, after=after, unit="round"
        )
    write_arrays(out / "w.safetensors", named_leaves(state.meta, "w"))
    return state


def one_round(
    grid: Grid,
    settings: Settings,
    server: Server,
    nodes: Nodes,
    ledger: Ledger | None,
    token: str,
    number: int,
    state: State,
) -> tuple[State, Record]:
    """Ask the clients, sort out bad answers, mix the mean of the others into w."""
    began = time.monotonic()
    asks = {} if ledger is None else ledger.asks
    cohorts = Cohorts(settings, server.cohort, nodes, token, state.heard, **asks)
    strategy: Strategy = cohorts if ledger is None else ledger.wrapped(cohorts)
    sent = jax.tree.map(np.asarray, server.message(state.meta, state.server))
    arrays = arrays_of(sent)
    messages = list(strategy.configure_train(number + 1, arrays, ConfigRecord(), grid))
    if ledger is not None:
        ledger.before_asking([task for each in cohorts.asked for task in each.tasks])
    replies = exchange(grid, messages, settings.timeout)
    unmoved = ledger is None or ledger.privacy.where != "server"
    good = cohorts.sifted(replies, sent, weighted=server.weighted, unmoved=unmoved)
    heard = [task for each, _ in good for task in each.tasks]
    mean, metrics = strategy.aggregate_train(number + 1, [reply for _, reply in good])
    if mean is not None:
        if ledger is not None:
            ledger.before_release()
        asked, _ = server.cohort(number)
        answered = np.isin(asked, heard).astype(asked.dtype)
        new = server.step(state.meta, state.server, tree_of(mean, sent), asked, answered)
        counted = state.heard.copy()
        counted[heard] = number
        meta, kept = jax.tree.map(np.asarray, new)
        state = State(meta, counted, kept)
    values = {} if metrics is None else dict(metrics)
    return state, {
        "round": number + 1,
        "rounds": settings.rounds,
        "metric": server.metric,
        **{name: values.get(name) for name in ("loss", "before", "after")},
        "drawn": len(heard) + sum(len(each.tasks) for each in cohorts.failed),
        "answered": len(heard),
        "failed": [each._asdict() for each in cohorts.failed],
        "released": mean is not None,
        "down": sum(map(size, messages)),
        "up": sum(size(reply) for reply in replies if reply is not None),
        "seconds": round(time.monotonic() - began, 3),
        "epsilon": None if ledger is None else ledger.epsilon,
    }


def describe(row: Record) -> str:
    """A round in one line."""
    parts = [f"round {row['round']} of {row['rounds']}"]
    if row["loss"] is not None:
        parts += [f"loss {row['loss']:.4g}", f"{row['metric']} {row['before']:.4g}"]
        parts += [f"{row['after']:.4g} after adapting"]
    parts += [f"{row['answered']} of {row['drawn']} tasks answered"]
    if row["epsilon"] is not None:
        parts += [f"epsilon {row['epsilon']:.3f}"]
    parts += [f"partition {each['partition']} failed: {each['reason']}" for each in row["failed"]]
    return ", ".join(parts)


def run_token(settings: Settings, out: Path) -> str:
    """The token of the run in this folder, which is started if there is none."""
    path = out / "run.json"
    privacy = None if settings.privacy is None else list(settings.privacy)
    about: Record = {"experiment": settings.experiment, "privacy": privacy}
    about["config"] = dump(settings.config)
    if not path.exists():
        token = secrets.token_hex(8)
        write_text(json.dumps(about | {"run": token}, indent=1) + "\n", path)
        return token
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
        text, token = str(old["config"]), str(old["run"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    config = parse(text, str(path))
    now = replace(settings.config, iterations=config.iterations)  # there may be more rounds
    fields = changed(config, now)
    fields += [name for name in ("experiment", "privacy") if old[name] != about[name]]
    if fields:
        differs = " and ".join(fields)
        raise ConfigError(f"{out} holds a run with another {differs}: give another folder as out")
    return token


def keep_rows(out: Path, done: int) -> None:
    """Remove the lines of rounds that will be done again."""
    path = out / "rounds.jsonl"
    rows = [row for row in read_rows(path) if row["round"] <= done] if path.exists() else []
    write_text("".join(json.dumps(row) + "\n" for row in rows), path)
