"""Learners of pyDML, from labels."""

from importlib.metadata import version

import dml
from measure import main


def fit(X, y, method, **settings):
    learner = getattr(dml, method)(**settings)
    learner.fit(X, y)
    return {"L": learner.transformer(), "mapped": learner.transform(X[:10])}, {}


main(f"pyDML {version('pyDML')}", fit)
