"""The benchmark of Gabor features: all sides make the same numbers."""

from pathlib import Path

import numpy as np
import pytest

from nearfar import GaborFeatures

SCRIPTS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="the scripts are not installed")


def test_convolutions_of_scipy_are_the_features(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import gabor

    X = gabor.images(2, short=True)
    wanted = GaborFeatures(flatten=False).fit_transform(X).reshape(*X.shape, 40)
    found = gabor.by_scipy("fft", X)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * wanted.max())
    assert gabor.by_scipy("direct", X[:0]).shape == (0, *X.shape[1:], 40)
