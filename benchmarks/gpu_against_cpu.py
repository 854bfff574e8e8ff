"""The same program on a GPU and on the CPU beside it: same numbers, and what each takes.

Not part of `make bench`, which needs no GPU:  python benchmarks/gpu_against_cpu.py
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import moml
from moml.algorithms.parts.adapt import gradient_steps
from moml.runtime import simulate
from moml.training.compose import init_key
from moml.training.evaluate import on_query, scores_on

NET = moml.mlp(1, 40, 40, 1)
LOSS = moml.mse(NET.predict)


def trained(name, iterations, **options):
    start = NET.init(init_key(0))
    return moml.fit(name, LOSS, start, moml.sine(), iterations=iterations, **options)


def distance(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(
        float(np.abs(np.asarray(x) - np.asarray(y)).max() / np.abs(np.asarray(x)).max())
        for x, y in pairs
    )


def same_numbers(gpu, cpu):
    """A GPU multiplies float32 matrices as TF32, with 10 bits, unless asked for "highest"."""
    for dtype, x64, precision in (
        ("float64", True, None),
        ("float32, highest precision", False, "highest"),
        ("float32, default precision", False, None),
    ):
        jax.config.update("jax_enable_x64", x64)
        jax.config.update("jax_default_matmul_precision", precision)
        for name, options in (("moml-v1", {}), ("moml-v2", {}), ("moml", {"shots": 10})):
            runs = []
            for device in (cpu, gpu):
                with jax.default_device(device):
                    runs.append(trained(name, 500, **options).meta)
            print(f"{name:8} {dtype}: 500 steps, largest relative difference {distance(*runs):.1e}")


def time_members(members, length=1000):
    """Seconds per iteration and run of `members` runs at once."""
    method = moml.methods.method("moml-v1", LOSS, n=25)
    program, tasks = simulate.program(method.algorithm, members=True), moml.sine()
    keys = jax.random.split(jax.random.key(0), members)
    hyper = jax.tree.map(
        lambda v: jnp.full(members, v), moml.Hyper(eta=0.005, beta=0.3, alpha=0.01)
    )
    state = jax.jit(jax.vmap(lambda k, h: method.algorithm.init(NET.init(k), h)))(keys, hyper)
    state, _ = program(state, tasks, keys, 0, hyper, length, length)
    jax.block_until_ready(state)
    best = float("inf")
    for repeat in range(1, 6):
        began = time.perf_counter()
        state, _ = program(state, tasks, keys, repeat * length, hyper, length, length)
        jax.block_until_ready(state)
        best = min(best, time.perf_counter() - began)
    return best / length / members


def main():
    gpu, cpu = jax.devices()[0], jax.devices("cpu")[0]
    print(f"jax {jax.__version__}, {gpu.device_kind} against its host's CPU")
    same_numbers(gpu, cpu)
    for members in (1, 125, 2000):
        each = time_members(members) * 1e6
        print(f"{members:5} runs of moml-v1 at once: {each:.3g} us/iteration each")
    began = time.perf_counter()
    many = moml.sweep(
        "moml", LOSS, NET.init, moml.sine(), seeds=5, iterations=40_000, shots=10, test_steps=10,
        schedule=moml.parts.decay_at(30_000),
    )  # fmt: skip
    seconds = time.perf_counter() - began
    unseen = moml.unseen_sine(jax.random.key(2023), 500)
    adapt = gradient_steps(LOSS, 10)
    each = scores_on(on_query(LOSS), adapt, shots=10, queries=100)
    errors = many.each(lambda meta, hyper: each(meta, hyper, unseen, jax.random.key(2024)))
    seeds = np.asarray(errors).mean(axis=1)
    print(f"moml, K = 1, 5 seeds, 40,000 iterations: error {seeds.mean():.3f} ± {seeds.std():.3f}, "
          f"{seconds:.1f} s with compilation")  # fmt: skip
    with jax.default_device(cpu):
        one = time_members(1)
    print(f"ratio cpu_one_run_over_gpu_2000_runs_per_run {one / time_members(2000):.1f}")


if __name__ == "__main__":
    main()
