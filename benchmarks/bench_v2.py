"""MOML v2 over v1: the de-biased memory kept lazily costs little more than the plain one.

The paper's v2 moves all n memories at every step; that form (`direct`) stands beside it.
"""

from common import interleave, machine, many_sines, ratio, sine_method, table, training


def main() -> None:
    machine()
    timings = {}
    for n in (25, 1000):
        sides = {}
        for curvature in ("exact", "first-order"):
            tasks = many_sines(n)
            for label, name, options in (
                ("v1", "moml-v1", {}),
                ("v2 lazy", "moml-v2", {}),
                ("v2 direct", "moml-v2", {"direct": True}),
            ):
                algorithm = sine_method(name, tasks, curvature=curvature, **options)
                sides[f"{label}, {curvature}, n={n}"] = training(algorithm, tasks)
        timings |= interleave(sides, turns=40 if n == 25 else 15)
    table(timings)
    for n in (25, 1000):
        for curvature in ("exact", "first-order"):
            at = f"{curvature}, n={n}"
            name = curvature.replace("-", "_") + ("" if n == 25 else f"_n{n}")
            ratio(f"v2_over_v1_{name}", timings[f"v2 lazy, {at}"], timings[f"v1, {at}"])
            ratio(f"v2_direct_over_v1_{name}", timings[f"v2 direct, {at}"], timings[f"v1, {at}"])


if __name__ == "__main__":
    main()
