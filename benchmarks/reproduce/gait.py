"""Tables 3.9 and 3.10 of Tao's thesis: rates of gait recognition, rank one and rank five.

``python benchmarks/reproduce/gait.py`` draws walkers, since the USF HumanID silhouettes may not be
passed on, runs what is missing and writes the page of the documentation; ``--methods`` some of
it. ``--data DIR`` makes the same tables of silhouettes of one's own, and writes ``gait.rst`` where
one stands: DIR holds ``gallery`` and one folder for each probe set (``A`` to ``L``, or any other
names), each with frames ``subject/sequence/frame.png``, or such files with ``.mat`` after the name
(see ``nearfar.datasets.load_gait``). Each result is one line of a file beside the page, so that a
run can be broken off and goes on later.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from frame import PAGES, Results, arguments, section, table, write_page
from numpy.typing import NDArray

import nearfar
from nearfar import GTDA, GaitRecognizer
from nearfar.datasets import load_gait, make_walkers
from nearfar.tensors import rank_k_rates, weighted_average_rate

PUBLISHED = Path(__file__).parents[2] / "tests" / "data" / "gait_tables_3_9_and_3_10.csv"
# What is unlike the gallery in the probe sets of the database, in the words of make_walkers.
PROBES = {
    "A": "view",
    "B": "shoe",
    "C": "view+shoe",
    "D": "surface",
    "E": "surface+shoe",
    "F": "surface+view",
    "G": "surface+shoe+view",
    "H": "briefcase",
    "I": "briefcase+shoe",
    "J": "briefcase+view",
    "K": "clothing+shoe",
    "L": "clothing+shoe+surface",
}
N_DRAWS, N_SUBJECTS, N_FRAMES = 3, 40, 140
SHAPES = {"H": (64, 44), "full": (128, 88)}


class Method(NamedTuple):
    make: Callable[[], GaitRecognizer]
    #: "H" for half the size of the database, "full".
    size: str = "H"


def gtda(representation: Any = "agi", *, lda: bool) -> Callable[[], GaitRecognizer]:
    return lambda: GaitRecognizer(representation, subspace=GTDA(), lda=lda)


# Under the names of the tables; the first has none there.
METHODS = {
    "averaged images (H)": Method(lambda: GaitRecognizer(lda=False)),
    "LDA": Method(GaitRecognizer),
    "2DLDA": Method(lambda: GaitRecognizer(subspace=nearfar.TwoDLDA(), lda=False)),
    "2DLDA+LDA": Method(lambda: GaitRecognizer(subspace=nearfar.TwoDLDA())),
    "GTDA (H)": Method(gtda(lda=False)),
    "GTDA": Method(gtda(lda=False), "full"),
    "Gabor+GTDA (H)": Method(gtda("gabor", lda=False)),
    "GaborD+GTDA (H)": Method(gtda("gabor_d", lda=False)),
    "GaborS+GTDA (H)": Method(gtda("gabor_s", lda=False)),
    "GaborSD+GTDA (H)": Method(gtda("gabor_sd", lda=False)),
    "GTDA+LDA (H)": Method(gtda(lda=True)),
    "GTDA+LDA": Method(gtda(lda=True), "full"),
    "Gabor+GTDA+LDA (H)": Method(gtda("gabor", lda=True)),
    "GaborD+GTDA+LDA (H)": Method(gtda("gabor_d", lda=True)),
    "GaborS+GTDA+LDA (H)": Method(gtda("gabor_s", lda=True)),
    "GaborSD+GTDA+LDA (H)": Method(gtda("gabor_sd", lda=True)),
}


# ---------------------------------------------------------------------- the data


class Walks(NamedTuple):
    sequences: Any
    ids: NDArray[Any]


def drawn(seed: int, shape: tuple[int, int]) -> tuple[Walks, dict[str, Walks]]:
    """A gallery, and probe sets as those of the database, of the same size."""
    conditions = ["", *PROBES.values()]
    walks, ids, _ = make_walkers(
        N_SUBJECTS, len(conditions), N_FRAMES, shape, seed, conditions=conditions
    )
    sets = [Walks(walks[k :: len(conditions)], ids[k :: len(conditions)]) for k in range(13)]
    return sets[0], dict(zip(PROBES, sets[1:], strict=True))


def own(folder: Path) -> tuple[Walks, dict[str, Walks]]:
    """A gallery and probe sets from a folder; probes of people who are not in the gallery go."""
    parts = {path.stem: path for path in sorted(folder.iterdir()) if not path.name.startswith(".")}
    if "gallery" not in parts or len(parts) < 2:
        raise SystemExit(f"{folder} has no gallery, or no probes beside it: see --help.")
    gallery = Walks(*load_gait(parts.pop("gallery")))
    probes = {}
    for name, path in parts.items():
        walks = Walks(*load_gait(path))
        known = np.flatnonzero(np.isin(walks.ids, gallery.ids))
        if not len(known):
            raise SystemExit(f"Nobody in {path.name} is in the gallery.")
        probes[name] = Walks([walks.sequences[k] for k in known], walks.ids[known])
    return gallery, probes


def halved(walks: Walks) -> Walks:
    """Frames of half the size: means of squares of two pixels."""

    def half(frames: NDArray[Any]) -> NDArray[Any]:
        t, height, width = frames.shape
        cut = frames[:, : height // 2 * 2, : width // 2 * 2]
        squares = cut.reshape(t, height // 2, 2, width // 2, 2)
        return squares.mean(axis=(2, 4), dtype=np.float32)

    return Walks([half(frames) for frames in walks.sequences], walks.ids)


def cases(data: Path | None) -> Iterator[tuple[int, str, Callable[[], Any]]]:
    """Draws, sizes, and what makes gallery and probes of that size."""
    for draw in range(1 if data else N_DRAWS):
        for size, shape in SHAPES.items():
            if data is None:
                yield draw, size, lambda draw=draw, shape=shape: drawn(draw, shape)
            elif size == "full":
                yield draw, size, lambda: own(data)
            else:

                def smaller() -> Any:
                    gallery, probes = own(data)
                    return halved(gallery), {name: halved(p) for name, p in probes.items()}

                yield draw, size, smaller


# ---------------------------------------------------------------------- running


def run(results: Results, data: Path | None, methods: list[str]) -> None:
    for draw, size, make in cases(data):
        todo = [
            name
            for name in methods
            if METHODS[name].size == size and not results.select(method=name, draw=draw)
        ]
        if not todo:
            continue
        gallery, probes = make()
        for name in todo:
            started = time.perf_counter()
            recognizer = METHODS[name].make().fit(*gallery)
            rates = {}
            for probe, walks in probes.items():
                D = recognizer.distances(walks.sequences)
                found = rank_k_rates(D, walks.ids, recognizer.classes_)
                rates[probe] = [len(walks.ids), *(100 * found).tolist()]
            seconds = round(time.perf_counter() - started, 1)
            results.add({"method": name, "draw": draw, "rates": rates, "seconds": seconds})


# ---------------------------------------------------------------------- the page


def published() -> tuple[list[str], dict[tuple[str, str], list[float]]]:
    """Names of probes, and rates with their average by table and method."""
    with PUBLISHED.open(newline="") as file:
        head, _, *rows = csv.reader(file)
    return head[2:-1], {(r[0], r[1]): [float(x) for x in r[2:]] for r in rows if r[-1]}


def rows_of(results: Results, place: int, number: str) -> tuple[list[str], list[list[str]]]:
    """The body of a table: a row for each method, and the published one below it."""
    probes = list(results.rows[0]["rates"])
    _, thesis = published()
    body = []
    for name in METHODS:
        found = results.select(method=name)
        if not found:
            continue
        rates = np.array([[row["rates"][p][place] for p in probes] for row in found])
        sizes = [found[0]["rates"][p][0] for p in probes]
        averages = weighted_average_rate(rates, sizes)
        spread = f" ± {averages.std(ddof=1):.1f}" if len(found) > 1 else ""
        cells = [f"{rate:.0f}" for rate in rates.mean(axis=0)]
        printed = thesis.get((number, name))
        body.append(
            [
                name,
                *cells,
                f"{averages.mean():.1f}{spread}",
                f"{printed[-1]:.1f}" if printed else "-",
            ]
        )
    return ["method", *probes, "average", "thesis: average"], body


DRAWN = f"""\
The silhouettes of the USF HumanID database may not be passed on. Here its twelve probe sets are
imitated with drawn walkers (:func:`~nearfar.datasets.make_walkers`), so that the whole way from
silhouettes to rates is run. **The rates are those of drawings, and none of them can be held against
the thesis**, whose averages stand beside them only to show its order of methods. {N_DRAWS} draws of
{N_SUBJECTS} subjects, a gallery and one walk for each probe set, {N_FRAMES} frames a walk; a cell
is the mean over draws, the average has the standard deviation over draws. Nothing is chosen: GTDA
has its defaults (zeta 0.1, energy 0.97), so has 2DLDA, LDA is shrunk by 0.1; the thesis reports
the best of many settings on the probes themselves. (H) is 64×44 pixels, else 128×88; LDA and
2DLDA are run on 64×44. Periods are estimated. What is unlike the gallery:
"""
OWN = """\
Rates on a folder of silhouettes, in the layout of tables 3.9 and 3.10; probes of people who are not
in the gallery are left out. Nothing is chosen: GTDA has its defaults, LDA is shrunk by 0.1. (H) has
frames of half the size.
"""


def page(results: Results, data: Path | None) -> list[str]:
    lines = [DRAWN if data is None else OWN]
    if data is None:
        unlike = [[probe, told.replace("+", ", ")] for probe, told in PROBES.items()]
        lines += table(["probe", "what is otherwise"], unlike)
        own_data = "``python benchmarks/reproduce/gait.py --data DIR``"
        lines += [f"{own_data} makes the same tables of silhouettes of one's own.", ""]
    sizes = {probe: cells[0] for probe, cells in results.rows[0]["rates"].items()}
    told = ", ".join(f"{probe} {n}" for probe, n in sizes.items())
    for place, number, words in ((1, "3.9", "rank one"), (2, "3.10", "rank five")):
        lines += section(f"Table {number}: {words}, %")
        if place == 1:
            lines += [f"Probes in each set: {told}.", ""]
        lines += table(*rows_of(results, place, number))
    times = [
        [name, f"{np.mean([row['seconds'] for row in found]):.0f}"]
        for name in METHODS
        if (found := results.select(method=name))
    ]
    lines += section("Seconds")
    lines += ["Gallery and all probes, one thread of a busy machine.", ""]
    return lines + table(["method", "seconds"], times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", type=Path, help="folder of gallery and probes; none: draw walkers"
    )
    parser.add_argument("--methods", help="some of the methods, with commas between")
    options = arguments(parser, "gait.rst", data=False)
    out = options.out
    if options.data is not None and out == PAGES / "gait.rst":
        out = Path("gait.rst")  # the page of the documentation has nothing of anybody's own
    methods = options.methods.split(",") if options.methods else list(METHODS)
    unknown = set(methods) - set(METHODS)
    if unknown:
        parser.error(f"no such methods: {sorted(unknown)}; there are {list(METHODS)}")
    results = Results(out.with_suffix(".jsonl"))
    if not options.page_only:
        run(results, options.data, methods)
    if not results.rows:
        parser.error("there are no results yet")
    write_page(out, "Gait: tables 3.9 and 3.10 of Tao's thesis", page(results, options.data))


if __name__ == "__main__":
    main()
