"""Every estimator with parameters that make it quick: the one list of estimators in the tests."""

import numpy as np

from nearfar import LMNN, MGMKLD, MultimodalMGMKLD, all_estimators

# Two fits instead of six and steps that end early show the same, and so do two starts of a search
# instead of ten.
ROUGH = LMNN(tol=1e-2, max_iter=30)
SEARCH = {"n_init": 2, "tol": 1e-3}
QUICK = {
    "BagOfWords": {"n_words": 20},
    "KernelLMNN": {"estimator": ROUGH},
    "KernelMGMKLD": {"estimator": MGMKLD(**SEARCH)},
    "LMNN": {"tol": 1e-3},
    "MDML": {"n_components": 2, "tol": 1e-4},
    "MLKR": {"max_iter": 60},
    "MVU": {"tol": 1e-3},
    "MultiMetricLMNN": {"estimator": ROUGH, "patience": 2},
    "MultiPassLMNN": {"estimator": ROUGH, "n_passes": 2},
    "MultimodalKernelMGMKLD": {"estimator": MultimodalMGMKLD(**SEARCH)},
    "SCML": {"n_basis": 30},
    "SDML": {"prior": "covariance", "sparsity": 0.1},  # others end before the third iteration
    # Without, the best map of classes that can be told apart is infinitely large.
    "NCA": {"l2": 1e-2},
    "STM": {"n_init": 1},  # a start is a descent of all factors
    "SetSpectralClustering": {"n_clusters": 3},
    "VariationalMVU": {"max_iter": 20, "bound_iter": 5},
    "LandmarkMVU": {"n_landmarks": 8, "bound_iter": 5},
}


def quick(name):
    """The estimator of that name, not fitted."""
    estimator = all_estimators()[name](**QUICK.get(name, {}))
    if hasattr(estimator, "n_init"):
        known = estimator.get_params(deep=False).keys() - QUICK.get(name, {}).keys()
        estimator.set_params(**{key: value for key, value in SEARCH.items() if key in known})
    return estimator


def learns_from_labels(name):
    """Whether it takes labels of any kind, or none; not numbers to predict alone."""
    return "values" not in all_estimators()[name].learner_tags.learns_from


def told(name, labels):
    """Labels; for an estimator of that name that learns from values, numbers in their place."""
    return labels if learns_from_labels(name) else np.unique(labels, return_inverse=True)[1]
