"""Networks as functions of their parameters, and losses of their predictions."""

from moml.models.adapters import from_equinox, from_linen, from_nnx
from moml.models.cnn import cnn
from moml.models.conv4 import conv4
from moml.models.losses import accuracy, accuracy_alone, cross_entropy, masked_mean, mse
from moml.models.networks import Model, Training, mlp, shifted
from moml.models.resnet import resnet18
from moml.models.torch_state import from_torch_state, to_torch_state
from moml.models.wrapped import Aux, WrappedLoss, wrap_loss

__all__ = [
    "Aux", "Model", "Training", "WrappedLoss", "accuracy", "accuracy_alone", "cnn", "conv4",
    "cross_entropy", "from_equinox", "from_linen", "from_nnx", "from_torch_state", "masked_mean",
    "mlp", "mse", "resnet18", "shifted", "to_torch_state", "wrap_loss",
]  # fmt: skip
