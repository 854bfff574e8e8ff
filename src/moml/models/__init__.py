"""Networks as functions of their parameters, and losses of their predictions."""

from moml.models.cnn import cnn
from moml.models.conv4 import conv4
from moml.models.losses import accuracy, accuracy_alone, cross_entropy, masked_mean, mse
from moml.models.networks import Model, from_equinox, mlp, shifted
from moml.models.resnet import resnet18

__all__ = [
    "Model", "accuracy", "accuracy_alone", "cnn", "conv4", "cross_entropy", "from_equinox",
    "masked_mean", "mlp", "mse", "resnet18", "shifted",
]  # fmt: skip
