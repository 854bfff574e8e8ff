"""MOML v1 with a memory for each of a million tasks over 25 tasks, B = 3 in both.

The million memories of the sine net take 6.9 GB in float32 and are updated in place, so a step
should cost the same. A chunk visits 3000 tasks, most of them for the first time in minutes: what
is measured is a store that no cache holds.
"""

from common import interleave, machine, many_sines, ratio, sine_method, table, training

SIZES = {"n25": 25, "n1e4": 10_000, "n1e6": 1_000_000}


def main() -> None:
    machine()
    timings = {}
    for curvature in ("exact", "first-order"):
        now = {}
        for name, n in SIZES.items():
            tasks = many_sines(n)
            algorithm = sine_method("moml-v1", tasks, curvature=curvature)
            now[f"{curvature}, {name}"] = training(algorithm, tasks)
        timings |= interleave(now, turns=60)
        del now  # one store of 6.9 GB at a time
    table(timings)
    for curvature in ("exact", "first-order"):
        end = "" if curvature == "exact" else "_first_order"
        for name in ("n1e4", "n1e6"):
            at = lambda name, curvature=curvature: timings[f"{curvature}, {name}"]
            ratio(f"{name}_over_n25{end}", at(name), at("n25"))


if __name__ == "__main__":
    main()
