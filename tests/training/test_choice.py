"""beta = auto in `fit`: the winner is the training alone at its beta; and where it is the rule."""

import logging
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moml
from moml.algorithms.parts.schedule import constant
from moml.errors import Diverged
from moml.runtime import simulate
from moml.tasks.subset import subset
from moml.training.choice import choose as choosing
from moml.training.choice.choose import choose, validation_scores
from moml.training.choice.population import Population, survivors, take, values
from moml.training.compose import compose, run_key

NET = moml.mlp(1, 8, 1)
LOSS = moml.mse(NET.predict)
W = NET.init(jax.random.key(0))
VALIDATION = moml.unseen_sine(jax.random.key(1), 30)
STREAM = replace(moml.sine(), n=None)
USERS = {"shots": 5, "test_steps": 2, "eta": 0.01}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(choosing, "SHORTEST", 100)


def same(one, two, rtol=0.0):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol), one, two)


def fit(tasks=None, **options):
    tasks = moml.sine() if tasks is None else tasks
    options = {"iterations": 200, "beta": "auto"} | USERS | options
    return moml.fit("moml", LOSS, W, tasks, **options)


def test_the_winner_is_the_training_alone_at_its_beta():
    learner = fit(validation=VALIDATION)
    choice = learner.choice
    assert choice.tasks == 30
    assert choice.rungs[0]["beta"] == pytest.approx([1.0, choice.rule, choice.rule / 2])
    assert choice.rungs[-1]["kept"] == [choice.beta] == [learner.method.options["beta"]]
    assert [len(rung["beta"]) for rung in choice.rungs][1:] == [2]
    assert [rung["step"] for rung in choice.rungs] == [120, 170]
    alone = fit(beta=choice.beta)
    assert alone.choice is None
    same(
        (alone.meta, alone.state, alone.history),
        (learner.meta, learner.state, learner.history),
    )
    assert alone.samples == learner.samples and float(learner.hyper.beta) == pytest.approx(
        choice.beta
    )


@pytest.mark.parametrize("shots, members", [(5, [(3, 120), (2, 170)]), (1, [(2, 170)])])
def test_two_values_are_compared_once(shots, members):
    """With no more shots than K the rule's beta is 1 itself."""
    chosen = compose("moml", LOSS, moml.sine(), USERS | {"beta": "auto", "shots": shots}, 200)
    score = validation_scores(chosen, LOSS, VALIDATION)
    found = Population(
        chosen, W, moml.sine(), run_key(0), constant, score, VALIDATION, steps=200, length=50,
        turns=True,
    )  # fmt: skip
    assert found.rungs() == members
    assert [len(rung["beta"]) for rung in choose(found, length=50).choice.rungs] == [
        count for count, _ in members
    ]


def population(turns, length=50):
    chosen = compose("moml", LOSS, moml.sine(), USERS | {"beta": "auto"}, 200)
    score = validation_scores(chosen, LOSS, VALIDATION)
    return Population(
        chosen, W, moml.sine(), run_key(0), constant, score, VALIDATION, steps=200,
        length=length, turns=turns,
    )  # fmt: skip


def test_side_by_side_or_in_turn_and_in_any_stretches_it_is_the_same():
    one, two = choose(population(True), length=50), choose(population(True), length=37)
    assert one.choice == two.choice
    same(one.state, two.state)
    beside = population(False)
    beside.rungs = population(True).rungs
    other = choose(beside, length=50)
    assert other.choice.beta == one.choice.beta and other.step == one.step
    same(one.state, other.state, rtol=1e-10)
    same(np.concatenate(one.history), np.concatenate(other.history), rtol=1e-10)


def test_shared_draws_are_those_of_one_training():
    chosen = compose("moml", LOSS, moml.sine(), USERS | {"beta": "auto"}, 200)
    shared = simulate.program(chosen.algorithm, members=True, shared=True)
    assert shared.draws is simulate.program(chosen.algorithm).draws


def test_a_large_step_beside_others_is_compared_for_a_short_time_only():
    def cost(members):
        rungs = members.rungs()
        ends = [0, *(rung.until for rung in rungs)]
        steps = sum(r.members * (b - a) for r, a, b in zip(rungs, ends, ends[1:], strict=False))
        return (steps + 200 - ends[-1]) / 200

    small = population(False)
    assert [rung.until for rung in small.rungs()] == [170]
    small._work = lambda: 1e12
    assert cost(small) <= 1.5 and cost(population(True)) <= 2.5


@pytest.mark.parametrize("best", [1.0, 0.6])
def test_no_memory_is_chosen_where_memory_costs(best):
    """Scores that are best at some beta, whatever the model: it is kept from rung to rung."""
    cost = lambda meta, hyper, tasks, key: jnp.full(tasks.n, 1 + abs(hyper.beta - best))
    members = population(True)
    members.method = members.method._replace(betas=(1.0, 0.6, 0.3))
    members._score = cost
    found = choose(members, length=50).choice
    assert found.beta == best and [rung["kept"][0] for rung in found.rungs][-1] == best
    assert [len(rung["beta"]) for rung in found.rungs] == [3, 2]


def test_a_tenth_of_many_tasks_is_held_out():
    x = np.tile(np.arange(200.0)[:, None, None], (1, 12, 1))
    tasks = moml.from_arrays(x, x)
    held = choosing.hold_out("moml", compose("moml", LOSS, tasks, USERS, 200), tasks, None, 200)
    assert (held.tasks.n, held.validation.n) == (180, 20)
    of = lambda some: some.fetch(jnp.arange(some.n), jnp.zeros((some.n, 1), int)).x.ravel().tolist()
    assert sorted(of(held.tasks) + of(held.validation)) == list(range(200))
    learner = fit(tasks)
    assert learner.choice.tasks == 20 and learner.method.n == 180
    assert len(learner.state.memory.visits) == 180


def test_a_subset_draws_as_its_tasks_do():
    sizes = np.arange(3, 9)
    x = np.arange(6.0)[:, None, None] * 100 + np.arange(8.0)[None, :, None]
    some = subset(moml.from_arrays(x, x, sizes), np.array([5, 2]))
    assert some.sizes(jnp.array([0, 1])).tolist() == [8, 5]
    drawn = some.draw(jax.random.key(0), jnp.array([0, 1]), 5)
    got = some.fetch(jnp.array([0, 1]), drawn).x[..., 0]
    assert (got[0] >= 500).all() and sorted(got[1].tolist()) == [200, 201, 202, 203, 204]
    waves, few = moml.sine(), subset(moml.sine(), np.array([7, 3]))
    ids, of = jnp.array([0, 1]), jnp.array([7, 3])
    same(few.draw(jax.random.key(2), ids, 4), waves.draw(jax.random.key(2), of, 4))
    with pytest.raises(moml.errors.DataError, match="a stream"):
        subset(STREAM, np.array([0]))


@pytest.mark.parametrize(
    "options, words",
    [
        ({}, "25 tasks leave fewer than 20 to hold out"),
        ({"validation": VALIDATION, "iterations": 90}, "90 steps are too few"),
    ],
)
def test_where_it_is_the_rule_a_line_says_so(caplog, options, words):
    with caplog.at_level(logging.WARNING, "moml"):
        learner = moml.fit(
            "moml", LOSS, W, moml.sine(), **{"iterations": 100, "beta": "auto"} | USERS | options
        )
    assert learner.choice is None
    (line,) = caplog.messages
    assert line.startswith("beta = ") and " by the matching rule: " in line and words in line


def test_other_reasons_for_the_rule(caplog, monkeypatch):
    learner = moml.fit("moml", LOSS, W, moml.sine(), iterations=5, beta=0.2, **USERS)
    fit(state=learner.state, validation=VALIDATION)
    made = moml.methods.method("moml", LOSS, n=25, shots=5, beta="auto")
    moml.sweep(made, LOSS, NET.init, moml.sine(), seeds=1, iterations=2)
    tasks = moml.unseen_sine(jax.random.key(5), 200)
    made = moml.methods.method("moml", LOSS, n=200, shots=5, beta="auto")
    moml.fit(made, LOSS, W, tasks, iterations=100)
    monkeypatch.setattr(choosing, "free_bytes", lambda: 1000)
    fit(validation=VALIDATION)
    found = [line.partition("rule: ")[2] for line in caplog.messages]
    words = ("a state is continued", "a sweep", "was composed for all 200", "trainings need")
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))


def test_the_rule_and_numbers_say_nothing(caplog):
    for beta in ("rule", 0.2):
        assert fit(beta=beta).choice is None
    moml.sweep(
        "moml", LOSS, NET.init, moml.sine(), seeds=1, iterations=2, shots=5, grid={"beta": [1.0]}
    )
    assert not caplog.messages
    by_rule = moml.match_beta(1, 5, steps=2, visits=24, both_ways=True)
    assert float(fit(beta="rule").hyper.beta) == pytest.approx(by_rule)


def test_members_are_compared_without_letting_one_task_decide():
    scores = np.array([[1.0] * 99, [0.5] * 98 + [1e9], [np.nan] * 99])
    assert survivors(scores, 1, higher=False, one=False) == [1]
    assert survivors(scores, 3, higher=False) == [0, 1]
    assert survivors(np.array([[10.0], [60.0]]), 1, higher=True) == [1]
    assert values(np.zeros((2, 3)), higher=False).tolist() == [[0] * 3] * 2
    with pytest.raises(Diverged, match="all values of beta"):
        survivors(np.full((2, 3), np.nan), 1, higher=False)


def test_means_decide_and_not_the_typical_task():
    """Better on most tasks by a lot, in logarithms, and worse on average."""
    scores = np.array([[1.0, 1.0, 1.0, 7.0], [0.3, 0.3, 0.3, 9.8]])
    assert survivors(scores, 1, higher=False, one=False) == [0]


def test_no_memory_is_left_only_for_what_is_surely_better():
    noise = np.random.default_rng(0).normal(size=100)
    worse = np.linspace(0.02, 0.023, 4)[:, None]
    gain = lambda size: np.stack([1 + 0 * noise, *(1 - size + worse + 0.1 * noise)])
    of = lambda size, count, one=True: survivors(gain(size), count, higher=False, one=one)
    error = 0.1 * noise.std() / 10
    for size, last, way in ((1.5, 0, 0), (2.5, 1, 0), (3.5, 1, 1)):
        size = size * error + 0.02 + 0.1 * noise.mean()
        assert of(size, 1) == [last] and (0 not in of(size, 3)) == way
        assert of(size, 1, one=False) == [1]
    assert of(-1.0, 3) == [0, 1, 2]


def test_few_tasks_are_drawn_from_several_times():
    members, seen = population(True), []
    members._score = lambda meta, hyper, tasks, key: seen.append(key) or jnp.full(30, len(seen))
    found = members.scores(members.first([1.0, 0.5]), [1.0, 0.5])
    assert found.shape == (2, 30) and found[:, 0].tolist() == [4.0, 11.0]  # of 7 draws each
    keys = [jax.random.key_data(key).tolist() for key in seen]
    assert keys[:7] == keys[7:] and len({str(key) for key in keys}) == 7


def test_validation_must_be_fixed_tasks_with_enough_samples():
    with pytest.raises(moml.errors.DataError, match="validation must be"):
        fit(validation=STREAM)
    small = moml.from_arrays(np.zeros((30, 5, 1)), np.zeros((30, 5, 1)))
    with pytest.raises(moml.errors.ConfigError, match="more than 5 samples"):
        fit(validation=small)


def test_validation_is_for_auto_alone():
    with pytest.raises(moml.errors.ConfigError, match="beta = auto alone"):
        fit(validation=VALIDATION, beta=0.2)


def test_members_in_turn_use_the_program_of_one_training():
    members = population(True)
    hyper, state = members.hyper([0.5]), members.first([0.5]).state.method
    found = members._compiled(take(state, 0), take(hyper, 0))
    assert found is simulate.program(members.method.algorithm, constant)
