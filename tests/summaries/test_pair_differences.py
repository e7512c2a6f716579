"""Differences of pairs, stored or computed from the rows."""

import numpy as np
import pytest

from nearfar.summaries import pair_differences
from nearfar.summaries.pair_differences import PairDifferences

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(30, 4))
PAIRS = RNG.integers(0, 30, size=(80, 2))  # some pairs repeat, some pair a point with itself
L = RNG.normal(size=(3, 4))
WEIGHTS = RNG.normal(size=80)  # some negative
DIFFERENCES = np.array([POINTS[i] - POINTS[j] for i, j in PAIRS])


@pytest.fixture(params=["kept", "by rows"])
def pairs(request, monkeypatch):
    if request.param == "by rows":
        monkeypatch.setattr(pair_differences, "_MAX_STORED_BYTES", 0)
    found = PairDifferences(POINTS, PAIRS)
    assert (found._differences is None) == (request.param == "by rows")
    return found


def test_both_forms_are_what_the_definitions_say(pairs):
    assert pairs.n_pairs == 80
    Z = np.array([L @ d for d in DIFFERENCES])
    np.testing.assert_allclose(pairs.map_differences(L), Z, atol=1e-13)
    np.testing.assert_allclose(pairs.compute_squared_lengths(L), [z @ z for z in Z], atol=1e-12)
    plain = sum(np.outer(d, d) for d in DIFFERENCES)
    np.testing.assert_allclose(pairs.scatter(), plain, rtol=1e-12, atol=1e-12)
    weighted = sum(w * np.outer(d, d) for w, d in zip(WEIGHTS, DIFFERENCES, strict=True))
    np.testing.assert_allclose(pairs.scatter(WEIGHTS), weighted, rtol=1e-12, atol=1e-12)
    pulled = sum(w * np.outer(L @ d, d) for w, d in zip(WEIGHTS, DIFFERENCES, strict=True))
    np.testing.assert_allclose(
        pairs.compute_half_gradient(Z, WEIGHTS), pulled, rtol=1e-12, atol=1e-12
    )


def test_what_is_pulled_is_half_the_gradient(pairs):
    step = 1e-6

    def total(L):
        return float(WEIGHTS @ pairs.compute_squared_lengths(L))

    gradient = 2 * pairs.compute_half_gradient(pairs.map_differences(L), WEIGHTS)
    for place in np.ndindex(L.shape):
        moved = np.zeros(L.shape)
        moved[place] = step
        slope = (total(L + moved) - total(L - moved)) / (2 * step)
        assert slope == pytest.approx(gradient[place], rel=1e-6, abs=1e-6)


def test_no_pairs_are_no_trouble():
    none = PairDifferences(POINTS, np.empty((0, 2), int))
    assert (
        none.n_pairs == 0 and not none.scatter().any() and len(none.compute_squared_lengths(L)) == 0
    )


def test_few_pairs_of_many_rows_are_kept(monkeypatch):
    monkeypatch.setattr(pair_differences, "_MAX_STORED_BYTES", 0)
    assert PairDifferences(POINTS, PAIRS[:30])._differences is not None
