"""POLA over many epochs, where steps become negligible."""

import numpy as np
import pytest

from nearfar import POLA, Pairs


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", [1, 2, 4])
def test_pairs_that_can_be_told_apart_are_in_the_end(seed):
    # With these settings, steps too small for the eigensolver once caused an endless loop.
    random = np.random.default_rng(seed)
    X, rows = random.normal(size=(12, 8)), random.permutation(12)
    pairs = Pairs(rows[:6].reshape(3, 2), rows[6:].reshape(3, 2), n_samples=12)
    pola = POLA(max_epochs=2000).fit(X, supervision=pairs)
    assert pola.n_epochs_ < 2000
    distances = pola.pair_distance(X[np.concatenate([pairs.similar, pairs.dissimilar])])
    b = pola.b_
    assert (distances[:3] ** 2 <= b - 1 + 1e-9).all()
    assert (distances[3:] ** 2 >= b + 1 - 1e-9).all()
