"""Memory-based meta-learning and personalised federated learning in JAX.

Train one model that becomes yours after a few gradient steps on your few samples:

    net = moml.mlp(1, 40, 40, 1)
    loss = moml.mse(net.predict)
    learner = moml.fit("moml", loss, net.init(key), moml.sine(), k=1, shots=10)
    mine = learner.adapt(my_samples)
"""

from moml import methods, parts
from moml.algorithms.single.matching import match_beta
from moml.errors import CheckpointError, ConfigError, DataError, Diverged, MomlError
from moml.models import accuracy, conv4, cross_entropy, from_equinox, masked_mean, mlp, mse
from moml.tabular.run import load
from moml.tabular.train import train_table
from moml.tasks import episodes, from_arrays, from_rows, sine, synthetic, unseen_sine
from moml.training.evaluate import evaluate
from moml.training.fit import Learner, fit
from moml.training.sweep import sweep
from moml.types import Batch, Hyper, Tasks

__all__ = [
    "Batch", "CheckpointError", "ConfigError", "DataError", "Diverged", "Hyper", "Learner",
    "MomlError", "Tasks", "accuracy", "conv4", "cross_entropy", "episodes", "evaluate", "fit",
    "from_arrays", "from_equinox", "from_rows", "load", "masked_mean", "match_beta", "methods",
    "mlp", "mse", "parts", "sine", "sweep", "synthetic", "train_table", "unseen_sine",
]  # fmt: skip
__version__ = "0.2.0"
