"""A second call with the same functions and like shapes compiles nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import monitoring

import moml
from moml.errors import DataError
from moml.runtime import simulate
from moml.types import Hyper

NET = moml.mlp(2, 8, 1)
LOSS = moml.mse(NET.predict)
EVENT = "/jax/core/compile/backend_compile_duration"
compiled: list[str] = []
monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **more: compiled.append(name) if name == EVENT else None
)


@contextmanager
def compilations() -> Iterator[Callable[[], int]]:
    """Count the programs that are compiled inside."""
    before = len(compiled)
    yield lambda: len(compiled) - before


def params() -> moml.types.Params:
    return NET.init(jax.random.key(0))


def tasks(seed: int = 0, n: int = 6) -> moml.Tasks:
    """Other data of the same shape for each seed."""
    rng = np.random.default_rng(seed)
    return moml.from_arrays(rng.normal(size=(n, 20, 2)), rng.normal(size=(n, 20, 1)))


def unequal(seed: int = 0) -> moml.Tasks:
    rng = np.random.default_rng(seed)
    rows = np.split(np.arange(60), [5, 30, 45])
    return moml.from_rows(rng.normal(size=(60, 2)), rng.normal(size=(60, 1)), rows)


def episodes(seed: int = 0) -> moml.Tasks:
    rng = np.random.default_rng(seed)
    return moml.episodes(rng.integers(0, 255, (8, 6, 1, 1, 2), np.uint8), ways=2)


def flat(params: moml.types.Params, batch: moml.Batch) -> jax.Array:
    """A loss of images of two pixels."""
    answers = NET.predict(params, batch.x.reshape(len(batch.x), 2))[:, 0]
    return jnp.mean((answers - batch.y.astype(float)) ** 2)


adam = optax.adam(0.01)
CASES = {
    "arrays": lambda seed: moml.fit(
        "moml", LOSS, params(), tasks(seed), iterations=70, chunk=30, shots=5, eta=0.01 + seed
    ),
    "clients": lambda seed: moml.fit("localmoml", LOSS, params(), unequal(seed), iterations=20),
    "stream": lambda seed: moml.fit("maml", flat, params(), episodes(seed), iterations=20),
    "eager": lambda seed: moml.fit(
        "moml-v2", LOSS, params(), tasks(seed), iterations=20, eager=True, seed=seed
    ),
    "optimizer": lambda seed: moml.fit(
        "maml", LOSS, params(), tasks(seed), iterations=20, optimizer=adam
    ),
    "sweep": lambda seed: moml.sweep(
        "moml-v1", LOSS, NET.init, tasks(seed), seeds=2, iterations=50, chunk=20,
        grid={"eta": [0.01, 0.02 + seed], "beta": [0.3]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_second_training_compiles_nothing(case):
    with compilations() as first:
        CASES[case](0)
    with compilations() as second:
        CASES[case](1)
    assert first() > 0
    assert second() == 0


def test_a_second_evaluation_adaptation_and_continuation_compile_nothing():
    def all_(seed: int) -> None:
        learner = moml.fit("maml", LOSS, params(), tasks(), iterations=20)
        moml.evaluate(learner, LOSS, tasks(seed), shots=5, seed=seed)
        x = np.full((4, 2), 0.1 * seed)
        learner.adapt(moml.Batch(x, x[:, :1]))
        moml.fit("maml", LOSS, params(), tasks(), iterations=20, state=learner.state)

    with compilations() as first:
        all_(0)
    with compilations() as second:
        all_(1)
    assert first() > 0
    assert second() == 0


def test_a_last_stretch_that_is_shorter_has_no_program_of_its_own():
    history = [moml.fit("maml", LOSS, params(), tasks(), iterations=70).history]
    with compilations() as one:
        history += [moml.fit("maml", LOSS, params(), tasks(), iterations=60, chunk=30).history]
    with compilations() as two:
        history += [moml.fit("maml", LOSS, params(), tasks(), iterations=70, chunk=30).history]
    assert one() > 0
    assert two() == 0
    np.testing.assert_array_equal(history[0], history[2])
    np.testing.assert_array_equal(history[0][:60], history[1])


def test_data_are_arguments_and_no_constants():
    """No array of the shape of the data is a constant of the program."""
    method, whole = moml.methods.method("moml-v1", LOSS, n=6), tasks()
    hyper = jax.tree.map(jnp.asarray, Hyper(eta=0.1, beta=0.5, alpha=0.01))
    state = jax.eval_shape(method.algorithm.init, params(), hyper)
    program = simulate.program(method.algorithm)
    lowered = program.lower(state, whole, jax.random.key(0), hyper, 10)
    text = "\n".join(one.as_text() for one in lowered)
    closed = jax.jit(lambda i: whole.data[0][i]).lower(0).as_text()
    constants = lambda text: [line for line in text.splitlines() if "stablehlo.constant" in line]
    assert any("6x20x2" in line for line in constants(closed))
    assert constants(text)
    assert not any("6x20x" in line for line in constants(text))


def test_a_number_that_a_users_method_closes_over_is_not_shared():
    def mine(loss, *, n: int | None = None, eta: float = 0.1):
        return moml.methods.maml(loss, n=n)._replace(
            hyper=moml.Hyper(eta=eta, alpha=0.01), adaptation=lambda steps: eta
        )

    factory = moml.parts.factory(mine)
    assert [factory(LOSS, eta=eta).adaptation(1) for eta in (0.1, 0.2, 0.1)] == [0.1, 0.2, 0.1]


def test_functions_that_cannot_be_hashed_are_taken():
    class Plain:
        __hash__ = None

        def __call__(self, *given):
            return LOSS(*given) if len(given) == 2 else given[0]

    shared = np.zeros((4, 2)), np.zeros((4, 1)), [[0, 1], [2, 3]]
    learner = moml.fit("maml", Plain(), params(), moml.from_rows(*shared, Plain()), iterations=2)
    assert np.isfinite(learner.history).all()


def test_tasks_that_give_no_samples_are_refused():
    few = moml.Tasks(None, lambda key, ids, size: ids, lambda data, ids, drawn: drawn)
    with pytest.raises(DataError, match="tasks must give samples, see"):
        moml.fit("maml", LOSS, params(), few, iterations=2)


def test_a_sweep_names_the_leaf_that_is_no_array():
    with pytest.raises(DataError, match=r"params leaf \['a'\] must be a float array; got str"):
        moml.sweep("maml", LOSS, lambda key: {"a": "x"}, tasks(), seeds=1, iterations=2)
