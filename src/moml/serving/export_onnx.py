"""The network of an export as an ONNX graph, with what is personal as inputs.

    x -> prediction, or the probabilities of the classes

Inputs with a default may be left out: then the graph predicts with the common parameters. `adapt`
of moml or of moml_serve.py makes personal ones; the graph itself does not adapt. It is written node
by node, with the equations of `moml_serve.py`, in float32.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from moml.data.table.columns import Columns
from moml.errors import ConfigError
from moml.types import Record

Arrays = dict[str, np.ndarray]
OPSET, IR = 17, 8  # read by onnxruntime from 1.13 (2022) on
PERSONAL = {"steps", "head"}  # kinds of members whose heads a task adapts
KINDS = PERSONAL | {"summary", "pooled"}
BOUND = 3.0  # of the inputs, in standard deviations


def onnx() -> Any:
    """The package, or a ConfigError that says how to install it."""
    try:
        import onnx
        import onnx.helper
    except ImportError as error:
        raise ConfigError("ONNX needs onnx: pip install 'moml[onnx]'") from error
    return onnx


class Graph:
    """A graph as it is written: nodes, constants, and inputs with their defaults."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.count = 0

    def constant(self, value: object, dtype: Any = np.float32) -> str:
        """A constant, and its name."""
        self.count += 1
        return self._stored(f"c{self.count}", np.asarray(value, dtype))

    def whole(self, *values: int) -> str:
        """A constant of whole numbers, and its name."""
        return self.constant(values, np.int64)

    def given(self, name: str, default: np.ndarray) -> str:
        """An input that may be left out."""
        helper = onnx().helper
        self.inputs.append(helper.make_tensor_value_info(name, 1, default.shape))
        return self._stored(name, np.asarray(default, np.float32))

    def do(self, kind: str, *inputs: str, **attributes: object) -> str:
        """A node, and the name of its output."""
        self.count += 1
        name = f"n{self.count}"
        self.nodes.append(onnx().helper.make_node(kind, inputs, [name], **attributes))
        return name

    def affine(self, x: str, weight: str, bias: str, axes: Sequence[int]) -> str:
        """x weight' + bias, the last two axes of the weight being turned."""
        return self.do("Add", self.do("MatMul", x, self.do("Transpose", weight, perm=axes)), bias)

    def model(
        self, x: int, output: str, named: str, shape: Sequence[object], about: Record
    ) -> bytes:
        """The whole graph of inputs x [rows, x], as a file's content."""
        helper = onnx().helper
        self.nodes.append(helper.make_node("Identity", [output], [named]))
        rows = helper.make_tensor_value_info("x", 1, ["rows", x])
        end = helper.make_tensor_value_info(named, 1, shape)
        graph = helper.make_graph(
            self.nodes, "moml", [rows, *self.inputs], [end], initializer=self.constants
        )
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, producer_name="moml", opset_imports=opset, ir_version=IR)
        helper.set_model_props(model, {key: str(value) for key, value in about.items()})
        onnx().checker.check_model(model, full_check=True)
        return model.SerializeToString()

    def _stored(self, name: str, value: np.ndarray) -> str:
        self.constants.append(onnx().numpy_helper.from_array(value, name))
        return name


def graphs(card: Record, arrays: Arrays) -> dict[str, bytes]:
    """The files of an export, by the card and the arrays of the numpy export."""
    if card["kind"] == "network":
        return {"model.onnx": _network(card, arrays)}
    for entry in card["models"].values():
        if entry["simple"]:
            what = ", ".join(entry["simple"])
            raise ConfigError(
                f"a graph has networks alone, and this run weighs {what} beside them; "
                "train with --kinds summary, head or steps"
            )
        if not KINDS.issuperset(entry["kinds"]):
            what = ", ".join(entry["kinds"])
            raise ConfigError(f"a graph has members {', '.join(sorted(KINDS))} alone; got {what}")
    files = {"model.onnx": _table(card, arrays, "personal")}
    if card["cold"] != "personal":
        files["cold.onnx"] = _table(card, arrays, card["cold"])
    return files


def _network(card: Record, arrays: Arrays) -> bytes:
    """h <- relu(W h + b), then W h + b; layers that adapt are inputs `0/weight`, `0/bias`, ..."""
    graph, last = Graph(), card["layers"] - 1
    mean, std = (graph.constant(card["shift"][part]) for part in ("mean", "std"))
    h = graph.do("Div", graph.do("Sub", "x", mean), std)
    for i in range(last + 1):
        layer = {name: arrays[name] for name in (f"{i}/weight", f"{i}/bias")}
        if i == last and card["tied"]:
            mean_row = lambda part: np.broadcast_to(part.mean(axis=0, keepdims=True), part.shape)
            layer = {name: mean_row(part) for name, part in layer.items()}
        adapts = card["leaves"] == "all" or i == last
        weight, bias = (
            graph.given(name, part) if adapts else graph.constant(part)
            for name, part in layer.items()
        )
        h = graph.affine(h, weight, bias, (1, 0))
        h = h if i == last else graph.do("Relu", h)
    name = "prediction"
    if card["loss"] == "cross_entropy":
        h, name = graph.do("Softmax", h, axis=-1), "probabilities"
    shape = ["rows", len(arrays[f"{last}/bias"])]
    return graph.model(arrays["0/weight"].shape[1], h, name, shape, {"loss": card["loss"]})


def _table(card: Record, arrays: Arrays, name: str) -> bytes:
    """The members of a model, averaged, for encoded rows x of one task.

    Inputs are `summary` and, of kinds whose heads adapt, `KIND/weight` and `KIND/bias`.
    """
    graph, entry = Graph(), card["models"][name]
    classes, target = entry["classes"], card["columns"]["target"]
    features = len(Columns.from_json(card["columns"]).features)  # of an encoded row
    widths = {kind: arrays[f"{name}/{kind}/beside"].shape[2] for kind in entry["kinds"]}
    start = np.zeros(max(widths.values(), default=0))
    out = classes or 1
    if len(start):  # the summary of no rows: all zeros but for the spread
        start[out : 2 * out] = 1e-3
    scale = lambda x, by: graph.do("Div", x, graph.constant(by))
    bounded = graph.do("Mul", graph.do("Tanh", scale("x", BOUND)), graph.constant(BOUND))
    knots = {part: arrays[f"{name}/knots/{part}"] for part in ("column", "low", "width")}
    inputs = [bounded]
    if len(knots["column"]):
        at = graph.do("Gather", "x", graph.constant(knots["column"], np.int64), axis=1)
        at = graph.do("Sub", at, graph.constant(knots["low"]))
        at = scale(at, knots["width"])
        at = graph.do("Clip", at, graph.constant(0.0), graph.constant(1.0))
        inputs.append(graph.do("Sub", at, graph.constant(0.5)))
    summary = graph.given("summary", start) if len(start) else ""
    rows = graph.do("Slice", graph.do("Shape", "x"), graph.whole(0), graph.whole(1))
    found = []
    for kind in entry["kinds"]:
        part = lambda leaf, kind=kind: arrays[f"{name}/{kind}/{leaf}"]
        weight, bias, beside = part("head/weight"), part("head/bias"), part("beside")
        given = list(inputs)
        if widths[kind]:
            c = graph.do("Slice", summary, graph.whole(0), graph.whole(widths[kind]))
            c = graph.do("Unsqueeze", c, graph.whole(0))
            wide = graph.do("Concat", rows, graph.whole(widths[kind]), axis=0)
            given.append(graph.do("Expand", c, wide))
        h = graph.do("Concat", *given, axis=1)
        h = graph.do("Unsqueeze", h, graph.whole(0))  # [1, rows, inputs]
        for i in range(len(entry["hidden"])):
            w, b = (graph.constant(part(f"body/{i}/{leaf}")) for leaf in ("weight", "bias"))
            b = graph.do("Unsqueeze", b, graph.whole(1))
            h = graph.do("Tanh", graph.affine(h, w, b, (0, 2, 1)))
        every = graph.do("Unsqueeze", bounded, graph.whole(0))
        ends = graph.whole(len(weight)), rows, graph.whole(features)
        shape = graph.do("Concat", *ends, axis=0)
        h = graph.do("Concat", h, graph.do("Expand", every, shape), axis=2)
        personal = kind in PERSONAL and name == "personal"
        w, b = (
            graph.given(f"{kind}/{leaf}", array) if personal else graph.constant(array)
            for leaf, array in (("weight", weight), ("bias", bias))
        )
        b = graph.do("Unsqueeze", b, graph.whole(1))
        z = graph.affine(h, w, b, (0, 2, 1))  # [members, rows, out]
        if widths[kind]:
            turned = graph.constant(np.swapaxes(beside, 1, 2))
            z = graph.do("Add", z, graph.do("MatMul", c, turned))
        found.append(z if classes is None else graph.do("Softmax", z, axis=-1))
    z = graph.do("ReduceMean", graph.do("Concat", *found, axis=0), axes=[0], keepdims=0)
    about = {"target": target["name"], "model": name}
    if classes is not None:
        return graph.model(features, z, "probabilities", ["rows", classes], about)
    z = graph.do("Squeeze", z, graph.whole(1))
    z = graph.do("Mul", z, graph.constant(target["scale"]["std"]))
    z = graph.do("Add", z, graph.constant(target["scale"]["mean"]))
    return graph.model(features, z, "prediction", ["rows"], about)
