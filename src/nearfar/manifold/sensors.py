"""Localization of sensors from noisy distances between close pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from nearfar.arrays import Matrix
from nearfar.extras import import_optional
from nearfar.manifold.basis_unfolding import compute_root, unfold_in_basis
from nearfar.parameters import check_parameter, integer, none, one_of, real
from nearfar.solvers.stress_descent import StressDescent, descend_stress
from nearfar.solvers.unfolding import Edges, Problem, laplacian_basis, rotate_to_axes

# The default price of slack, ω / (1 - ω), is this constant divided by λ_2, the second smallest
# eigenvalue of the graph Laplacian. The constant is lower than in VariationalMVU, to allow more
# slack. More slack stretches the starting positions, so that they are not folded. The last stage
# fits the lengths anyway.
_AUTOMATIC_PRICE = 5.0


class SensorPlaces(NamedTuple):
    """Result of :func:`sensor_localization`: the positions of sensors.

    Attributes
    ----------
    positions : ndarray of shape (n_sensors, n_components)
        Positions of the sensors, in the frame of the anchors. Without anchors, the positions are
        centered and rotated to principal axes.
    start : ndarray of shape (n_sensors, n_components)
        Positions after the semidefinite program alone, in the same frame.
    stress : float
        Root mean square of :math:`\\|y_i - y_j\\|^2 - d_{ij}^2`, relative to the mean
        :math:`d_{ij}^2`.
    n_iter : int
        Number of descent steps.
    """

    positions: Matrix
    start: Matrix
    stress: float
    n_iter: int


def sensor_localization(
    edges: ArrayLike,
    distances: ArrayLike,
    n_components: int = 2,
    *,
    n_sensors: int | None = None,
    anchors: Mapping[int, ArrayLike] | None = None,
    n_basis: int = 10,
    slack_penalty: float | Literal["auto"] = "auto",
    max_iter: int = 300,
) -> SensorPlaces:
    r"""Find the positions of sensors from the distances between some of them.

    Let the columns of Q be the ``n_basis`` smoothest functions on the graph of measured pairs, and
    :math:`Y = Q Z^{1/2}` the positions. There are three stages:

    1. :math:`\max_{Z \succeq 0} \mathrm{tr} Z - \frac{\omega}{1 - \omega} \sum_{ij} (\|y_i -
       y_j\|^2 - d_{ij}^2)^2`, a small semidefinite program;
    2. descent on the same objective in Y, in ``n_basis`` dimensions;
    3. descent in ``n_components`` on the stress
       :math:`\sum_{ij} (\|y_i - y_j\|^2 - d_{ij}^2)^2` alone.

    The reward for variance unfolds configurations that the stress alone leaves folded. Exact
    distances on a rigid graph give exact positions; errors of noisy distances average out. The
    positions are unique up to rotation, reflection and shift, unless anchors fix these.

    Use it for sensor networks, and for maps from local distances of any kind. It fails if the graph
    is not rigid (a part attached to only two sensors may flip). It also fails if distances measured
    around a hole are too long, or so numerous that they dominate. ``stress`` then stays large.

    Cost: a sparse factorization of the graph, and O(E m) per step for E edges, m = ``n_basis``.

    Parameters
    ----------
    edges : array-like of int, shape (n_edges, 2)
        Pairs of sensors with a measured distance. If a pair is repeated, the shorter distance is
        used.
    distances : array-like of shape (n_edges,)
        Distances of the pairs. They must be positive and not squared.
    n_components : int, default=2
        Dimension of the positions.
    n_sensors : int, optional
        Number of sensors. The default is the largest index in ``edges`` plus one.
    anchors : dict, optional
        Known positions, as a dict from sensor index to position. The solution is rotated, reflected
        and shifted to match the anchors. Then the anchors stay fixed while the other sensors move.
        ``n_components`` + 1 anchors in general position determine the frame.
    n_basis : int, default=10
        Number m of basis functions, at least ``n_components``.
    slack_penalty : float or "auto", default="auto"
        Weight ω of the slack, between 0 and 1, for squared distances of mean 1. "auto" uses
        :math:`\omega / (1 - \omega) = 5 / \lambda_2`, where :math:`\lambda_2` is the second
        smallest eigenvalue of the graph Laplacian. Values close to 1 barely unfold the network.
    max_iter : int, default=300
        Maximum number of steps of each descent.

    Returns
    -------
    SensorPlaces
        Named tuple with ``positions``, ``start``, ``stress`` and ``n_iter``.

    Raises
    ------
    ValueError
        If the edges do not connect all sensors, or contain an index that is out of range.

    See Also
    --------
    plot_sensors : Draw the result.
    nearfar.datasets.make_sensor_network : Generate a random network.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.8.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.datasets import make_sensor_network
    >>> from nearfar.evaluation import procrustes_error
    >>> from nearfar.manifold import sensor_localization
    >>> true, edges, distances = make_sensor_network(300, noise=0.1, random_state=0)
    >>> result = sensor_localization(edges, distances)
    >>> bool(procrustes_error(true, result.positions) < 0.05)
    True
    """
    graph, unit = _check_graph(edges, distances, n_sensors)
    n = graph.n_points
    name = "sensor_localization"
    check_parameter(name, "n_components", n_components, [integer(1, n - 1)])
    check_parameter(name, "n_basis", n_basis, [integer(n_components)])
    check_parameter(
        name, "slack_penalty", slack_penalty, [one_of("auto"), real(0, 1 - 1e-12, open_low=True)]
    )
    check_parameter(name, "max_iter", max_iter, [integer(1)])
    is_anchor, anchor_positions = _check_anchors(anchors, n, n_components)
    values, basis = laplacian_basis(graph, min(n_basis, n - 1))
    price = (
        _AUTOMATIC_PRICE / float(values[0])
        if slack_penalty == "auto"
        else float(slack_penalty) / (1 - float(slack_penalty))
    )
    problem = Problem(graph, "squared", price=price)
    factor = basis @ compute_root(unfold_in_basis(problem, basis).Z)
    start = _take_leading_axes(graph, factor, n_components)
    wide_descent = _descend(graph, factor, price=price, max_iter=max_iter)
    flattened = _take_leading_axes(graph, wide_descent.factor, n_components)
    final_descent = _descend(graph, flattened, price=1.0, reward=0.0, max_iter=max_iter, tol=1e-12)
    positions, n_iter = (
        _take_leading_axes(graph, final_descent.factor, n_components),
        wide_descent.n_iter + final_descent.n_iter,
    )
    length_unit = np.sqrt(unit)
    if is_anchor.any():
        positions = _align_to_targets(positions, is_anchor, anchor_positions / length_unit)
        start = _align_to_targets(start, is_anchor, anchor_positions / length_unit)
        positions[is_anchor] = anchor_positions / length_unit
        final_descent = _descend(
            graph, positions, price=1.0, reward=0.0, fixed=is_anchor, max_iter=max_iter, tol=1e-12
        )
        positions, n_iter = final_descent.factor, n_iter + final_descent.n_iter
    slack = graph.squared_lengths(positions) - graph.squared
    return SensorPlaces(
        positions * length_unit, start * length_unit, float(np.sqrt(np.mean(slack**2))), n_iter
    )


def plot_sensors(
    places: SensorPlaces | ArrayLike,
    true: ArrayLike | None = None,
    *,
    edges: ArrayLike | None = None,
    anchors: Mapping[int, ArrayLike] | None = None,
    ax: Any = None,
) -> Any:
    """Plot sensors in the plane, with lines to their true positions.

    Parameters
    ----------
    places : SensorPlaces or array-like of shape (n_sensors, 2)
        Estimated positions.
    true : array-like of shape (n_sensors, 2), optional
        True positions. Without anchors, ``places`` are rotated, reflected and shifted to match the
        true positions.
    edges : array-like of int, shape (n_edges, 2), optional
        Pairs of sensors with a measured distance. They are drawn as thin gray lines.
    anchors : dict, optional
        Known positions by sensor index, as in :func:`sensor_localization`. They are drawn as
        squares.
    ax : matplotlib axes, optional
        Axes to draw on. The default is a new figure.

    Returns
    -------
    matplotlib axes
        The axes. Requires matplotlib: ``pip install 'nearfar[plot]'``.

    Examples
    --------
    >>> from nearfar.datasets import make_sensor_network
    >>> from nearfar.manifold import plot_sensors, sensor_localization
    >>> true, edges, distances = make_sensor_network(100, radius=0.3, random_state=0)
    >>> result = sensor_localization(edges, distances)
    >>> ax = plot_sensors(result, true, edges=edges)  # doctest: +SKIP
    """
    positions = np.asarray(getattr(places, "positions", places), dtype=np.float64)
    if positions.ndim != 2 or positions.shape[1] != 2:
        raise ValueError(f"places must have shape (n_sensors, 2). Got shape {positions.shape}.")
    collections = import_optional("matplotlib.collections", "plot")
    if ax is None:
        figure = import_optional("matplotlib.figure", "plot").Figure(
            figsize=(6, 6), layout="constrained"
        )
        ax = figure.add_subplot()
    if true is not None:
        target = np.asarray(true, dtype=np.float64)
        if target.shape != positions.shape:
            raise ValueError(
                "`true` and `places` must have the same shape. Got "
                f"{target.shape} and {positions.shape}."
            )
        if not anchors:
            positions = _align_to_targets(positions, np.ones(len(positions), dtype=bool), target)
    if edges is not None:
        pairs = np.asarray(edges, dtype=np.intp)
        lines = collections.LineCollection(positions[pairs], colors="0.8", linewidths=0.4, zorder=0)
        ax.add_collection(lines)
    if true is not None:
        errors = np.stack([target, positions], axis=1)
        ax.add_collection(
            collections.LineCollection(errors, colors="tab:red", linewidths=0.8, zorder=1)
        )
        ax.scatter(
            *target.T, s=6, facecolors="none", edgecolors="0.4", linewidths=0.5, label="true"
        )
    ax.scatter(*positions.T, s=4, color="tab:blue", label="found")
    if anchors:
        anchor_positions = positions[np.array(list(anchors), dtype=np.intp)]
        ax.scatter(
            *anchor_positions.T,
            s=36,
            marker="s",
            facecolors="none",
            edgecolors="black",
            label="anchors",
        )
    ax.set_aspect("equal")
    ax.legend(loc="upper right", fontsize="small")
    return ax


def _descend(graph: Edges, positions: Matrix, **options: Any) -> StressDescent:
    """Run the descent. After Ctrl-C, raise KeyboardInterrupt, because no result can be stored."""
    descent = descend_stress(graph, positions, **options)
    if descent.interrupt is not None:
        raise descent.interrupt
    return descent


def _check_graph(
    edges: ArrayLike, distances: ArrayLike, n_sensors: int | None
) -> tuple[Edges, float]:
    """Return the edges, scaled to a mean squared length of 1, and the mean before scaling."""
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu" or not len(pairs):
        raise ValueError(
            f"edges must be an integer array of shape (n_edges, 2). Got shape {pairs.shape} and "
            f"dtype {pairs.dtype}."
        )
    lengths = np.asarray(distances, dtype=np.float64)
    if lengths.shape != (len(pairs),):
        raise ValueError(
            f"distances must have shape ({len(pairs)},), one per edge. Got shape {lengths.shape}."
        )
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ValueError("distances must be finite and positive.")
    check_parameter("sensor_localization", "n_sensors", n_sensors, [none, integer(2)])
    n = int(pairs.max()) + 1 if n_sensors is None else n_sensors
    if pairs.min() < 0 or pairs.max() >= n:
        raise ValueError(
            f"edges must contain indices from 0 to {n - 1}. Got {pairs.min()} to {pairs.max()}."
        )
    size = float(lengths.max())
    graph = Edges.from_pairs(pairs, (lengths / size) ** 2, n)
    if not len(graph):
        raise ValueError(
            "edges must join different sensors, but every edge joins a sensor to itself."
        )
    count, labels = graph.components()
    if count > 1:
        sizes = np.sort(np.bincount(labels))[::-1]
        raise ValueError(
            f"edges do not connect the sensors: there are {count} components, with {sizes[0]} "
            f"sensors in the largest and {sizes[-1]} in the smallest. Relative positions of "
            "components cannot be determined. Remove the smaller components, or add edges."
        )
    mean = float(graph.squared.mean())
    return graph.scaled(1 / mean), mean * size**2


def _check_anchors(
    anchors: Mapping[int, ArrayLike] | None, n: int, r: int
) -> tuple[NDArray[np.bool_], Matrix]:
    """Return a mask of the anchors, and their positions in the order of the sensors."""
    is_anchor = np.zeros(n, dtype=bool)
    if anchors is None or (isinstance(anchors, Mapping) and not anchors):
        return is_anchor, np.empty((0, r))
    if not isinstance(anchors, Mapping):
        raise ValueError(
            f"anchors must be a dict from sensor index to position. Got {type(anchors).__name__}."
        )
    if not all(isinstance(i, int | np.integer) and 0 <= i < n for i in anchors):
        raise ValueError(f"anchors must have keys from 0 to {n - 1}. Got {list(anchors)}.")
    indices = sorted(anchors)
    positions = [np.asarray(anchors[i], dtype=np.float64).reshape(-1) for i in indices]
    if not all(len(position) == r and np.isfinite(position).all() for position in positions):
        raise ValueError(f"Each position in anchors must consist of {r} finite numbers.")
    anchor_positions = np.array(positions)
    is_anchor[np.array(indices, dtype=np.intp)] = True
    return is_anchor, anchor_positions


def _take_leading_axes(graph: Edges, Y: Matrix, count: int) -> Matrix:
    _, axes = rotate_to_axes(graph, Y)
    axes = axes[:, :count]
    return np.pad(axes, ((0, 0), (0, count - axes.shape[1])))


def _align_to_targets(positions: Matrix, mask: NDArray[np.bool_], target: Matrix) -> Matrix:
    """Rotate, reflect and shift all positions so that those in ``mask`` best match ``target``."""

    selected = positions[mask]
    left_vectors, _, right_vectors = linalg.svd(
        (selected - selected.mean(axis=0)).T @ (target - target.mean(axis=0))
    )
    return np.asarray(
        (positions - selected.mean(axis=0)) @ (left_vectors @ right_vectors) + target.mean(axis=0)
    )
