import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moml.errors import ConfigError
from moml.models.networks import mlp
from moml.models.user import as_model, bounded, check_model

FORMS = {
    "ours": lambda inputs, outputs: mlp(inputs, 8, outputs),
    "equinox": lambda inputs, outputs, key: eqx.nn.MLP(inputs, outputs, 8, 1, key=key),
    "flax": lambda inputs, outputs: nn.Dense(outputs, param_dtype=jnp.float64),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_begins_by_its_key_and_predicts(form):
    model = as_model(FORMS[form], 3, 2)
    check_model(model, 3, 2)
    x = jnp.ones((5, 3))
    one, other = (model.predict(model.init(jax.random.key(i)), x) for i in (0, 1))
    assert one.shape == (5, 2)
    assert not np.allclose(one, other)
    again = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 4))
    assert all(len(leaf) == 4 for leaf in jax.tree.leaves(again))


def test_outliers_do_not_reach_it():
    model = bounded(as_model(FORMS["flax"], 1, 1))
    params = model.init(jax.random.key(0))
    far, near = model.predict(params, jnp.array([[1e9], [30.0]]))
    np.testing.assert_allclose(far, near)


def test_what_is_no_model_is_refused():
    with pytest.raises(ConfigError, match="got dict"):
        as_model(lambda inputs, outputs: {}, 3, 1)
    with pytest.raises(ConfigError, match=r"must give \(2, 1\) for 2 rows; got \(2, 5\)"):
        check_model(as_model(lambda i, o: mlp(i, 5), 3, 1), 3, 1)
    with pytest.raises(ConfigError, match="cannot predict from 3 inputs"):
        check_model(as_model(lambda i, o: mlp(7, 1), 3, 1), 3, 1)
