"""Models and losses: the only room that knows what a network looks like."""

from moml.models.conv4 import conv4 as conv4
from moml.models.losses import accuracy as accuracy
from moml.models.losses import accuracy_alone as accuracy_alone
from moml.models.losses import cross_entropy as cross_entropy
from moml.models.losses import masked_mean as masked_mean
from moml.models.losses import mse as mse
from moml.models.networks import Model as Model
from moml.models.networks import from_equinox as from_equinox
from moml.models.networks import mlp as mlp
from moml.models.networks import shifted as shifted
