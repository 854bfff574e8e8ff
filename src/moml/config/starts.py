"""Starting points: complete configurations by their names."""

from moml.config.config import Config, with_values
from moml.config.problems import Clients, Episodes, Sine, Synthetic

_FEW_SHOT = Config(
    Episodes(),
    method="maml",
    iterations=10_000,
    eta=0.01,
    alpha=0.1,
    tasks_per_step=16,
    shots=1,
    inner_steps=5,
    test_steps=5,
    step_sizes="layer",
    tied=True,
    optimizer="adam",
    schedule="cosine",
    log_every=250,
    score_every=2_500,
    test_tasks=600,
)
_CLIENTS = Config(
    Clients(a=68),  # the paper's
    method="per-fedavg",  # with k = shots a memory does not pay
    iterations=20_000,
    eta=0.03,
    k=5,
    tasks_per_step=10,
    shots=5,
    test_steps=1,
    log_every=500,
    score_every=5_000,
)
STARTS = {
    "sine": Config(Sine()),
    "synthetic": Config(Synthetic()),
    "synthetic-clients": Config(  # for a first federated run
        Synthetic(n=12),
        method="localmoml",
        iterations=50,
        eta=0.1,
        beta=0.3,
        k=5,
        tasks_per_step=9,
        local_steps=5,
        test_steps=1,
        test_tasks=100,
        log_every=5,
        score_every=0,
    ),
    "omniglot": _FEW_SHOT,  # for a GPU
    "omniglot-small": with_values(  # for two cores
        _FEW_SHOT,
        problem=Episodes(ways=5, filters=16),
        iterations=3_000,
        tasks_per_step=4,
        inner_steps=1,
        test_steps=1,
        score_every=500,
        test_tasks=200,
    ),
    "cifar100": with_values(_FEW_SHOT, problem=Episodes("cifar100", ways=5, rotations=False)),
    "mnist-clients": with_values(_CLIENTS, problem=Clients("mnist", a=68)),
    "cifar10-clients": _CLIENTS,
    "cifar100-clients": with_values(_CLIENTS, problem=Clients("cifar100", a=68)),
}
