"""Our own LMNN, measured as the peers are."""

from importlib.metadata import version

from measure import main

from nearfar import LMNN, MultiPassLMNN


def fit(X, y, n_passes=1, **settings):
    learner = MultiPassLMNN(LMNN(**settings), n_passes=n_passes).fit(X, y)
    passes = learner.passes_
    arrays = {
        "L": learner.components_,
        "mapped": learner.transform(X[:10]),
        "targets": passes[0].target_neighbors_,
    }
    return arrays, {"iterations": sum(lmnn.n_iter_ for lmnn in passes)}


main(f"nearfar {version('nearfar')}", fit)
