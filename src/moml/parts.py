"""What to extend moml with: the parts that methods are made of.

A method is a function with keywords, decorated with `factory`, that returns a `Method`. Its
`Algorithm` is a pair of pure functions, `init` and `step`; `single_node` and `rounds` make one from
an adaptation (`Adapt`), a `Memory` and an optimizer. See the guide, "A method of your own".
"""

from moml.algorithms.federated.client import ClientResult, descend, local_steps, with_private
from moml.algorithms.federated.compose import Participation, federated
from moml.algorithms.federated.rounds import rounds
from moml.algorithms.federated.server import answered, server_optimizer, towards_mean
from moml.algorithms.method import Method, Work, factory, variant
from moml.algorithms.parts.adapt import gradient_steps, layer_steps, learned_steps, named
from moml.algorithms.parts.choices import Inner, Sampling, batch_size, by_steps, fixed_number, spec
from moml.algorithms.parts.curvature import exact, finite_difference, first_order
from moml.algorithms.parts.heads import closed_form, prototypes
from moml.algorithms.parts.low_rank import adapters
from moml.algorithms.parts.memory import debiased_ema, ema
from moml.algorithms.parts.memory import none as no_memory
from moml.algorithms.parts.optimizer import rates
from moml.algorithms.parts.personal import both_ways, personal_step
from moml.algorithms.parts.schedule import cosine, decay_at
from moml.algorithms.signature import (
    Count,
    Group,
    NonNegative,
    Optimizer,
    Positive,
    Probability,
    Weight,
)
from moml.algorithms.single.engine import single_node
from moml.types import Adapt, Algorithm, Answers, Info, Memory, SampleSpec, Server, Task, TaskBatch

__all__ = [
    "Adapt", "Algorithm", "Answers", "ClientResult", "Count", "Group", "Info", "Inner",
    "Memory", "Method", "NonNegative", "Optimizer", "Participation", "Positive", "Probability",
    "SampleSpec", "Sampling", "Server", "Task", "TaskBatch", "Weight", "Work", "adapters",
    "answered", "batch_size", "both_ways", "by_steps", "closed_form", "cosine", "debiased_ema",
    "decay_at", "descend", "ema", "exact", "factory", "federated", "finite_difference",
    "first_order", "fixed_number", "gradient_steps", "layer_steps", "learned_steps",
    "local_steps", "named", "no_memory", "personal_step", "prototypes", "rates", "rounds",
    "server_optimizer", "single_node", "spec", "towards_mean", "variant", "with_private",
]  # fmt: skip
