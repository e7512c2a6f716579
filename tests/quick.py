"""Every estimator with parameters that make it quick: the one list of estimators in the tests."""

from nearfar import LMNN, all_estimators

# Two fits instead of six, three starts instead of ten, and steps that end early show the same.
ROUGH = LMNN(tol=1e-2, max_iter=30)
QUICK = {
    "BagOfWords": {"n_words": 20},
    "KernelLMNN": {"estimator": ROUGH},
    "MultiMetricLMNN": {"estimator": ROUGH, "patience": 2},
    "MultiPassLMNN": {"estimator": ROUGH, "n_passes": 2},
    "PARDA": {"n_init": 3},
    "SetSpectralClustering": {"n_clusters": 3},
    "VariationalMVU": {"max_iter": 20, "bound_iter": 5},
    "LandmarkMVU": {"n_landmarks": 10, "bound_iter": 5},
}


def quick(name):
    """The estimator of that name, not fitted."""
    return all_estimators()[name](**QUICK.get(name, {}))
