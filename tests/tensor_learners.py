"""A small map of tensors, as a package of one's own may have it, and images to learn from."""

import numpy as np

from nearfar.base import LearnerTags, MultilinearLearner
from nearfar.base.tensor_input import TENSOR_PARAMETERS


class LeadingModes(MultilinearLearner):
    """The leading singular vectors of each unfolding of the centred tensors."""

    learner_tags = LearnerTags(reads="instances", input="tensors", supervised=False)
    parameters = {"n_components": [], **TENSOR_PARAMETERS}

    def __init__(self, n_components=3, max_iter=1, tensor_shape=None):
        self.n_components = n_components
        self.max_iter = max_iter
        self.tensor_shape = tensor_shape

    def fit(self, X, y=None):
        T = self._check_tensors(X, reset=True, min_samples=2)
        mean = T.mean(axis=0)
        factors = []
        for mode in range(1, T.ndim):
            unfolded = np.moveaxis(T - mean, mode, 0).reshape(T.shape[mode], -1)
            factors.append(np.linalg.svd(unfolded, full_matrices=False)[0][:, : self.n_components])
        self._keep_factors(factors, mean, T.dtype)
        return self


def stripes(n=60, shape=(6, 5), n_classes=3, seed=0):
    """Images with a pattern of rank one for each class, under noise; and their labels."""
    random = np.random.default_rng(seed)
    patterns = random.normal(size=(n_classes, shape[0], 1)) * random.normal(
        size=(n_classes, 1, shape[1])
    )
    y = np.arange(n) % n_classes
    images = patterns[y] + 0.5 * random.normal(size=(n, *shape[:2]))
    if len(shape) == 3:
        images = images[..., None] * np.linspace(0.5, 1, shape[2])
    return images, y


def under_light(n=120, shape=(12, 10), seed=0):
    """Images whose classes differ less than what light does to all of them, in the same modes."""
    random = np.random.default_rng(seed)
    rows, columns = (np.linalg.qr(random.normal(size=(d, 3)))[0] for d in shape)
    y = np.arange(n) % 2
    core = random.normal(size=(n, 3, 3)) * 8
    core[:, 0, 0] = 2.0 * (2 * y - 1) + 0.3 * random.normal(size=n)
    return rows @ core @ columns.T + 0.2 * random.normal(size=(n, *shape)), y
