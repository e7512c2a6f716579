"""POLA: projection steps, streams and epochs, and the bound on the losses."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_circles
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from nearfar import POLA, KernelPOLA, Pairs
from nearfar.mahalanobis.pola import OnlineState

IRIS = load_iris(return_X_y=True)


def stream(seed, n=400, p=5, margin=0.0):
    """Return pairs of points with signs from a known metric and threshold, or random signs."""
    rng = np.random.default_rng(seed)
    pairs = rng.normal(size=(n, 2, p)) / np.sqrt(2 * p)
    if margin == 0:
        return pairs, rng.choice([1, -1], n)
    d = pairs[:, 0] - pairs[:, 1]
    A = rng.normal(size=(2, p))
    squared = ((d @ A.T) ** 2).sum(axis=1)
    middle = np.median(squared)
    sign = np.where(squared < middle, 1, -1)
    far = np.abs(squared - middle) > margin * middle
    return pairs[far], sign[far]


def by_the_letter(pairs, sign, floor=1.0):
    """Project onto a half-space of R^{p²+1}, then onto the cone, pair by pair."""
    p = pairs.shape[2]
    w = np.append(np.zeros(p * p), 1.0)
    losses, negative = [], 0
    for (a, b), s in zip(pairs, sign, strict=True):
        x = a - b
        # The loss is zero where w·v >= 1 with v = s (−xx', 1).
        v = s * np.append(-np.outer(x, x).ravel(), 1.0)
        loss = max(0.0, 1 - w @ v)
        losses.append(loss)
        w = w + loss / (v @ v) * v
        values, vectors = np.linalg.eigh(w[:-1].reshape(p, p))
        negative = max(negative, np.count_nonzero(values < -1e-12))
        w[:-1] = ((vectors * np.maximum(values, 0)) @ vectors.T).ravel()
        if floor is not None:
            w[-1] = max(w[-1], floor)
    return w[:-1].reshape(p, p), w[-1], np.array(losses), negative


@pytest.mark.parametrize("floor", [1.0, None])
@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_two_projections_pair_by_pair(seed, margin, floor):
    pairs, sign = stream(seed, margin=margin)
    M, b, losses, negative = by_the_letter(pairs, sign, floor)
    pola = POLA(floor, scale=1.0).partial_fit_pairs(pairs, sign)
    np.testing.assert_allclose(pola.get_mahalanobis_matrix(), M, rtol=1e-8, atol=1e-9)
    assert pola.b_ == pytest.approx(b, rel=1e-9)
    assert pola.n_updates_ == np.count_nonzero(losses) > 20
    assert pola.n_seen_ == len(sign)
    assert pola.cumulative_loss_ == pytest.approx((losses**2).sum(), rel=1e-9)
    assert negative == 1  # At most one eigenvalue is removed, and some are.
    assert (floor is None) or pola.b_ >= floor


def test_the_floor_matters():
    pairs, sign = stream(1)
    floored, free = (POLA(floor, scale=1.0).partial_fit_pairs(pairs, sign) for floor in (1.0, None))
    assert floored.b_ >= 1 and abs(floored.b_ - free.b_) > 1e-3


def test_after_every_pair_it_is_a_metric_nearer_to_all_that_have_no_loss():
    pairs, sign = stream(3, margin=0.5)
    d = pairs[:, 0] - pairs[:, 1]
    best = POLA(scale=1.0, max_epochs=3000, tol=1e-9)
    X, supervision = Pairs.from_arrays(pairs, sign)
    best.fit(X, supervision=supervision)
    M, b = best.get_mahalanobis_matrix(), best.b_
    online = OnlineState(np.zeros((5, 5), order="F"), 1.0, 1.0)
    before = (M**2).sum() + (1 - b) ** 2
    for x, s in zip(d[:150], sign[:150], strict=True):
        online.process(x[None], np.array([float(s)]))
        assert np.linalg.eigvalsh(online.M)[0] > -1e-12 and online.b >= 1
        now = ((online.M - M) ** 2).sum() + (online.b - b) ** 2
        assert now <= before + 1e-9
        before = now


@pytest.mark.parametrize("rare", [False, True])
def test_looking_ahead_changes_nothing(rare):
    # Many pairs are evaluated at once if losses are rare.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    sign = np.where((X[:, 0] ** 2) < 1, 1.0, -1.0)
    if rare:
        X[::2] *= 0.01
        sign[::2] = 1.0
        X, sign = np.repeat(X, 40, axis=0)[:20000], np.repeat(sign, 40)[:20000]
    one, many = (OnlineState(np.zeros((3, 3), order="F"), 1.0, 1.0) for _ in range(2))
    many.process(X, sign)
    for x, s in zip(X, sign, strict=True):
        one.process(x[None], np.array([s]))
    assert one.n_updates == many.n_updates and one.n_seen == many.n_seen == len(X)
    np.testing.assert_allclose(one.M, many.M, rtol=1e-9)
    assert one.b == pytest.approx(many.b) and one.cumulative == pytest.approx(many.cumulative)
    assert one.widest == many.widest


def test_batches_are_one_stream():
    pairs, sign = stream(0)
    whole = POLA(scale=1.0).partial_fit_pairs(pairs, sign)
    parts = POLA(scale=1.0)
    for start in range(0, 400, 37):
        parts.partial_fit_pairs(pairs[start : start + 37], sign[start : start + 37])
        if start == 74:
            parts = pickle.loads(pickle.dumps(parts))
    np.testing.assert_allclose(
        parts.get_mahalanobis_matrix(), whole.get_mahalanobis_matrix(), rtol=1e-7, atol=1e-10
    )
    for name in ("b_", "n_seen_", "n_updates_", "cumulative_loss_", "regret_bound_"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name))


def test_two_kinds_alternate_evenly():
    X, y = IRIS
    pairs = Pairs.from_labels(y, n_similar=100, n_dissimilar=300, random_state=0)
    fitted = POLA(scale=1.0).fit(X, supervision=pairs)
    rows, s = [], []
    similar, dissimilar = pairs.similar.tolist(), pairs.dissimilar.tolist()
    while similar or dissimilar:  # One of three pairs is similar.
        for kind, sign in ((dissimilar, -1), (similar, 1), (dissimilar, -1), (dissimilar, -1)):
            rows.append(X[kind.pop(0)])
            s.append(sign)
    streamed = POLA(scale=1.0).partial_fit_pairs(rows, s)
    assert fitted.b_ == pytest.approx(streamed.b_, rel=1e-9)
    np.testing.assert_allclose(
        fitted.get_mahalanobis_matrix(), streamed.get_mahalanobis_matrix(), rtol=1e-7, atol=1e-9
    )
    partly = POLA(scale=1.0).partial_fit(X, supervision=pairs)
    np.testing.assert_array_equal(partly.components_, fitted.components_)
    labelled = POLA(n_similar=100, n_dissimilar=300).fit(X, y)
    np.testing.assert_array_equal(
        POLA().fit(X, supervision=pairs).components_, labelled.components_
    )


def test_units_do_not_matter_but_to_the_letter():
    pairs, sign = stream(2)
    plain, large = (POLA().partial_fit_pairs(u * pairs, sign) for u in (1.0, 1e6))
    np.testing.assert_allclose(
        large.pair_distance(1e6 * pairs), plain.pair_distance(pairs), rtol=1e-6
    )
    assert large.scale_ == pytest.approx(1e6 * plain.scale_)
    d = pairs[:, 0] - pairs[:, 1]
    assert plain.scale_ == pytest.approx(np.sqrt((d**2).sum(axis=1).mean()))
    assert POLA(scale=3.0).partial_fit_pairs(pairs, sign).scale_ == 3.0


# Losses


@pytest.mark.parametrize("seed", range(3))
def test_the_losses_of_separable_streams_are_bounded_at_any_time(seed):
    pairs, sign = stream(seed, margin=0.5)
    X, supervision = Pairs.from_arrays(pairs, sign)
    best = POLA(scale=1.0, max_epochs=5000, tol=1e-10).fit(X, supervision=supervision)
    assert best.cumulative_loss_ <= best.regret_bound_
    M, b = best.get_mahalanobis_matrix(), best.b_
    d = pairs[:, 0] - pairs[:, 1]
    assert (1 - sign * (b - np.einsum("ij,jk,ik->i", d, M, d))).max() < 1e-8  # No pair has a loss.
    R = ((d**2).sum(axis=1) ** 2).max() + 1
    assert best.regret_bound_ == pytest.approx(R * ((M**2).sum() + (b - 1) ** 2), rel=1e-6)
    # Repeated in any order, a metric without a loss bounds the sum of all losses.
    online, rng = POLA(scale=1.0), np.random.default_rng(seed)
    for _ in range(5):
        order = rng.permutation(len(sign))
        online.partial_fit_pairs(pairs[order], sign[order])
        assert online.cumulative_loss_ <= best.regret_bound_ * (1 + 1e-9)


def test_epochs_go_on_until_no_pair_has_a_loss():
    pairs, sign = stream(0, margin=0.5)
    X, supervision = Pairs.from_arrays(pairs, sign)
    cycled = POLA(max_epochs=2000, tol=1e-3).fit(X, supervision=supervision)
    assert 1 < cycled.n_epochs_ < 2000
    assert cycled.n_seen_ == cycled.n_epochs_ * len(sign)
    squared = cycled.pair_distance(pairs) ** 2
    assert (1 - sign * (cycled.b_ - squared)).max() <= 1e-3 + 1e-9
    assert POLA().fit(X, supervision=supervision).n_epochs_ == 1
    shuffled = POLA(max_epochs=2000, tol=1e-3, shuffle=True).fit(X, supervision=supervision)
    assert shuffled.b_ != cycled.b_
    again = POLA(max_epochs=2000, tol=1e-3, shuffle=True).fit(X, supervision=supervision)
    np.testing.assert_array_equal(again.components_, shuffled.components_)
    with pytest.warns(ConvergenceWarning, match="max_epochs=2"):
        POLA(max_epochs=2, tol=1e-3).fit(X, supervision=supervision)


def test_pairs_said_both_ways():
    X, y = IRIS
    pairs = Pairs.from_labels(y, n_similar=100, n_dissimilar=100, random_state=0)
    both = Pairs(
        np.vstack([pairs.similar, pairs.dissimilar[:20]]),
        pairs.dissimilar,
        n_samples=150,
        conflicts="keep",
    )
    pola = POLA().fit(X, supervision=both)
    assert np.isfinite(pola.components_).all() and pola.components_.any()


def test_one_kind_of_pairs():
    X, y = IRIS
    pairs = Pairs.from_labels(y, n_similar=100, n_dissimilar=100, random_state=0)
    different = POLA().fit(X, supervision=Pairs([], pairs.dissimilar, n_samples=150))
    assert different.components_.any()
    with pytest.warns(UserWarning, match="still zero"):
        alike = POLA().fit(X, supervision=Pairs(pairs.similar, [], n_samples=150))
    assert not alike.components_.any() and alike.n_updates_ == 0


def test_ctrl_c_leaves_what_was_learned(monkeypatch):
    X, y = IRIS
    steps, real = [], OnlineState._step

    def step(self, *given):
        real(self, *given)
        steps.append(1)
        if len(steps) == 30:
            raise KeyboardInterrupt

    monkeypatch.setattr(OnlineState, "_step", step)
    pola = POLA()
    with pytest.raises(KeyboardInterrupt):
        pola.fit(X, y)
    assert pola.n_updates_ == 30 and np.isfinite(pola.transform(X)).all()


# Invalid input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p, s: (p[:, 0], s), r"shape \(n_pairs, 2, n_features\)"),
        (lambda p, s: (p, s[:-1]), r"sign must have shape \(400,\)"),
        (lambda p, s: (p, np.where(s > 0, 1, 0)), r"sign must be \+1 or -1; row .* is"),
        (lambda p, s: (p * np.nan, s), "pairs contains NaN"),
        (lambda p, s: (p[:, [0, 0]], s), "zero length"),
        (lambda p, s: (p[:0], s[:0]), "0 sample"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_streams_that_cannot_be(change, message):
    pola = POLA()
    with pytest.raises(ValueError, match=message):
        pola.partial_fit_pairs(*change(*stream(0)))
    with pytest.raises(NotFittedError):
        pola.transform(np.zeros((2, 5)))


def test_later_pairs_have_as_many_features():
    pairs, sign = stream(0)
    pola = POLA().partial_fit_pairs(pairs, sign)
    with pytest.raises(ValueError, match=r"\(n_pairs, 2, 5\)"):
        pola.partial_fit_pairs(pairs[:, :, :3], sign)


def test_equal_points_said_to_be_different_are_left_out():
    pairs, sign = stream(0)
    more = np.concatenate([pairs, pairs[:3, [0, 0]]])
    with pytest.warns(UserWarning, match="3 of .* dissimilar pairs have zero length") as heard:
        pola = POLA(scale=1.0).partial_fit_pairs(more, np.append(sign, [-1, -1, -1]))
    assert len(heard) == 1 and pola.n_seen_ == 400
    assert pola.b_ == POLA(scale=1.0).partial_fit_pairs(pairs, sign).b_


# KernelPOLA


def test_with_a_linear_kernel_it_is_pola():
    X, y = IRIS
    pairs = Pairs.from_labels(y, n_similar=200, n_dissimilar=200, random_state=0)
    linear = POLA().fit(X, supervision=pairs)
    kernel = KernelPOLA("linear", n_directions=None).fit(X, supervision=pairs)
    more, sign = Pairs.from_labels(y, n_similar=50, n_dissimilar=50, random_state=1).to_arrays(X)
    for _ in range(2):
        assert kernel.b_ == pytest.approx(linear.b_, rel=1e-8)
        assert kernel.n_updates_ == linear.n_updates_ and kernel.n_seen_ == linear.n_seen_
        Z = kernel.transform(X)
        wanted = linear.pair_distance(np.stack([X[:70], X[70:140]], axis=1))
        np.testing.assert_allclose(np.linalg.norm(Z[:70] - Z[70:140], axis=1), wanted, rtol=1e-6)
        linear.partial_fit_pairs(more, sign)
        kernel.partial_fit_pairs(more, sign)


def test_rings_by_a_stream_of_pairs():
    X, y = make_circles(150, noise=0.05, factor=0.4, random_state=0)
    pairs = Pairs.from_labels(y, n_similar=400, n_dissimilar=400, random_state=0)
    few = Pairs(pairs.similar[:10], pairs.dissimilar[:10], n_samples=150)
    pola = KernelPOLA().fit(X, supervision=few)
    before = pola.estimator_.get_mahalanobis_matrix()
    points, sign = pairs.to_arrays(X)
    order = np.random.default_rng(0).permutation(800)
    pola.partial_fit_pairs(points[order], sign[order])
    assert np.abs(pola.estimator_.get_mahalanobis_matrix() - before).max() > 0
    distances = np.linalg.norm(pola.transform(points[:, 0]) - pola.transform(points[:, 1]), axis=1)
    assert ((distances**2 < pola.b_) == (sign > 0)).mean() > 0.95
    with pytest.raises(ValueError, match=r"\(n_pairs, 2, 2\)"):
        pola.partial_fit_pairs(np.zeros((3, 2, 5)), [1, 1, -1])
    with pytest.raises(NotFittedError, match="call fit with rows"):
        KernelPOLA().partial_fit_pairs(points, sign)
