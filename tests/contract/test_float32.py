"""float32 and float64 of the same rows give the same result, in any units of the columns."""

import numpy as np
import pytest
from quick import quick
from scipy.spatial.distance import pdist

from nearfar import all_estimators

UNITS = {"even": (1e4, 1e2, 1.0, 1e-2, 1e-4), "one large": (2e4, 10.0, 1.0, 1.0, 1.0)}
VECTORS = list(all_estimators(input="vectors"))
TENSORS = list(all_estimators(input="tensors"))


def make_rows(shape, units):
    """Return samples that float32 represents exactly, of which each column has a unit, and y."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, *shape)) + rng.normal(scale=2, size=(3, *shape))[y]
    return (X * np.reshape(units, (-1, *[1] * (len(shape) - 1)))).astype(np.float32), y


def compute_result(name, X, y):
    """Return the distances and the dimension of transformed rows, or predictions."""
    estimator = quick(name)
    is_regressor = estimator.learner_tags.role == "regressor"
    estimator.fit(X[:45], y[:45].astype(float) if is_regressor else y[:45])
    if not estimator.learner_tags.maps:
        return estimator.predict(X), 1
    Z = estimator.transform(X).reshape(len(X), -1).astype(np.float64)
    return pdist(Z), Z.shape[1]


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize(
    ("name", "shape"), [(name, (5,)) for name in VECTORS] + [(name, (5, 4)) for name in TENSORS]
)
@pytest.mark.filterwarnings("ignore")
def test_float32_gives_the_result_of_float64(name, shape, units):
    X, y = make_rows(shape, UNITS[units])
    found, n_found = compute_result(name, X, y)
    expected, n_expected = compute_result(name, X.astype(np.float64), y)
    assert n_found == n_expected
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
