"""Ticks of axes and their labels, on pages and in pictures."""

import math

Number = float | int
MOST = 7  # ticks of a logarithmic axis


def short(value: Number) -> str:
    """Format a number in few characters.

    >>> [short(v) for v in (0, 0.05, 12, 1500, 2.5e6, 3e9, 1e-7)]
    ['0', '0.05', '12', '1.5k', '2.5M', '3G', '1e-7']
    """
    if value and not 1e-3 <= abs(value) < 1e12:
        head, tail = f"{value:.2e}".split("e")
        return f"{float(head):g}e{int(tail)}"
    for power, unit in ((9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 10**power:
            return f"{value / 10**power:.4g}{unit}"
    return f"{value:.3g}"


def nice(low: Number, high: Number) -> list[float]:
    """Round numbers from low to high, some six of them.

    >>> nice(0, 97), nice(0.12, 0.31)
    ([0.0, 20.0, 40.0, 60.0, 80.0], [0.15, 0.2, 0.25, 0.3])
    """
    raw = (high - low) / 6 or abs(high) or 1.0
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def decades(low: Number, high: Number) -> list[float]:
    """Round numbers of a logarithmic axis, few enough for their labels not to meet.

    >>> decades(0.3, 40), decades(0.55, 0.9)
    ([0.5, 1.0, 2.0, 5.0, 10.0, 20.0], [0.6, 0.7, 0.8, 0.9])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [m * 10.0**p for p in powers for m in steps]
        found = [value for value in found if low * 0.999 <= value <= high * 1.001]
        if len(found) <= MOST:
            return found if len(found) > 1 else nice(low, high)
    return found[:: math.ceil(len(found) / MOST)]
