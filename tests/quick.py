"""Every estimator with parameters that make it quick: the one list of estimators in the tests."""

import numpy as np
from near_twins import near_twins

from nearfar import LMNN, MGMKLD, MultimodalMGMKLD, all_estimators

# Two fits instead of six and steps that end early show the same, and so do two starts of a search
# instead of ten; twins inherit the choice among starts and need only one.
ONE_PASS = {"n_passes": 1, "validation_fraction": 0.0}
ROUGH = LMNN(tol=1e-2, max_iter=4, **ONE_PASS)
SEARCH = {"n_init": 2, "tol": 1e-2, "max_iter": 5}
ONE_START = SEARCH | {"n_init": 1}
QUICK = {
    "BagOfWords": {"n_words": 20},
    "IdealizedMetric": {"n_similar": 60, "n_dissimilar": 60},
    "KernelIdealizedMetric": {"n_similar": 60, "n_dissimilar": 60},
    "KernelLMNN": {"estimator": ROUGH},
    "KernelMGMKLD": {"estimator": MGMKLD(**ONE_START)},
    "IFEM": {"n_components": 3},
    "LMNN": {"tol": 1e-3, "max_iter": 5, **ONE_PASS},
    "LogisticMetric": {"tol": 1e-3, "max_iter": 30},
    "MCML": {"tol": 1e-4, "max_iter": 30},
    "MDML": {
        "tol": 1e-2,
        "max_iter": 10,
    },  # passes with the defaults too
    "MLKR": {"max_iter": 60},
    "MVU": {"tol": 1e-3, "max_iter": 5},
    "MultiMetricLMNN": {"estimator": ROUGH, "patience": 2, "refit": False},
    "MultiPassLMNN": {"estimator": ROUGH, "n_passes": 2},
    "MultimodalKernelMGMKLD": {"estimator": MultimodalMGMKLD(max_clusters=3, **ONE_START)},
    "MultimodalMGMKLD": {"max_clusters": 3},
    "SCML": {"n_basis": 30, "max_iter": 10},
    "SDML": {"prior": "covariance", "sparsity": 0.1},  # others end before the third iteration
    # Without, the best map of classes that can be told apart is infinitely large.
    "NCA": {"l2": 1e-2},
    "PARDA": {"tol": 1e-3, "max_iter": 10},  # others end before the third iteration
    "STM": {"n_init": 1, "tol": 1e-3, "max_iter": 20},  # a start is a descent of all factors
    "SetSpectralClustering": {"n_clusters": 3},
    "TR1A": {"n_components": 3},
    "TR1DA": {"n_components": 3},
    "VariationalMVU": {"max_iter": 10, "bound_iter": 5},
    "LandmarkMVU": {"n_landmarks": 8, "bound_iter": 5},
}


def quick(name):
    """The estimator of that name, not fitted."""
    estimator = all_estimators()[name](**QUICK.get(name, {}))
    # The default of MLKR and NCA is one start.
    if hasattr(estimator, "n_init") and name not in ("MLKR", "NCA"):
        known = estimator.get_params(deep=False).keys() - QUICK.get(name, {}).keys()
        alike = name in near_twins() or name == "MultimodalMGMKLD"  # searches as MODA does
        search = ONE_START if alike else SEARCH
        estimator.set_params(**{key: value for key, value in search.items() if key in known})
    return estimator


def learns_from_labels(name):
    """Whether it takes labels of any kind, or none; not numbers to predict alone."""
    return "values" not in all_estimators()[name].learner_tags.supervision


def told(name, labels):
    """Labels; for an estimator of that name that learns from values, numbers in their place."""
    return labels if learns_from_labels(name) else np.unique(labels, return_inverse=True)[1]
