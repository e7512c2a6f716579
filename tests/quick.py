"""Every estimator with parameters that make it quick: the one list of estimators in the tests."""

from nearfar import LMNN, MGMKLD, MultimodalMGMKLD, all_estimators

# Two fits instead of six and steps that end early show the same, and so do two starts of a search
# instead of ten.
ROUGH = LMNN(tol=1e-2, max_iter=30)
QUICK = {
    "BagOfWords": {"n_words": 20},
    "KernelLMNN": {"estimator": ROUGH},
    "KernelMGMKLD": {"estimator": MGMKLD(n_init=2)},
    "MultiMetricLMNN": {"estimator": ROUGH, "patience": 2},
    "MultiPassLMNN": {"estimator": ROUGH, "n_passes": 2},
    "MultimodalKernelMGMKLD": {"estimator": MultimodalMGMKLD(n_init=2)},
    "SetSpectralClustering": {"n_clusters": 3},
    "VariationalMVU": {"max_iter": 20, "bound_iter": 5},
    "LandmarkMVU": {"n_landmarks": 10, "bound_iter": 5},
}


def quick(name):
    """The estimator of that name, not fitted."""
    estimator = all_estimators()[name](**QUICK.get(name, {}))
    return estimator.set_params(n_init=2) if hasattr(estimator, "n_init") else estimator
