"""The nouns of the library. All are pytrees; all but `Hyper` and `Tasks` are NamedTuples.

Letters follow the paper: `w` the meta-model, `v` an adapted point, `u` a memory, `alpha` the inner
step size, `beta` the weight of the newest point in a memory, `eta` the outer step size,
`gamma` the weight of the newest gradient in NASA's average.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from moml.errors import ConfigError, DataError

Params = PyTree  # what a user's loss takes: any pytree of floating-point arrays
Meta = PyTree  # what the outer loop learns: params, or params and step sizes
Personal = PyTree  # the leaves that adapt, and so all that a memory holds
Samples = Any  # of one task: a Batch, or whatever else the loss takes
State = PyTree  # all that a method keeps between steps
Record = dict[str, Any]  # a JSON object: a result row, a line of metrics, a file's content
Loss = Callable[[Params, Samples], Float[Array, ""]]
Key = jax.Array
Scalar = Float[Array, ""] | float


class Batch(NamedTuple):
    """Samples of one task; the leading axis of every leaf is the samples.

    Parameters
    ----------
    x, y
        Inputs and targets: arrays, or pytrees of them.
    mask
        Which samples are real among padding. None: all of them.
    bits
        32 random bits of each sample, where a loss takes a key: see `moml.tasks.keyed`.

    >>> Batch(np.zeros((10, 1)), np.ones((10, 1))).x.shape
    (10, 1)
    """

    x: PyTree
    y: PyTree
    mask: PyTree = None
    bits: PyTree = None


class Task(NamedTuple):
    """What one visit of one task draws. A field that a method does not need is None.

    support S1 (the adaptation), query S3 (the gradient at the memory), hessian S2 (the pull-back;
    None means S2 = S1), restart S0 (LocalMOML's first memory of a round).
    """

    support: Samples = None
    query: Samples = None
    hessian: Samples = None
    restart: Samples = None


class Turnout(NamedTuple):
    """How a round goes for each of its clients: who answers, after how much, with what weight."""

    present: Bool[Array, " tasks"]  # False: its model is lost, its memory stays as it was
    steps: Int[Array, " tasks"]  # local steps: H, or fewer of a straggler
    weight: Int[Array, " tasks"]  # in the server's mean: 1, or the client's number of samples


class TaskBatch(NamedTuple):
    """A batch of visited tasks: their ids, distinct, and what each of them drew.

    A round where all answer alike has no `turnout`.
    """

    ids: Int[Array, " tasks"]
    task: Task
    turnout: Turnout | None = None


class SampleSpec(NamedTuple):
    """How much a method wants to draw: a sampler turns a tree of them into a tree of TaskBatch.

    `tasks` tasks with the given numbers of samples each; `visits` H gives every task H fresh sets
    of samples (LocalMOML), `times` q gives q independent task batches (Spider). `epochs` E gives
    every task its own samples E times, shuffled, in as many sets as they fill. The last three make
    a round's `Turnout`, which leaves all else that is drawn as it was.
    """

    tasks: int
    support: int = 0
    query: int = 0
    hessian: int = 0
    restart: int = 0
    visits: int | None = None
    epochs: int | None = None
    times: int | None = None
    replace: bool = False  # tasks with replacement: only for methods that can bear an id twice
    groups: int = 1  # as many tasks from each of so many blocks of ids, as even as can be
    dropout: float = 0.0  # probability that a client's answer is lost
    straggle: float = 0.0  # probability that a client does but 1 to H - 1 local steps
    weighted: bool = False  # clients count by their numbers of samples


@jax.tree_util.register_pytree_with_keys_class
class Hyper(SimpleNamespace):
    """Hyper-parameters of a method: numbers that are traced, and so swept and scheduled.

    Any names may be given; they are static, the numbers are the leaves of a pytree.

    Parameters
    ----------
    **values : float or array
        The numbers by name: `eta`, `beta`, `alpha`, ...

    >>> hyper = Hyper(eta=0.1, beta=0.5)
    >>> hyper._replace(eta=0.2)
    Hyper(eta=0.2, beta=0.5)
    """

    def __getattr__(self, name: str) -> PyTree:
        raise AttributeError(f"Hyper has {', '.join(self.__dict__) or 'no numbers'}; got {name}")

    def __setattr__(self, name: str, value: PyTree) -> None:
        raise AttributeError("Hyper is immutable: use _replace")

    def _asdict(self) -> dict[str, PyTree]:
        """The numbers by name."""
        return dict(self.__dict__)

    def _replace(self, **values: PyTree) -> "Hyper":
        """The same hyper-parameters with some of them changed."""
        return Hyper(**self.__dict__ | values)

    def tree_flatten_with_keys(self) -> tuple[list[tuple[object, PyTree]], tuple[str, ...]]:
        """The numbers with their paths, in alphabetical order, and their names."""
        names = tuple(sorted(self.__dict__))
        return [(jax.tree_util.GetAttrKey(n), self.__dict__[n]) for n in names], names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], values: Iterable[PyTree]) -> "Hyper":
        """The inverse of `tree_flatten_with_keys`."""
        return cls(**dict(zip(names, values, strict=True)))


class Adapt(NamedTuple):
    """An adaptation A. Any differentiable map will do; see `moml.algorithms.parts.adapt`."""

    init: Callable[[Params, Hyper], Meta]
    start: Callable[[Meta], Personal]  # w, seen as personal parameters
    apply: Callable[[Meta, PyTree, Hyper], Personal]  # A(w; S)
    merge: Callable[[Meta, Personal], Params]  # what the loss takes


class Memory(NamedTuple):
    """The store M of all tasks' memories, and what one visit does to one of them."""

    init: Callable[[Personal], PyTree]
    tick: Callable[[PyTree, Personal, Hyper], PyTree]  # what a step does to every memory
    read: Callable[[PyTree, Int[Array, " tasks"]], PyTree]  # the rows of some tasks
    mix: Callable[[PyTree, Personal, Personal, Hyper], Personal]  # row, w, v -> u'
    write: Callable[[PyTree, Int[Array, " tasks"], Personal], PyTree]
    recall: Callable[[PyTree, Int[Array, " tasks"]], tuple[Personal, Bool[Array, " tasks"]]]
    # what is remembered of some tasks, and of which of them anything is
    rows: PyTree = True  # a prefix of the store: True where leaves have a row of every task


class Info(NamedTuple):
    """What a person wants to see of one step."""

    loss: Float[Array, ""]  # mean loss on S3 at the personal models, before the outer step
    norm: Float[Array, ""]  # of the outer rule's input, the estimated meta-gradient


class Answers(NamedTuple):
    """What a server gets in a round."""

    mean: Meta  # of the clients' models, by their weights
    extra: PyTree  # the mean of what else clients send
    ids: Int[Array, " tasks"]  # the clients that were drawn
    weight: Int[Array, " tasks"]  # of each in the mean; 0: it did not answer


class Server(NamedTuple):
    """A server's rule: what it keeps between rounds, its step, and what it sends besides w."""

    init: Callable[[Meta], State]
    step: Callable[[State, Meta, Answers, Hyper], tuple[Meta, State]]  # state, w, answers
    extra: Callable[[State], PyTree] | None = None  # sent along with w; clients answer in its form


class Rounds(NamedTuple):
    """A federated method in parts, for those who run its clients elsewhere."""

    client: Callable[..., PyTree]  # w, row, samples, steps, hyper[, extra] -> a ClientResult
    row: Callable[[Meta], PyTree]  # what a client keeps before its first round
    server: Server
    shared: Callable[[Meta], Meta]  # the leaves that travel, None in place of the others
    kept: Callable[[Meta, PyTree], Meta] | None  # w, what a client keeps -> its own model
    memory: Memory  # the store of what clients keep


class Algorithm(NamedTuple):
    """A method: two pure functions, and what `step` wants to be given."""

    init: Callable[[Params, Hyper], PyTree]
    step: Callable[..., tuple[PyTree, Info]]  # state, visits, hyper; most take `each`
    needs: PyTree  # a tree of SampleSpec; `step` gets the same tree of TaskBatch
    iterations: int = 1  # the paper's iterations in one call of `step`: Spider's q, LocalMOML's H
    fill: Callable[..., PyTree] | None = None  # state, visit, hyper: write these tasks' memories
    rounds: Rounds | None = None  # of the federated methods
    rows: PyTree = False  # a prefix of the state: True where leaves have a row of every task


@dataclass(frozen=True, eq=False)
class Tasks:
    """A family of tasks: its arrays, apart from the functions that draw and fetch samples.

    A pytree with the arrays as leaves, so a compiled program takes tasks as an argument. Programs
    are shared by tasks of equal shapes and equal functions.

    Drawing is split in two so that a long stretch can draw ahead and stay small: `draw` makes what
    is random (numbers, or row indices), `fetch` turns it into samples inside the step.

    Parameters
    ----------
    n
        Number of tasks; None for a stream without end, whose ids are random seeds.
    draw_from
        Function of index, key, ids [tasks] and size that gives leaves [tasks, size, ...].
    fetch_from
        Function of data, ids and what was drawn that gives a `Batch`.
    index, data
        Arrays that `draw_from` and `fetch_from` read.
    full_from
        Function of index, data and ids that gives all samples of finite tasks, padded.
    cut
        Function of data, the number of devices and one of them that gives the data of its block of
        tasks, as `fetch_from` takes it, in equal shapes. None: every device holds all data.
    sized
        Whether `index` is the number of samples of each task.
    least, most
        How many samples the smallest and the largest task have.
    rows_from
        Function of a key and row numbers [tasks, ...] that gives a draw of these rows, where a draw
        is more than row numbers.
    ways
        Samples that one of a draw stands for: an episode's classes.
    read
        Function of numpy's ids and draws that reads samples outside of a program; `fetch_from` then
        takes these in place of the draws. None: samples are fetched inside.

    >>> from moml import from_arrays
    >>> tasks, ids = from_arrays(np.zeros((4, 10, 1)), np.ones((4, 10, 1))), jax.numpy.arange(2)
    >>> tasks.fetch(ids, tasks.draw(jax.random.key(0), ids, 3)).x.shape
    (2, 3, 1)
    """

    n: int | None
    draw_from: Callable[[PyTree, Key, Int[Array, " tasks"], int], PyTree]
    fetch_from: Callable[[PyTree, Int[Array, "*tasks"], PyTree], Samples]
    index: PyTree = ()
    data: PyTree = ()
    full_from: Callable[[PyTree, PyTree, Int[Array, " tasks"]], Batch] | None = None
    cut: Callable[[PyTree, int, int], PyTree] | None = None
    sized: bool = False
    least: int | None = None
    most: int | None = None
    rows_from: Callable[[Key, PyTree], PyTree] | None = None
    ways: int = 1
    read: Callable[[np.ndarray, PyTree], PyTree] | None = None

    def draw(self, key: Key, ids: Int[Array, " tasks"], size: int) -> PyTree:
        """What is random of `size` samples of each of some tasks; leaves [tasks, size, ...]."""
        return self.draw_from(self.index, key, ids, size)

    def fetch(self, ids: Int[Array, "*tasks"], drawn: PyTree) -> Samples:
        """The samples of some tasks that were drawn."""
        return self.fetch_from(self.data, ids, drawn)

    def full(self, ids: Int[Array, " tasks"]) -> Batch:
        """All samples of some tasks, padded; the mask marks the real ones."""
        if self.full_from is None:
            raise DataError("tasks must have finite data; got tasks whose samples are drawn")
        return self.full_from(self.index, self.data, ids)

    def sizes(self, ids: Int[Array, " tasks"]) -> Int[Array, " tasks"]:
        """The number of samples of some tasks."""
        if not self.sized:
            raise ConfigError("tasks must have known sizes, for weighted say; got tasks without")
        return self.index[ids]


_DATA = ["index", "data"]
_META = [f.name for f in fields(Tasks) if f.name not in _DATA]
jax.tree_util.register_dataclass(Tasks, _DATA, _META)
