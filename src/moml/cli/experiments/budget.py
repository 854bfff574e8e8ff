"""`moml reproduce budget`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from moml.cli.experiments.experiment import ImageExperiment, earlier_rows

if TYPE_CHECKING:
    from moml.types import Record


@dataclass(frozen=True, kw_only=True)
class Budget(ImageExperiment):
    """Equal samples: a small K with memory against a larger K without; the regret of beta = auto.

    The quick form takes some minutes on two cores.
    """

    full: bool = False
    """All families, K = 1 to 20, eight beta, four eta, three seeds, the whole budget: for a GPU."""
    families: list[str] | None = None
    """sine-25, sine-400, logistic, cifar10-clients, omniglot; by default sine-25, of the full form
    all."""
    k: list[int] | None = None
    """Samples in each of S1 and S3; by default 1 and 5, of the full form 1, 2, 5, 10, 20."""
    beta: list[float] | None = None
    """Weights of the newest point, 1 for no memory; by default 1, .5, .25, .1, of the full form
    eight."""
    eta: list[float] | None = None
    """Step sizes instead of the family's own."""
    shots: list[int] | None = None
    """Samples at test; by default 1, 2, 5, 10, 20, 50."""
    steps: list[int] | None = None
    """Steps at test; by default 1 and 10."""
    seeds: int | None = None
    """Trained side by side; 2, or 3 in the full form."""
    auto: bool = False
    """Instead, the regret of beta = auto: a training for each number of shots and steps, at one
    eta, beside the best fixed beta and beta = 1 there."""
    iterations: int | None = None
    """Training steps at K = 1, instead of the family's own; fewer at a larger K, see equal."""
    equal: Literal["samples", "work", "steps"] = "samples"
    """What is the same for all K: K T, floating-point operations as the compiler counts them, or
    steps, for tasks that hold their data anyway."""
    picture: bool = True
    """Whether to draw the picture; else matplotlib is not needed."""
    rows: list[Path] | None = None
    """Files of rows made earlier, of several processes too: a family, K and beta that is in them
    with the same number of iterations is not trained again."""

    def run(self) -> None:
        """Train and test each family and K; rows are on disk after each of them."""
        from moml.paper.budget import study, verdict
        from moml.paper.budget.families import FAMILIES
        from moml.paper.cells import choose

        plan = study.FULL if self.full else study.Plan()
        plan = replace(
            plan, families=tuple(choose("families", self.families or plan.families, [*FAMILIES])),
            ks=tuple(self.k or plan.ks), shots=tuple(self.shots or plan.shots),
            steps=tuple(self.steps or plan.steps), betas=tuple(self.beta or plan.betas),
            seeds=self.seeds or plan.seeds, equal=self.equal,
        )  # fmt: skip
        plan = replace(plan, share=1.0 if self.iterations else plan.share)
        earlier = earlier_rows(self.rows or (), "budget")
        measure = study.regret if self.auto else study.measured
        protocol = study.ONE_ETA if self.auto else "strict"
        drawn = self.picture and not self.auto
        rows = self.start("reproduce-regret" if self.auto else "reproduce-budget", pictures=drawn)
        for name in plan.families:
            family = FAMILIES[name](self.data_dir)
            family = family._replace(budget=self.iterations or family.budget)
            if self.eta:
                family = family._replace(etas=tuple(self.eta))
                plan = replace(plan, most_etas=len(self.eta))
            for k in plan.ks:
                about = name, protocol, k, study.iterations_of(family, plan, k)
                kept = [row for row in earlier if _about(row) == about]
                known = {row["setting"]["beta"] for row in kept}
                left = tuple(beta for beta in plan.betas if beta not in known)
                if left and not (self.auto and kept):
                    kept += measure(family, replace(plan, betas=left), k, progress=True)
                rows.add(kept)
        if self.auto:
            verdict.print_regrets(rows.all)
        else:
            verdict.print_budget(rows.all, self.equal)
        rows.finish(*[verdict.budget_figure(rows.all, rows.folder / "budget")] if drawn else [])


def _about(row: "Record") -> tuple[str, str, int, int]:
    """Family, protocol, K and iterations of a row."""
    return row["dataset"], row["protocol"], row["setting"]["k"], row["iterations"]
