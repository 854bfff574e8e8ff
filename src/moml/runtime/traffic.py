"""What devices send to each other, read off a compiled program."""

import math
import re
from typing import Any

_KINDS = "all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|collective-broadcast"
_CALL = re.compile(rf"= (?P<result>.+?) (?P<kind>{_KINDS})(-start)?\(")
_SHAPE = re.compile(r"(?P<dtype>[a-z]+\d*)\[(?P<axes>[\d,]*)\]")


def collectives(program: Any) -> list[tuple[str, int]]:
    """Kind and bytes of every collective of a `jax.stages.Compiled`; one in a loop counts once.

    >>> import jax
    >>> collectives(jax.jit(lambda x: x + 1).lower(1.0).compile())
    []
    """
    calls = _CALL.finditer(program.as_text())
    return [(call["kind"], sum(map(_bytes, _SHAPE.finditer(call["result"])))) for call in calls]


def all_reduced(program: Any) -> int:
    """Bytes that are summed over all devices in a step, where `program` is a stretch of steps."""
    return sum(size for kind, size in collectives(program) if kind == "all-reduce")


def _bytes(shape: re.Match[str]) -> int:
    bits = re.sub(r"^[a-z]+", "", shape["dtype"]) or "8"  # pred is a byte
    return max(1, int(bits) // 8) * math.prod(map(int, filter(None, shape["axes"].split(","))))
