import json
import tomllib
from copy import copy
from dataclasses import MISSING, fields, replace
from typing import get_args, get_type_hints

import jax
import jax.numpy as jnp
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moml.algorithms.parts.choices import CURVATURES, STEP_SIZES
from moml.algorithms.parts.optimizer import OPTIMIZERS
from moml.algorithms.signature import keywords
from moml.algorithms.single.matching import match_beta
from moml.config.config import (
    PROBLEMS,
    Config,
    changed,
    check,
    kind_of,
    method_options,
    options_of,
    with_method,
)
from moml.config.models import MODELS
from moml.config.problems import Episodes, Sine, Synthetic
from moml.config.problems.clients import OF_PARTITION
from moml.config.starts import STARTS
from moml.config.toml import dump, load, parse, texts_of, words
from moml.errors import ConfigError
from moml.methods import METHODS, factory_of, method
from moml.models.conv4 import NORMS

quick = settings(max_examples=100, deadline=None)

counts = st.integers(1, 2**31 - 1)
positive = st.floats(1e-30, 1e30)
not_negative = st.just(0.0) | positive
shares = st.floats(1e-30, 1.0)
widths = st.lists(st.integers(1, 500), max_size=4).map(tuple)
of_problem = {
    "sine": {"n": counts, "noise": not_negative, "hidden": widths},
    "synthetic": {
        "n": counts,
        "samples": st.integers(2, 2**31 - 1),
        "a": not_negative,
        "b": not_negative,
        "features": counts,
        "classes": st.integers(2, 2**31 - 1),
        "unequal": st.booleans(),
        "hidden": widths,
    },
    "episodes": {
        "dataset": st.just("omniglot"),
        "split": st.sampled_from(["usual", "publisher"]),
        "validation": st.integers(0, 2**31 - 1),
        "ways": st.integers(2, 2**31 - 1),
        "n": counts,
        "rotations": st.booleans(),
        "queries": counts,
        "alone": st.booleans(),
        "model": st.sampled_from(["conv4", "mlp"]),
        "filters": counts,
        "norm": st.sampled_from(list(NORMS)),
        "hidden": widths,
    },
    "clients": {
        "dataset": st.sampled_from(["mnist", "cifar10", "cifar100"]),
        "n": st.integers(2, 2**31 - 1),
        "unseen": st.integers(0, 2**31 - 1),
        "partition": st.sampled_from(["half-and-half", "dirichlet", "pathological"]),
        "a": st.none() | st.integers(2, 2**31 - 1),
        "test_a": st.none() | st.integers(2, 2**31 - 1),
        "concentration": st.floats(1e-30, 1e9),
        "smallest": counts,
        "classes": st.integers(1, 10),
        "model": st.sampled_from(list(MODELS)),
        "hidden": widths,
    },
    "table": {
        "path": st.sampled_from(["rows.parquet", "a folder/of mine"]),
        "n": counts,
        "task": st.just("who"),
        "features": st.sampled_from(["x", "dose, age"]),
        "target": st.just("outcome"),
        "classes": st.none() | st.integers(2, 2**31 - 1),
        "tested": st.none() | counts,
        "hidden": widths,
    },
}
SHOTS = {"sine": 2**31, "episodes": 20, "clients": 2**31, "table": 2**31}
FREE = {"path", "task", "features", "target", "private"}  # fields that any name may stand in


@st.composite
def configs(draw):
    """A kind of problem, its fields, the others: any that can be run, each option where it is one.

    Made into a Config outside: checking its types draws random numbers, which Hypothesis forbids.
    """
    kind = draw(st.sampled_from(list(PROBLEMS)))
    problem = draw(st.fixed_dictionaries(of_problem[kind]))
    for name, partition in OF_PARTITION.items():
        if kind == "clients" and problem["partition"] != partition:
            del problem[name]
    if kind == "clients" and problem["model"] != "mlp":
        del problem["hidden"]
    numbers = kind == "sine" or (kind == "table" and problem["classes"] is None)
    classifies = {"protonet"} if numbers else set()
    name = draw(st.sampled_from(sorted(set(METHODS) - classifies)))
    known = options_of(name)
    tasks = st.integers(1, problem["n"])
    needs_n = keywords(factory_of(name))["n"].required
    remembers = needs_n or {"eager", "carried", "private"} & set(known)
    if kind == "episodes" and not remembers:
        problem["n"] = draw(st.none() | st.just(problem["n"]))
    log_every = draw(st.integers(1, 10_000))
    carried, two_batches = draw(st.none() | st.booleans()), draw(st.none() | st.booleans())
    special = {
        "independent_hessian": st.booleans(),
        "eager": st.booleans(),
        "two_batches": st.just(two_batches),
        "memory_tasks": tasks if two_batches else st.none(),
        "direct": st.booleans(),
        "local_steps": st.integers(2, 2**31 - 1),  # 1 has no stragglers
        "dropout": st.floats(1e-30, 0.99),
        "straggle": shares,
        "weighted": st.booleans() if kind in ("synthetic", "clients", "table") else st.just(False),
        "local_epochs": counts if kind in ("synthetic", "clients", "table") else st.none(),
        "private": st.sampled_from(["head", "body/0|head"]),
        "at_once": counts,
        "prox": positive,
        "prox_steps": counts,
        "server_rate": shares,
        "b1": st.floats(1e-30, 0.99),
        "b2": st.floats(1e-30, 0.99),
        "tau": positive,
        "restart_samples": counts if not carried else st.none(),
        "carried": st.just(carried),
        "large_tasks": tasks,
        "period": counts,
        **dict.fromkeys(("private", "frozen", "personal"), st.sampled_from(["head", "^body/0"])),
        **dict.fromkeys(("head_passes", "mix_steps"), counts),
        **dict.fromkeys(("mix_eta", "kappa", "shift_rate"), not_negative),
        "mix": shares,
        "adaptive": st.booleans(),
    }
    special |= {
        "curvature": st.sampled_from(list(CURVATURES)),
        "step_sizes": st.sampled_from(list(STEP_SIZES)),
        "tied": st.booleans(),
        "optimizer": st.sampled_from(list(OPTIMIZERS)),
        "eta": positive,
        "alpha": not_negative,
        "tasks_per_step": tasks,
        "beta": shares,
        "gamma": shares,
        "k": counts,
        "inner_steps": counts,
    }
    unset = {option: special[option] for option in special if option in known}
    always = {
        "method": st.just(name),
        "log_every": st.just(log_every),
        "score_every": st.integers(0, 100).map(lambda times: times * log_every),
        "iterations": counts,
        "seed": st.integers(0, 2**32 - 1),
        "shots": st.integers(1, problem.get("samples", SHOTS.get(kind)) - 1),
        "test_steps": counts,
        "test_tasks": counts,
        "schedule": st.sampled_from(["drop", "cosine"]),
        "decay_after": shares,
        "save_seconds": not_negative,
        "keep": counts,
    }
    others = always | {option: st.none() | values for option, values in unset.items()}
    return kind, problem, draw(st.fixed_dictionaries(others))


def made(drawn):
    kind, problem, others = drawn
    return Config(PROBLEMS[kind](**problem), **others)


@pytest.mark.filterwarnings("ignore:pfedme")  # a large alpha is valid, with a warning
@quick
@given(configs())
def test_every_valid_configuration_round_trips(drawn):
    config = made(drawn)
    assert check(config) == config
    assert parse(dump(config), "some.toml") == config
    assert changed(config, config) == []


WRONG = {
    int: ["3", True, 1.5, float("nan"), float("inf"), -1, 2**40, 10**400, [1]],
    float: ["0.1", False, float("nan"), float("inf"), -0.5, 1e300, 10**400, [0.1]],
    bool: [0, 1, "true", 0.5],
    str: ["nosuch", "", "a\nb", 3, True, ["maml"]],
    tuple[str, ...]: [3, "math", [1], ["a b"], ["../x"], [""], ["math", "nosuch_module"]],
    tuple[int, ...]: [40, "40", [0], [-3], [1.5], [True], ["40"], [[40]], [2**40]],
}


def wrong_values(kind, method):
    """Every field's dotted name, with values that no field of its type may have."""
    for name, keyword in options_of(method).items():
        wrong = WRONG[keyword.allowed.kind]
        yield from ((name, value) for value in wrong if not (name in FREE and value == "nosuch"))
    for prefix, part in {"": Config, "problem.": PROBLEMS[kind]}.items():
        for name, hint in get_type_hints(part).items():
            if name not in ("problem", "options"):
                alone = get_args(hint)[0] if type(None) in get_args(hint) else hint
                for value in WRONG[alone] + ([None] if alone is hint else []):
                    if not (name in FREE and value == "nosuch"):
                        yield prefix + name, value


def force(config, name, value):
    """The field set, past the types that tests enforce when a Config is made."""
    config = copy(config)
    if name.startswith("problem."):
        object.__setattr__(config, "problem", copy(config.problem))
        object.__setattr__(config.problem, name.removeprefix("problem."), value)
    elif name in options_of(config.method):
        object.__setattr__(config, "options", {**config.options, name: value})
    else:
        object.__setattr__(config, name, value)
    return config


def refused_by_name(name, action):
    with pytest.raises(ConfigError, match=rf"\b{name}\b") as refused:
        action()
    assert "\n" not in str(refused.value)


@quick
@given(configs(), st.data())
def test_one_wrong_value_is_refused_by_name(drawn, data):
    name, value = data.draw(st.sampled_from(list(wrong_values(drawn[0], drawn[2]["method"]))))
    bad = force(made(drawn), name, tuple(value) if isinstance(value, list) else value)
    refused_by_name(name, lambda: check(bad))
    if name == "method" and value is not None:  # whose options decide what a file has
        text = f"method = {json.dumps(value)}\n[problem]\nkind = 'sine'"
        refused_by_name(name, lambda: parse(text, "my.toml"))
    elif value is not None and value != 10**400:  # TOML has no such values
        refused_by_name(name, lambda: parse(dump(bad), "my.toml"))


@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_wrong_value_is_refused_by_name(kind):
    for name, value in wrong_values(kind, "moml"):
        bad = force(Config(PROBLEMS[kind](n=25)), name, value)
        refused_by_name(name, lambda bad=bad: check(bad))


@pytest.mark.parametrize(
    "given, words_",
    [
        (dict(method="maml", beta=0.3), ["maml", "beta"]),
        (dict(method="maml", gamma=0.3), ["maml", "gamma"]),
        (dict(method="maml", eager=True), ["maml", "eager"]),
        (dict(method="maml", period=3), ["maml", "period"]),
        (dict(method="fo-maml", curvature="exact"), ["fo-maml", "curvature"]),
        (dict(method="nasa", optimizer="adam"), ["nasa", "optimizer"]),
        (dict(method="localmoml", carried=True, restart_samples=4), ["carried", "restart_samples"]),
        (dict(method="bspiderboost", large_tasks=26), ["large_tasks", "26", "25"]),
        (dict(method="moml-v2", memory_tasks=5), ["memory_tasks", "two_batches"]),
        (dict(method="moml-v2", memory_tasks=26, two_batches=True), ["memory_tasks", "26", "25"]),
        (dict(method="per-fedavg", beta=0.3), ["per-fedavg", "beta"]),
        (dict(method="per-fedavg", restart_samples=3), ["per-fedavg", "restart_samples"]),
        (dict(method="fedavg", curvature="exact"), ["fedavg", "curvature"]),
        (dict(method="fedavg", weighted=True), ["weighted", "sizes", "sine"]),
        (dict(method="fedavg", local_epochs=1), ["local_epochs", "sizes", "sine"]),
        (dict(method="fedavg", dropout=1.0), ["dropout", "[0, 1)", "1.0"]),
        (dict(method="pfedme", straggle=0.5, local_steps=1), ["straggle", "local_steps"]),
        (dict(method="pfedme", server_rate=0.0), ["server_rate", "0.0"]),
        (dict(method="fedadam", b2=1.0), ["b2", "[0, 1)", "1.0"]),
        (dict(method="fedadam", tau=0.0), ["tau", "positive", "0.0"]),
        (dict(method="feddyn", prox=0.0), ["prox", "positive", "0.0"]),
        (dict(method="fedavg", k=2, batch_size=3), ["batch_size", "2 and 3"]),
        (dict(method="per-fedavg", private="head("), ["private", "regular expression", "head("]),
        (dict(method="ditto", prox_steps=3), ["ditto", "prox_steps"]),
        (dict(tasks_per_step=26), ["tasks_per_step", "26", "25"]),
        (dict(eta=0.0), ["eta", "0"]),
        (dict(beta=1.5), ["beta", "1.5"]),
        (dict(beta=0.0), ["beta"]),
        (dict(curvature="none"), ["curvature", "none", "finite-difference"]),
        (dict(optimizer="nadam"), ["optimizer", "nadam", "adam", "sgd"]),
        (dict(method="mmol"), ["method", "mmol", "moml-v2"]),
        (dict(log_every=300), ["score_every", "10000", "log_every", "300"]),
        (dict(decay_after=0.0), ["decay_after"]),
        (dict(decay_after=1.1), ["decay_after", "1.1"]),
        (dict(problem=Synthetic(samples=10)), ["shots", "10"]),
        (dict(problem=Synthetic(classes=1)), ["problem.classes", "1"]),
        (dict(seed=2**32), ["seed"]),
        (dict(method="protonet"), ["protonet", "sine"]),
        (dict(method="reptile", tied=True), ["reptile", "tied"]),
        (dict(method="meta-sgd", step_sizes="layer"), ["meta-sgd", "step_sizes"]),
        (dict(step_sizes="none"), ["step_sizes", "none", "layer"]),
        (dict(schedule="never"), ["schedule", "never", "cosine"]),
        (dict(problem=Episodes("mnist")), ["problem.dataset", "mnist", "omniglot"]),
        (dict(problem=Episodes("cifar100", "publisher", n=9)), ["problem.split", "cifar100"]),
        (dict(problem=Episodes(norm="layer")), ["problem.norm", "layer", "sample"]),
        (dict(problem=Episodes(ways=1)), ["problem.ways", "1"]),
        (dict(problem=Episodes(n=9), shots=20), ["shots", "20"]),
        (dict(problem=Episodes()), ["memory", "stream"]),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(given, words_):
    with pytest.raises(ConfigError) as refused:
        check(Config(**{"problem": Sine()} | given))
    for word in words_:
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", METHODS)
def test_shots_and_test_steps_are_for_every_method(name):
    config = check(Config(Synthetic(), method=name, shots=5, test_steps=3))
    assert ("shots" in method_options(config)) == (name in ("moml", "localmoml"))


def test_whole_numbers_and_lists_become_what_the_fields_hold():
    config = check(force(force(Config(Sine()), "eta", 1), "problem.hidden", [3, 4]))
    assert type(config.options["eta"]) is float and config.problem.hidden == (3, 4)


def test_options_compose_the_method():
    config = check(Config(Sine(), shots=9, test_steps=1, optimizer="sgd", eager=True))
    chosen = method("moml", lambda w, batch: jnp.sum(w), n=25, **method_options(config))
    assert chosen.hyper.beta == match_beta(1, 9, both_ways=True)
    assert chosen.eager
    w = jnp.ones(3)
    state = chosen.algorithm.init(w, chosen.hyper)
    assert not jax.tree.leaves(state.optimizer)
    adam = method("moml", lambda w, batch: jnp.sum(w), n=25, shots=9, optimizer="adam")
    state = adam.algorithm.init(w, adam.hyper).optimizer
    assert jax.tree.structure(state) == jax.tree.structure(optax.adam(0.1).init(w))
    assert method_options(Config(Sine(), method="maml")) == {}


def test_options_are_the_plain_keywords_of_the_signature():
    known = options_of("moml-v1")
    assert {"eta", "beta", "k", "curvature", "tied", "optimizer"} <= set(known)
    assert not {"n", "loss", "leaves", "adapt"} & set(known)
    assert not {"shots", "test_steps", "iterations"} & set(options_of("moml"))  # the run's


def test_another_method_keeps_the_options_that_it_has():
    few = with_method(STARTS["omniglot"], "protonet")
    assert few.options == {"eta": 0.01, "tasks_per_step": 16, "optimizer": "adam"}
    assert check(few).method == "protonet"
    assert STARTS["omniglot"].option("step_sizes") == "layer" and few.option("step_sizes") is None


def test_no_problem_is_forgotten():
    for kind, problem in PROBLEMS.items():
        assert kind_of(problem()) == kind
        assert all(f.default is not MISSING for f in fields(problem))
        assert kind in words(Config)["problem"]


def test_every_field_has_words_that_name_what_is_allowed():
    for part in (Config, *PROBLEMS.values()):
        texts = words(part)
        assert list(texts) == [f.name for f in fields(part)]
        for name, kind in get_type_hints(part).items():
            if name not in ("problem", "options") and {int, float} & {kind, *get_args(kind)}:
                assert any(w in texts[name] for w in ("from ", "above 0", "multiple")), name
    for method_ in METHODS:
        texts = texts_of(Config(Sine(), method=method_))
        for name, keyword in options_of(method_).items():
            assert keyword.help, (method_, name)
            assert keyword.allowed.kind in (bool, str) or keyword.allowed.text in texts[name]
    for field, allowed in {"curvature": CURVATURES, "optimizer": OPTIMIZERS}.items():
        assert all(name in texts_of(Config(Sine()))[field] for name in allowed)


def test_changed_names_the_fields():
    sine = Config(Sine())
    assert changed(sine, replace(sine, eta=0.1, problem=Sine(noise=0.5))) == [
        "eta", "problem.noise",
    ]  # fmt: skip
    assert changed(sine, replace(sine, iterations=7)) == ["iterations"]
    other = changed(sine, Config(Synthetic()))
    assert "problem.kind" in other and "problem.samples" in other and "eta" not in other


@pytest.mark.parametrize("name", STARTS)
def test_starting_points_are_complete_commented_files(name, tmp_path):
    text = dump(load(name))
    assert load(name) == check(load(name))
    for field, words_ in {**texts_of(load(name)), **words(type(load(name).problem))}.items():
        assert f"{field} =" in text or field == "problem"
        assert " ".join(words_.split()[:4]) in text
    assert max(map(len, text.splitlines())) < 100
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    assert load(file) == load(str(file)) == load(name)
    uncommented = text.replace("# curvature =", 'curvature = "first-order"')
    assert parse(uncommented, "x") == replace(load(name), curvature="first-order")


@pytest.mark.parametrize(
    "text, words_",
    [
        ("etta = 0.1\n[problem]\nkind = 'sine'", ["etta", "eta?"]),
        (
            "beta = 0.3\nmethod = 'maml'\n[problem]\nkind = 'sine'",
            ["maml has no", "'beta'", "eta?"],
        ),
        ("qqqqqq = 0.1\n[problem]\nkind = 'sine'", ["qqqqqq", "iterations", "keep"]),
        ("[problem]\nkind = 'sine'\nnoize = 1", ["problem.noize", "problem.noise?"]),
        ("[problem]\nkind = 'sine'\nsamples = 1", ["problem.samples", "hidden"]),
        ("[problem]\nkind = 'sine'\neta = 0.1", ["problem.eta", "above"]),
        ("eta = 0.1", ["[problem]", "kind", "synthetic"]),
        ("problem = 3", ["[problem]", "kind"]),
        ("[problem]\nn = 3", ["problem.kind", "None", "sine"]),
        ("[problem]\nkind = 'sin'", ["problem.kind", "'sin'", "sine"]),
        ("[problem]\nkind = ['sine']", ["problem.kind", "sine"]),
        ("k = 2020-01-01\n[problem]\nkind = 'sine'", ["k must", "2020"]),
        ("[eta]\n[problem]\nkind = 'sine'", ["eta must be a number", "{}"]),
        ("k = \n[problem]\nkind = 'sine'", ["not TOML", "line 1"]),
        ("k = 1\nk = 2\n[problem]\nkind = 'sine'", ["not TOML"]),
        ("k = " + "[" * 5000, ["not TOML"]),
        ("k = " + "9" * 5000, ["not TOML"]),
    ],
)
def test_a_bad_file_is_one_line(text, words_):
    with pytest.raises(ConfigError) as refused:
        parse(text, "bad.toml")
    for word in ["bad.toml", *words_]:
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_not_there_names_the_starting_points(tmp_path):
    with pytest.raises(ConfigError, match=r"nosuch.*neither a file.*sine, synthetic"):
        load("nosuch")
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="cannot read"):
        load("x" * 5000)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "binary")


@quick
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_in_a_file(text):
    from moml.config.toml import _value

    assert tomllib.loads(f"x = {_value(text)}") == {"x": text}
