"""PyLMNN, without the parameter search for which it imports GPyOpt."""

import sys
import types
from importlib.metadata import version

from measure import main

methods = types.ModuleType("GPyOpt.methods")
methods.BayesianOptimization = None
sys.modules["GPyOpt"], sys.modules["GPyOpt.methods"] = types.ModuleType("GPyOpt"), methods

from pylmnn import LargeMarginNearestNeighbor  # noqa: E402


def fit(X, y, **settings):
    learner = LargeMarginNearestNeighbor(**settings).fit(X, y)
    arrays = {"L": learner.components_, "mapped": learner.transform(X[:10])}
    return arrays, {"iterations": learner.n_iter_}


main(f"PyLMNN {version('PyLMNN')}", fit)
