"""The rounds of `torch_clients` under Flower's own simulation engine: FedAvg over Ray.

Started by `bench_federated.py` as a program of its own, `python flower_rounds.py FOLDER`, with the
problem in FOLDER/problem.npz; leaves FOLDER/outcome.npz, the seconds of every round and the model
after each method's first. The strategy is Flower's FedAvg as it comes; a client app does the work
of one client of the loop and nothing else: no evaluation. Each actor holds the data in its process.
"""

import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from torch_clients import CLIENTS, batches, tensors

client_app, server_app = ClientApp(), ServerApp()


@cache
def problem(folder: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    with np.load(Path(folder) / "problem.npz") as file:
        found = dict(file)
    found["batch"] = batches(torch.tensor(found["x"]), torch.tensor(found["y"]))
    return found


def task_of(found: dict[str, Any], name: str, t: int, client: int) -> dict[str, Any]:
    """What a client draws in round t of a method."""
    parts = {key.split("/")[1]: value for key, value in found.items() if key.startswith(f"{name}/")}
    return {part: value[t, client] for part, value in parts.items()}


@client_app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    found, name = problem(config["folder"]), config["method"]
    task = task_of(found, name, config["server-round"] - 1, context.node_config["partition-id"])
    w = tensors(message.content["arrays"].to_numpy_ndarrays())
    CLIENTS[name](w, found["batch"], task)
    content = {
        "arrays": ArrayRecord([p.detach().numpy() for p in w]),
        "metrics": MetricRecord({"num-examples": 1}),
    }
    return Message(content=RecordDict(content), reply_to=message)


class Timed(FedAvg):
    """Flower's strategy, and the clock from sending a round's messages to having their mean."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.seconds: list[float] = []
        self.first: Any = None

    def configure_train(self, *given: Any) -> Any:
        self.begin = time.perf_counter()
        return super().configure_train(*given)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.seconds.append(time.perf_counter() - self.begin)
        self.first = arrays if self.first is None else self.first
        return arrays, metrics


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    folder = sys.argv[1]
    found, outcome = problem(folder), {}
    n, start = int(found["clients"]), [found[f"w{i}"] for i in range(6)]
    for name in found["methods"].tolist():
        strategy = Timed(
            fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=n, min_available_nodes=n
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(start),
            num_rounds=int(found["rounds"]),
            train_config=ConfigRecord({"method": name, "folder": folder}),
        )
        outcome[f"{name}/seconds"] = np.array(strategy.seconds)
        for i, array in enumerate(strategy.first.to_numpy_ndarrays()):
            outcome[f"{name}/w{i}"] = array
    np.savez(Path(folder) / "outcome.npz", **outcome)


def simulate(folder: str) -> None:
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=int(problem(folder)["clients"]),
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},  # an actor on every core
            "init_args": {"include_dashboard": False, "_node_ip_address": "127.0.0.1"},
        },
    )


if __name__ == "__main__":
    import flower_rounds  # by its name, so that actors can import what they are sent

    flower_rounds.simulate(sys.argv[1])
