"""Costs of the energy rule against sums over all hinges, one by one."""

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from sklearn import config_context

from nearfar.large_margin.energy_costs import compute_center_costs, compute_impostor_costs


def hinges(levels, distances):
    """All hinges of some levels with some distances, in one list."""
    found = np.subtract.outer(np.asarray(levels), np.asarray(distances))
    return found[found > 0].tolist()


def costs_of_centers(distances, edges, k):
    """Pushes of each query under each label, and the hinges of its own class, by definition."""
    b, n_classes = len(distances), len(edges) - 1
    codes = np.repeat(np.arange(n_classes), np.diff(edges))
    pushes, own = np.full((b, n_classes), np.inf), np.zeros((b, n_classes))
    for row, c in np.ndindex(b, n_classes):
        there = np.isfinite(distances[row])
        levels = 1 + np.sort(distances[row, there & (codes == c)])[:k]
        if len(levels):
            pushes[row, c] = math.fsum(hinges(levels, distances[row, there & (codes != c)]))
            own[row, c] = math.fsum(hinges(levels, distances[row, there & (codes == c)]))
    return pushes, own


def costs_of_impostors(distances, edges, reach, beyond):
    """What queries cost the points of each class, by definition."""
    b, n_classes = len(distances), len(edges) - 1
    costs = np.zeros((b, n_classes))
    for row, c in np.ndindex(b, n_classes):
        parts = []
        for point in range(edges[c], edges[c + 1]):
            if distances[row, point] < beyond[row, point]:
                parts += hinges(reach[point], [distances[row, point]])
                parts += [-h for h in hinges(reach[point], [beyond[row, point]])]
        costs[row, c] = math.fsum(parts)
    return costs


def block(kind, scale):
    """Squared distances of nine queries to four classes, one of a single point."""
    rng = np.random.default_rng(len(kind))
    edges = np.array([0, 25, 26, 60, 71])
    distances = scale * rng.gamma(2.0, size=(9, 71))
    if kind == "ties":  # among the distances, and of distances with levels
        distances = scale * rng.integers(0, 5, size=distances.shape).astype(float)
    if kind == "missing":
        distances[rng.random(distances.shape) < 0.3] = np.inf
        distances[2, :25] = distances[3, :60] = distances[4, 1:] = np.inf
        distances[5] = np.inf
    if kind == "zeros":
        distances[:, ::2] = 0
    if kind == "uneven":  # one query has all points near, another nearly none
        distances[0] *= 1e-6
        distances[1] += 1e4 * scale * np.arange(71)
    return distances, edges


KINDS = ["plain", "ties", "missing", "zeros", "uneven"]


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 3])
def test_pushes_are_the_sum_of_all_hinges(kind, scale, k):
    distances, edges = block(kind, scale)
    wanted, own = costs_of_centers(distances, edges, k)
    # All at once, by parts of one query, and each query alone.
    found = compute_center_costs(distances, edges, k, 1.0)
    with config_context(working_memory=1e-6):
        parts = compute_center_costs(distances, edges, k, 1.0)
    alone = np.vstack([compute_center_costs(row[None], edges, k, 1.0) for row in distances])
    absent = np.isinf(wanted)
    assert (kind == "missing") == absent.any()
    for costs in (found, parts, alone):
        assert (np.isinf(costs) == absent).all() and (costs >= 0).all()
        # Hinges of the own class are taken away again, which leaves their rounding.
        error, rounding = np.abs(costs[~absent] - wanted[~absent]), 1e-14 * (wanted + own)[~absent]
        assert (error <= rounding).all()


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("last", [None, "of points", "of pairs"])
def test_impostor_costs_are_the_sum_of_all_hinges(kind, scale, last):
    distances, edges = block(kind, scale)
    rng = np.random.default_rng(0)
    reach = 1 + scale * rng.gamma(2.0, size=(71, 3))
    reach[5], reach[7, 1:] = -np.inf, -np.inf  # without targets, and with one
    beyond = {
        None: None,
        "of points": scale * rng.gamma(2.0, size=71),
        "of pairs": scale * rng.gamma(2.0, size=distances.shape),
    }[last]
    limits = np.broadcast_to(np.inf if beyond is None else beyond, distances.shape)
    wanted = costs_of_impostors(distances, edges, reach, limits)
    found = compute_impostor_costs(distances, edges, reach, beyond)
    with config_context(working_memory=1e-6):
        parts = compute_impostor_costs(distances, edges, reach, beyond)
    # A hinge is what is above the last that counts: a difference of two.
    atol = 0 if beyond is None else 1e-13 * np.abs(reach[np.isfinite(reach)]).max()
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=atol)
    np.testing.assert_allclose(parts, wanted, rtol=1e-13, atol=atol)
    assert wanted.any()


def test_sums_of_small_hinges_at_large_distances_keep_their_digits():
    # Many points about as far as the only one of the other class: sums of a billion and more
    # make way for hinges of about 1.
    rng = np.random.default_rng(1)
    distances = np.append(1e6, 1e6 + rng.uniform(-0.5, 1.5, 3000))[None]
    found = compute_center_costs(distances, np.array([0, 1, 3001]), 1, 1.0)[0, 0]
    exact = sum(max(Fraction(1e6 + 1) - Fraction(d), Fraction(0)) for d in distances[0, 1:])
    assert found == pytest.approx(float(exact), rel=1e-14)


def test_one_query_with_all_points_near_stays_in_blocks():
    # Lists of unequal lengths are made rows of the longest.
    distances = 1e3 + 1e3 * np.random.default_rng(2).random((400, 5000))
    distances[::100] = 0.1
    with config_context(working_memory=4):
        tracemalloc.start()
        compute_center_costs(distances, np.arange(0, 5001, 250), 3, 0.5)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 4 * 2**20
