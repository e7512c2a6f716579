"""What is run in the time there is: repeats, rows, tuning and methods, given up in this order.

Repeats go first, then rows, then tuning, for all methods alike; whole methods last, the dearest
first. Rows are cut in coarse steps, so that a little more or less load leads to the same plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nearfar.app.compare.methods import OWN_SHARE
from nearfar.app.compare.splits import Tuning

#: How the work grows far away, where neighbors are searched.
FAR_POWER = 1.7
# So many times the rows of a pilot are far away.
_FAR = 8


@dataclass(frozen=True)
class Plan:
    """What will be run: with the same seed it gives the same numbers."""

    tuning: Tuning
    repeats: int
    #: Rows that are drawn; None is all.
    rows: int | None = None
    #: Names of methods for which there is no time.
    left_out: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def kept(self) -> dict[str, Any]:
        """What the journal and the document keep of it."""
        kept = asdict(self) | {"left_out": list(self.left_out)}
        return {name: value for name, value in kept.items() if name != "lines"}

    def options(self) -> str:
        """Options of the command line that ask for the same plan.

        >>> Plan("k", 1, 8000, ("trees",)).options()
        '--sample 8000 --repeats 1 --tuning k --without trees'
        """
        words = [f"--sample {'none' if self.rows is None else self.rows}"]
        words.append(f"--repeats {self.repeats}")
        words += [f"--tuning {self.tuning}"] if self.tuning != "none" else []
        words += [f"--without {','.join(self.left_out)}"] if self.left_out else []
        return " ".join(words)


def row_steps(n_rows: int, least: int) -> list[int | None]:
    """All rows, and then ever fewer, each half of the one before.

    >>> row_steps(100_000, 2000)
    [None, 64000, 32000, 16000, 8000, 4000, 2000]
    >>> row_steps(1500, 2000)
    [None]
    """
    steps: list[int | None] = []
    size = least
    while size < n_rows:
        steps.append(size)
        size *= 2
    return [None, *reversed(steps)]


def choose_plan(
    names: Sequence[str],
    seconds: Callable[[str, int | None, Tuning], float],
    *,
    left: float,
    n_jobs: int,
    repeats: Sequence[int],
    rows: Sequence[int | None],
    tunings: Sequence[Tuning],
    may_go: Collection[str] = (),
    families: Callable[[str], str | None] = lambda name: None,
) -> Plan:
    """The most that fits.

    Parameters
    ----------
    names : sequence of str
        The methods.
    seconds : callable
        Of a method, a number of rows and a tuning: seconds of one repeat on one core.
    left : float
        Seconds, on each of ``n_jobs`` cores.
    repeats, rows, tunings : sequences
        What may be given up, most first.
    may_go : collection of str
        Methods that may be left out, if nothing else helps.
    families : callable
        Of a method, the name it shares its work under.
    """
    kept = list(names)
    gone: list[str] = []
    while True:

        def fits(times: int, n: int | None, tuning: Tuning, kept: list[str] = kept) -> bool:
            costs = [times * seconds(name, n, tuning) for name in kept]
            shared = list(map(families, kept))
            total = total_seconds(zip(shared, costs, strict=True))
            # What is shared is done on all cores.
            alone = (
                c if f is None else _on_clock(c, n_jobs) for f, c in zip(shared, costs, strict=True)
            )
            return total <= left * n_jobs and max(alone, default=0.0) <= left

        candidates = [
            *((times, rows[0], tunings[0]) for times in repeats),
            *((repeats[-1], n, tunings[0]) for n in rows[1:]),
            *((repeats[-1], rows[-1], tuning) for tuning in tunings[1:]),
        ]
        for times, n, tuning in candidates:
            if fits(times, n, tuning):
                return Plan(tuning, times, n, tuple(gone))
        able = [name for name in kept if name in may_go]
        if not able:
            return Plan(tunings[-1], repeats[-1], rows[-1], tuple(gone))
        dearest = max(able, key=lambda name: seconds(name, rows[-1], tunings[-1]))
        kept.remove(dearest)
        gone.append(dearest)


def total_seconds(costs: Iterable[tuple[str | None, float]]) -> float:
    """Seconds of several methods, each told with its family, from their seconds alone.

    Who shares with a dearer one has only its own part to do, some 15% at most.

    >>> total_seconds([("pairs", 10.0), (None, 3.0), ("pairs", 4.0), (None, 2.0)])
    15.6
    """
    total = 0.0
    dearest: dict[str, float] = {}
    for family, seconds in costs:
        if family is None:
            total += seconds
        else:
            total += OWN_SHARE * seconds
            dearest[family] = max(seconds, dearest.get(family, 0.0))
    return total + (1 - OWN_SHARE) * sum(dearest.values())


def _on_clock(seconds: float, n_jobs: int) -> float:
    """Seconds of a method whose dear part is shared by all workers."""
    return (OWN_SHARE + (1 - OWN_SHARE) / n_jobs) * seconds


def foretell(
    pilots: Sequence[tuple[int, float]], n_train: int, far_power: float = FAR_POWER
) -> float:
    """Seconds at ``n_train`` rows from times at a few sizes, by the power law through the last two.

    Far away the power is ``far_power`` at least.

    >>> round(foretell([(500, 0.1), (1000, 0.4)], 4000), 2)
    6.4
    >>> round(foretell([(1000, 0.1), (2000, 0.2)], 64_000, far_power=1.0), 2)
    6.4
    """
    size, seconds = pilots[-1]
    if len(pilots) < 2:
        power = 1.5
    else:
        half, before = pilots[-2]
        power = math.log(max(seconds, 1e-6) / max(before, 1e-6)) / math.log(size / half)
    power, growth = min(max(power, 1.0), 2.0), n_train / size
    # Far away the search for neighbors decides, which few rows do not show: it is quadratic.
    near, far = min(growth, _FAR), max(growth / _FAR, 1.0)
    return float(seconds * near**power * far ** max(power, far_power))
