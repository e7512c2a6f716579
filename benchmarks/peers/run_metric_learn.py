"""Learners of metric-learn, from labels or from tuples of points."""

from importlib.metadata import version

import metric_learn
from measure import main


def fit(X, y=None, method="LMNN", pairs=None, sign=None, tuples=None, chunks=None, **settings):
    """Pairs, and tuples of three or four, are row numbers; metric-learn takes points."""
    bounds, basis = settings.pop("bounds", None), settings.pop("basis", None)
    learner = getattr(metric_learn, method)(**settings)
    if pairs is not None:
        more = {} if bounds is None else {"bounds": bounds}
        learner.fit(X[pairs], sign, **more)
    elif basis is not None:  # SCML(basis=array) raises: it compares the array with a word
        learner._fit(X[tuples], basis=basis, n_basis=len(basis))
    elif tuples is not None:
        learner.fit(X[tuples])
    elif chunks is not None:
        learner.fit(X, chunks)
    else:
        learner.fit(X, y)
    arrays = {"L": learner.components_, "mapped": learner.transform(X[:10])}
    return arrays, {"iterations": getattr(learner, "n_iter_", None)}


main(f"metric-learn {version('metric-learn')}", fit)
