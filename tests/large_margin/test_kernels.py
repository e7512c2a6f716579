"""Compiled kernels of the large-margin loss: the same as what NumPy makes of it."""

import sys

import numpy as np
import pytest

from nearfar import LMNN, extras
from nearfar.large_margin.impostors import find_target_neighbors
from nearfar.large_margin.listed_loss import Screen, compute_listed_loss
from nearfar.large_margin.pair_lists import PairList, make_pair_list
from nearfar.large_margin.triplet_loss import compute_full_loss


@pytest.fixture(scope="module")
def compiled():
    pytest.importorskip("numba", exc_type=ImportError)
    found = extras.import_kernels("nearfar.large_margin._kernels")
    assert found is not None
    return found


def rows_of_classes(n, d, seed, dtype=np.float64, apart=0.7):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    X = rng.normal(size=(n, d)) / np.sqrt(d)
    X[:, 0] += apart * y
    X[n // 2] = X[n // 2 + 1]  # two rows at one place
    targets = find_target_neighbors(X, y, 3)
    targets[3], targets[7, 1:] = -1, -1  # one without targets, one with a single one
    pairs = make_pair_list([np.nonzero((y[:, None] != y) & (targets >= 0).any(axis=1)[:, None])], n)
    return X.astype(dtype), y, targets, pairs


def assert_same(found, wanted, rtol):
    assert found.loss == pytest.approx(wanted.loss, rel=rtol)
    assert found.slopes == pytest.approx(wanted.slopes, rel=rtol)
    assert abs(found.n_active - wanted.n_active) <= rtol * wanted.n_active
    scale = np.abs(wanted.laplacian_v).max()
    np.testing.assert_allclose(found.laplacian_v, wanted.laplacian_v, atol=rtol * scale)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-11), (np.float32, 2e-5)])
def test_kernels_are_what_arrays_make(compiled, monkeypatch, dtype, rtol):
    monkeypatch.setattr("nearfar.large_margin.listed_loss.THREADED_SIZE", 1)
    for n, d in ((90, 7), (60, 1), (101, 33)):
        X, y, targets, pairs = rows_of_classes(n, d, seed=d, dtype=dtype)
        V = np.random.default_rng(1).normal(size=(n, 5)).astype(dtype)
        for smoothing, other in ((0.0, None), (0.1, None), (0.3, V)):
            for nearest in (None, 1, 4):
                wanted = compute_listed_loss(X, targets, pairs, 0.4, smoothing, other, nearest)
                for n_threads in (1, 3):
                    found = compute_listed_loss(
                        X, targets, pairs, 0.4, smoothing, other, nearest, n_threads,
                        compiled=compiled,
                    )  # fmt: skip
                    assert_same(found, wanted, rtol)
            among, weight = np.arange(1, n, 2), 2.0
            settings = (targets, 0.4, smoothing, other)
            for some in ({}, {"among": among, "weight": weight}, {"nearest": 2}):
                wanted = compute_full_loss(X, y, *settings, **some)
                found = compute_full_loss(X, y, *settings, **some, compiled=compiled, n_threads=2)
                assert_same(found, wanted, rtol)


def test_of_equally_near_impostors_the_first_counts(compiled):
    # Three impostors at the same distance, of which two count.
    Z = np.array([[0.0, 0.0], [0.1, 0.0], [0.5, 0.0], [0.0, 0.5], [-0.5, 0.0]])
    targets = np.full((5, 1), -1)
    targets[0] = 1
    pairs = PairList(np.array([0, 3, 3, 3, 3, 3]), np.array([2, 3, 4], dtype=np.int32))
    found = compute_listed_loss(Z, targets, pairs, 0.5, nearest=2, compiled=compiled)
    assert found.laplacian_v[[2, 3]].any(axis=1).all() and not found.laplacian_v[4].any()


@pytest.mark.parametrize("nearest", [None, 2])
def test_kernels_leave_out_pairs_that_are_known_to_be_far(compiled, nearest):
    X, _, targets, pairs = rows_of_classes(200, 6, seed=0)
    rng, L = np.random.default_rng(2), 4 * np.eye(6)
    screen = Screen(pairs, X @ L.T)
    for step in range(5):
        L = L + 0.01 * rng.normal(size=L.shape)
        settings = (X @ L.T, targets, pairs, 0.5, 0.1, None, nearest)
        found = compute_listed_loss(*settings, screen=screen, compiled=compiled)
        assert_same(found, compute_listed_loss(*settings), 1e-11)
        assert step == 0 or 0 < screen.n_wasted < 2 * len(pairs.indices)
    screen.lengths[:] = 1e6  # who is said to be far is not looked at
    assert compute_listed_loss(*settings, screen=screen, compiled=compiled).n_active == 0


@pytest.mark.parametrize(
    "settings", [{}, {"n_components": 3}, {"structure": "diagonal"}, {"n_impostors": 3}]
)
def test_a_fit_by_kernels_is_a_fit(compiled, monkeypatch, settings):
    X, y, _, _ = rows_of_classes(240, 6, seed=3, apart=1.2)
    settings = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0} | settings
    settings |= {"tol": 1e-9, "max_iter": 5000}
    wanted = LMNN(**settings).fit(X, y)
    monkeypatch.setattr("nearfar.large_margin.working_set.MIN_COMPILED_SIZE", 1)
    asked = []
    rows = compiled.evaluate_listed_rows
    monkeypatch.setattr(
        compiled, "evaluate_listed_rows", lambda *args: asked.append(1) or rows(*args)
    )
    found = LMNN(**settings).fit(X, y)
    assert len(asked) > 10
    assert found.objective_ == pytest.approx(wanted.objective_, rel=1e-4)
    assert found.dual_bound_ <= found.objective_ * (1 + 1e-9)


def test_without_numba_arrays_serve(monkeypatch):
    X, y, _, _ = rows_of_classes(120, 5, seed=4)
    wanted = LMNN(n_passes=1).fit(X, y).components_
    monkeypatch.setattr("nearfar.large_margin.working_set.MIN_COMPILED_SIZE", 1)
    monkeypatch.setattr(
        "nearfar.large_margin.working_set.import_kernels", extras.import_kernels.__wrapped__
    )
    monkeypatch.setitem(sys.modules, "numba", None)  # to import it raises
    np.testing.assert_array_equal(LMNN(n_passes=1).fit(X, y).components_, wanted)
