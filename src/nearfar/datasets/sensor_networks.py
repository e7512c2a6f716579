"""Synthetic sensor networks with measured distances between nearby sensors."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import cKDTree

from nearfar.arrays import Matrix
from nearfar.datasets.generators import Seed

Network = tuple[Matrix, NDArray[np.intp], NDArray[np.float64]]


def make_sensor_network(
    n_sensors: int = 500,
    *,
    radius: float | None = None,
    max_neighbors: int = 20,
    noise: float = 0.0,
    shape: Literal["square", "country"] = "square",
    random_state: Seed = None,
) -> Network:
    """Generate sensors in the plane, with noisy distances between nearby sensors.

    Each sensor measures the distances to its nearest sensors within a radius.

    Parameters
    ----------
    n_sensors : int, default=500
        Number of sensors.
    radius : float, optional
        Maximum distance that a sensor measures. None computes the radius from `n_sensors` and
        `max_neighbors`; see Notes.
    max_neighbors : int, default=20
        Maximum number of distances that one sensor measures. A sensor can be in more pairs, because
        other sensors also measure their distance to it. With ``radius=None``, the number is
        increased if this is necessary to connect all sensors.
    noise : float, default=0.0
        Relative noise. Each distance is multiplied by a uniform random number from 1 - noise to 1 +
        noise.
    shape : {"square", "country"}, default="square"
        "square" distributes the sensors uniformly over the unit square. "country" places them in
        the towns and villages of an imaginary country. The experiments in [1]_ use US cities
        instead.
    random_state : int, Generator or None, default=None
        Seed or random number generator.

    Returns
    -------
    positions : ndarray of shape (n_sensors, 2)
        The true positions.
    edges : ndarray of shape (n_edges, 2)
        Pairs of sensors with a measured distance. Each pair occurs once.
    distances : ndarray of shape (n_edges,)
        The measured distance of each pair.

    Notes
    -----
    The default radius is 1.5 times the radius of a circle that contains `max_neighbors` sensors on
    average, if the area is 1. It is increased in steps of 25% until the network is connected. If
    it exceeds 2, `max_neighbors` is also increased.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.8.

    Examples
    --------
    >>> from nearfar.datasets import make_sensor_network
    >>> positions, edges, distances = make_sensor_network(200, noise=0.1, random_state=0)
    >>> positions.shape, edges.shape == (len(distances), 2)
    ((200, 2), True)
    """
    if shape not in ("square", "country"):
        raise ValueError(f"shape must be 'square' or 'country'; got {shape!r}.")
    if n_sensors < 2 or max_neighbors < 1 or not 0 <= noise < 1:
        raise ValueError(
            f"n_sensors={n_sensors} must be at least 2, max_neighbors={max_neighbors} at least 1 "
            f"and noise={noise} from 0 to below 1."
        )
    random = np.random.default_rng(random_state)
    is_square = shape == "square"
    points = random.uniform(size=(n_sensors, 2)) if is_square else _draw_country(n_sensors, random)
    search_radius = radius or 1.5 * np.sqrt(max_neighbors / (np.pi * n_sensors))
    while True:
        edges = _find_edges(points, search_radius, max_neighbors)
        if radius is not None or _is_connected(edges, n_sensors):
            break
        search_radius *= 1.25
        # The radius is already large, so separate clusters can only be connected with more
        # neighbors per sensor.
        max_neighbors += 0 if search_radius < 2 else 1
    lengths = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
    return points, edges, lengths * random.uniform(1 - noise, 1 + noise, size=len(edges))


def _find_edges(points: Matrix, radius: float, max_neighbors: int) -> NDArray[np.intp]:
    n = len(points)
    k = min(max_neighbors + 1, n)
    distances, indices = cKDTree(points).query(points, k=k, distance_upper_bound=radius)
    sensors = np.repeat(np.arange(n), k)
    neighbors, is_near = indices.ravel(), np.isfinite(distances.ravel())
    sensors, neighbors = (
        sensors[is_near & (sensors != neighbors)],
        neighbors[is_near & (sensors != neighbors)],
    )
    codes = np.unique(np.minimum(sensors, neighbors) * n + np.maximum(sensors, neighbors))
    return np.stack(np.divmod(codes, n), axis=1).astype(np.intp)


def _is_connected(edges: NDArray[np.intp], n: int) -> bool:
    graph = sparse.coo_array((np.ones(len(edges)), tuple(edges.T)), shape=(n, n))
    return csgraph.connected_components(graph, directed=False)[0] == 1


def _draw_country(n: int, random: np.random.Generator) -> Matrix:
    """Return random positions within a coastline. About 60% of them are near 40 towns."""
    towns = _draw_inland(40, random)
    n_near_towns = 3 * n // 5
    return np.concatenate(
        [_draw_inland(n - n_near_towns, random), _draw_inland(n_near_towns, random, towns)]
    )


def _draw_inland(n: int, random: np.random.Generator, towns: Matrix | None = None) -> Matrix:
    inland = np.empty((0, 2))
    while len(inland) < n:
        points = random.uniform(-1.0, 1.0, size=(4 * n, 2)) * [1.5, 1.0]
        if towns is not None:
            points = towns[random.integers(len(towns), size=4 * n)]
            points = points + 0.05 * random.normal(size=points.shape)
        inland = np.concatenate([inland, points[_is_land(points)]])
    return inland[:n]


def _is_land(points: Matrix) -> NDArray[np.bool_]:
    x, y = points.T
    angle, distance = np.arctan2(y, x / 1.4), np.hypot(x / 1.4, y)
    coast = 0.8 + 0.1 * np.sin(3 * angle + 0.5) + 0.06 * np.sin(7 * angle)
    is_bay = np.hypot(x - 0.35, (y + 0.75) / 1.3) < 0.33
    return np.asarray((distance < coast) & ~is_bay)
