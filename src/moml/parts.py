"""What to extend moml with: the parts that methods are made of.

A method is a function with keywords, decorated with `factory`, that returns a `Method`. Its
`Algorithm` is a pair of pure functions, `init` and `step`; `single_node` and `rounds` make one from
an adaptation (`Adapt`), a `Memory` and an optimizer. See the guide, "A method of your own".
"""

from moml.algorithms.federated.rounds import ClientResult as ClientResult
from moml.algorithms.federated.rounds import Clients as Clients
from moml.algorithms.federated.rounds import local_steps as local_steps
from moml.algorithms.federated.rounds import rounds as rounds
from moml.algorithms.federated.rounds import server_optimizer as server_optimizer
from moml.algorithms.federated.rounds import towards_mean as towards_mean
from moml.algorithms.method import Method as Method
from moml.algorithms.method import Work as Work
from moml.algorithms.method import factory as factory
from moml.algorithms.method import variant as variant
from moml.algorithms.parts import memory as _memory
from moml.algorithms.parts.adapt import gradient_steps as gradient_steps
from moml.algorithms.parts.adapt import layer_steps as layer_steps
from moml.algorithms.parts.adapt import learned_steps as learned_steps
from moml.algorithms.parts.adapt import named as named
from moml.algorithms.parts.choices import Batch as Batch
from moml.algorithms.parts.choices import Inner as Inner
from moml.algorithms.parts.choices import batch_size as batch_size
from moml.algorithms.parts.choices import by_steps as by_steps
from moml.algorithms.parts.choices import fixed_number as fixed_number
from moml.algorithms.parts.choices import spec as spec
from moml.algorithms.parts.curvature import exact as exact
from moml.algorithms.parts.curvature import finite_difference as finite_difference
from moml.algorithms.parts.curvature import first_order as first_order
from moml.algorithms.parts.heads import closed_form as closed_form
from moml.algorithms.parts.heads import prototypes as prototypes
from moml.algorithms.parts.memory import debiased_ema as debiased_ema
from moml.algorithms.parts.memory import ema as ema
from moml.algorithms.parts.optimizer import rates as rates
from moml.algorithms.parts.personal import both_ways as both_ways
from moml.algorithms.parts.personal import personal_step as personal_step
from moml.algorithms.parts.schedule import cosine as cosine
from moml.algorithms.parts.schedule import decay_at as decay_at
from moml.algorithms.signature import Count as Count
from moml.algorithms.signature import Group as Group
from moml.algorithms.signature import NonNegative as NonNegative
from moml.algorithms.signature import Optimizer as Optimizer
from moml.algorithms.signature import Positive as Positive
from moml.algorithms.signature import Probability as Probability
from moml.algorithms.signature import Weight as Weight
from moml.algorithms.single.engine import single_node as single_node
from moml.types import Adapt as Adapt
from moml.types import Algorithm as Algorithm
from moml.types import Info as Info
from moml.types import Memory as Memory
from moml.types import SampleSpec as SampleSpec
from moml.types import Server as Server
from moml.types import Task as Task
from moml.types import TaskBatch as TaskBatch

no_memory = _memory.none
__all__ = [name for name in dir() if not name.startswith("_")]  # each import above is public
