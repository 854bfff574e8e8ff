"""FedAvg: plain gradient steps at each client, no adaptation in training."""

import jax

from moml.algorithms.federated.rounds import Update, local_steps
from moml.algorithms.parts.personal import Step
from moml.types import Hyper, Loss, Meta, Task


def fedavg(loss: Loss) -> Update:
    """A client's round: H times w_i <- w_i - eta grad L_S1(w_i); its loss is that before a step."""

    def gradient_step(meta: Meta, row: tuple[()], task: Task, hyper: Hyper) -> Step:
        value, grad = jax.value_and_grad(loss)(meta, task.support)
        return Step(row, grad, value)

    return local_steps(gradient_step)
