"""Our own LMNN, measured as the peers are."""

from importlib.metadata import version

from measure import main

from nearfar import LMNN


def fit(X, y, **settings):
    learner = LMNN(**settings).fit(X, y)
    arrays = {
        "L": learner.components_,
        "mapped": learner.transform(X[:10]),
        "targets": learner.target_neighbors_,
    }
    return arrays, {"iterations": learner.n_iter_, "objective": learner.objective_}


main(f"nearfar {version('nearfar')}", fit)
