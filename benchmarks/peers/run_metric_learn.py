"""LMNN of metric-learn."""

from importlib.metadata import version

from measure import main
from metric_learn import LMNN


def fit(X, y, **settings):
    learner = LMNN(**settings).fit(X, y)
    arrays = {"L": learner.components_, "mapped": learner.transform(X[:10])}
    return arrays, {"iterations": learner.n_iter_}


main(f"metric-learn {version('metric-learn')}", fit)
