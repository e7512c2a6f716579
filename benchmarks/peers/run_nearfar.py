"""Our own learners, measured as the peers are."""

import json
import sys
from importlib.metadata import version

from measure import main

import nearfar
from nearfar import LMNN
from nearfar.extras import import_kernels
from nearfar.summaries.supervision import Chunklets, Pairs, Quadruplets, Triplets

# Public names are imported when they are first asked for, which is not to be measured.
getattr(nearfar, json.loads(sys.argv[3]).get("method", "LMNN"))
# numba is an import, too, most of whose modules wait for its first function.
if import_kernels("nearfar.large_margin._kernels") is not None:
    import numba

    numba.njit(lambda: 0)()


def fit(X, y=None, method="LMNN", **settings):
    if method == "LMNN":
        return fit_lmnn(X, y, **settings)
    given = guide(len(X), settings)
    learner = getattr(nearfar, method)(**settings)
    learner = learner.fit(X, y) if given is None else learner.fit(X, supervision=given)
    arrays = {"L": learner.components_, "mapped": learner.transform(X[:10])}
    words = ("n_iter_", "objective_", "duality_gap_", "optimality_")
    found = {word[:-1]: float(getattr(learner, word)) for word in words if hasattr(learner, word)}
    return arrays, found | {"iterations": found.get("n_iter")}


def guide(n, settings):
    """Takes what is learned from out of the settings: pairs, tuples, or chunks."""
    if "pairs" in settings:
        pairs, sign = settings.pop("pairs"), settings.pop("sign")
        return Pairs(pairs[sign > 0], pairs[sign < 0], n_samples=n)
    if "tuples" in settings:
        tuples = settings.pop("tuples")
        return (Triplets if tuples.shape[1] == 3 else Quadruplets)(tuples, n_samples=n)
    return Chunklets(settings.pop("chunks")) if "chunks" in settings else None


def fit_lmnn(X, y, **settings):
    learner = LMNN(**settings).fit(X, y)
    arrays = {
        "L": learner.components_,
        "mapped": learner.transform(X[:10]),
        "targets": learner.target_neighbors_,
    }
    return arrays, {"iterations": learner.n_iter_}


main(f"nearfar {version('nearfar')}", fit)
