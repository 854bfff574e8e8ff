import jax
import jax.numpy as jnp
import numpy as np

from moml.models.table import knots, pieces_of, squash, table_net


def test_inputs_are_bounded_and_left_alone_near_zero():
    x = jnp.array([-1e6, -0.01, 0.0, 0.5, 1e6])
    np.testing.assert_allclose(squash(x), [-3, -0.01, 0, 0.495, 3], atol=1e-3)


def test_pieces_have_equally_many_rows_and_skip_columns_of_two_values():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.exponential(size=4000), rng.integers(0, 2, 4000) / 1.0, np.ones(4000)])
    at = knots(x, pieces=4)
    assert at.column.tolist() == [0] * 4
    inside = [
        np.mean((x[:, 0] > a) & (x[:, 0] <= a + w)) for a, w in zip(at.low, at.width, strict=True)
    ]
    np.testing.assert_allclose(inside, 0.25, atol=0.01)
    each = pieces_of(at, jnp.asarray(x))
    np.testing.assert_allclose(  # a piecewise linear code: its lengths add up to the way from 0
        (np.asarray(each) + 0.5) @ at.width, x[:, 0] - at.low[0], atol=1e-12
    )


def test_a_table_without_such_columns_has_no_pieces():
    at = knots(np.zeros((5, 2)))
    assert pieces_of(at, jnp.zeros((5, 2))).shape == (5, 0)


def test_the_net_is_its_formula():
    rng = np.random.default_rng(0)
    x, c = rng.normal(size=(7, 2)), rng.normal(size=(7, 3))
    at = knots(x, pieces=3)
    net = table_net(2, 3, 2, at, hidden=(5,))
    params = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), net.init(jax.random.key(0))
    )
    pieces = np.clip((x[:, at.column] - at.low) / at.width, 0, 1) - 0.5
    bounded = 3 * np.tanh(x / 3)
    plain = jax.tree.map(np.asarray, params)
    (w, b), *_ = plain.body
    h = np.tanh(np.concatenate([bounded, pieces, c], axis=1) @ w.T + b)
    wanted = np.concatenate([h, bounded], axis=1) @ plain.head.weight.T + plain.head.bias
    given = net.predict(params, jnp.concatenate([jnp.asarray(x), jnp.asarray(c)], axis=1))
    np.testing.assert_allclose(given, wanted + c @ plain.beside.T, rtol=1e-12)
