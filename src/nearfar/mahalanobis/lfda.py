"""Local Fisher discriminant analysis."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from nearfar.arrays import Indices, Matrix
from nearfar.base import LearnerTags, LinearLearner
from nearfar.blocks import compute_squared_distances, split_rows
from nearfar.parameters import integer, none, one_of
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.eigen import canonical_rows, descending_eigh, fix_signs
from nearfar.state import State, floats
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import find_mixed_whitener, find_total_range, get_rank_tolerance

# Maximum of the inverse scale 1/σ of a point, multiplied by the radius of its class. Without this
# limit, 1/σ would be infinite for a point that equals all of its neighbors.
_MAX_STEEPNESS = 1e20
# Maximum number of entries per block, so that a block fits into the processor cache.
_BLOCK = 2**18


class LFDA(LinearLearner):
    r"""Local Fisher discriminant analysis: discriminant analysis for classes with several clusters.

    Unlike LDA, points of one class that are far from each other need not be mapped close together.
    Two points of one class have the affinity
    :math:`A_{ij} = \exp(-\|x_i-x_j\|^2 / (\sigma_i \sigma_j))`, where :math:`\sigma_i` is the
    distance of :math:`x_i` to its ``n_neighbors``-th neighbor in its class. The local scatter
    matrices are

    .. math::
        S_w = \tfrac12 \sum_{i,j} W^w_{ij} (x_i-x_j)(x_i-x_j)^T, \qquad
        W^w_{ij} = A_{ij} / n_c \text{ in a class, else } 0 ,

        S_b = \tfrac12 \sum_{i,j} W^b_{ij} (x_i-x_j)(x_i-x_j)^T, \qquad
        W^b_{ij} = A_{ij} (1/n - 1/n_c) \text{ in a class, else } 1/n ,

    and the rows of the map are leading eigenvectors of :math:`S_b v = \lambda S_w v`. With
    :math:`A = 1` this is :class:`LDA`.

    Use it if a class has several clusters, which LDA would merge, or if you need more than
    ``n_classes - 1`` directions. The affinity uses the Euclidean distance, so scale the features to
    comparable units first.

    Cost: :math:`O(p \sum_c n_c^2 + p^3)`, done in blocks within each class.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. None keeps all dimensions.
    n_neighbors : int, default=7
        Number of neighbors per row. The scale :math:`\sigma_i` of row i is the distance to its
        ``n_neighbors``-th nearest row of the same class, or to the farthest row if the class is
        smaller.
    embedding : {"weighted", "orthonormalized", "plain"}, default="weighted"
        Scale of the rows of ``components_``. "plain" whitens :math:`S_w / n`. "weighted" multiplies
        each row of "plain" by :math:`\sqrt\lambda`, so that directions with better separation count
        more. "orthonormalized" makes the rows orthonormal. For every k, its first k rows span the
        same subspace as the first k rows of "plain".

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The linear map.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    eigenvalues_ : ndarray of shape (n_components,)
        The eigenvalues :math:`\lambda`, largest first.
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    Notes
    -----
    If :math:`S_w` is singular in a direction in which the data vary, 0.1% of the total scatter is
    mixed in, as in LDA. With all directions, ``embedding="orthonormalized"`` is the Euclidean
    distance.

    See Also
    --------
    LDA, LMNN, MODA, RCA

    References
    ----------
    .. [1] M. Sugiyama, "Dimensionality Reduction of Multimodal Labeled Data by Local Fisher
       Discriminant Analysis", Journal of Machine Learning Research 8, 2007, section 3.

    Examples
    --------
    One class has two clusters with the other class between them, so LDA finds equal class means.

    >>> import numpy as np
    >>> from nearfar import LDA, LFDA, KNNClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 0], 50)
    >>> X = rng.normal(size=(150, 2)) * [5, 1] + np.repeat([[0, -6], [0, 0], [0, 6]], 50, axis=0)
    >>> for learner in (LDA(1), LFDA(1)):
    ...     print(bool(KNNClassifier(learner).fit(X, y).leave_one_out_error() < 0.05))
    False
    True
    """

    learner_tags = LearnerTags(reads="supervision")
    settings = ({"embedding": "plain"}, {"embedding": "orthonormalized"})
    state = State({"eigenvalues_": floats("q")})
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "n_neighbors": [integer(1)],
        "embedding": [one_of("weighted", "orthonormalized", "plain")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 7,
        embedding: Literal["weighted", "orthonormalized", "plain"] = "weighted",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.embedding = embedding

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the map from labeled points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        LFDA
            The fitted estimator.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        classes, codes = self._check_labels(y, len(rows))
        statistics = ClassStatistics(pooled=True, exact=True).add(rows, classes, codes)
        # An orthonormal basis preserves distances. It has few coordinates if X has fewer rows than
        # features.
        B, image = find_total_range(statistics, standardize=False)
        mean = statistics.mean
        points = np.ascontiguousarray(rows, dtype=np.float64) - mean
        if image is not statistics:
            points = points @ B
        within, between = compute_local_scatters(points, codes, self.n_neighbors)
        total = image.total_scatter() / len(rows)
        _, T = find_mixed_whitener(
            within / len(rows), lambda: total, get_rank_tolerance(statistics)
        )
        rank = T.shape[1]
        if self.n_components is not None and self.n_components > rank:
            raise ValueError(
                f"n_components={self.n_components} is more than the {rank} directions in which X "
                "varies."
            )
        values, axes = descending_eigh(T.T @ between @ T / len(rows), self.n_components)
        self.eigenvalues_ = np.maximum(values, 0.0)
        if self.embedding == "orthonormalized" and rank < len(T):
            # With collinear features, directions in which X is constant must not add to the row
            # lengths.
            Q, _ = linalg.qr(total @ T, mode="economic")
            T = Q @ (Q.T @ T)
        components = canonical_rows(values, (B @ (T @ axes)).T)
        self.components_ = self._scale_rows(components).astype(rows.dtype)
        self.mean_ = mean.astype(rows.dtype)
        self.classes_ = classes
        return self

    def _scale_rows(self, components: Matrix) -> Matrix:
        if self.embedding == "plain":
            return components
        if self.embedding == "weighted":
            return np.sqrt(self.eigenvalues_)[:, None] * components
        # Normalize first, so that rounding errors do not depend on the units of the features.
        units = components / np.linalg.norm(components, axis=1, keepdims=True)
        return fix_signs(linalg.qr(units.T, mode="economic")[0].T)


def compute_local_scatters(
    points: Matrix, codes: Indices, n_neighbors: int
) -> tuple[Matrix, Matrix]:
    """Return the local scatter matrices S_w and S_b.

    Let G be the scatter of a class weighted by affinities and S its unweighted scatter. The pairs
    within a class contribute G/n_c to S_w and (1/n - 1/n_c) G to S_b. The pairs between classes
    contribute the total scatter minus (n_c/n) S for each class.

    >>> import numpy as np
    >>> compute_local_scatters(np.array([[0.0], [1.0], [5.0]]), np.array([0, 0, 1]), 7)[1].round(3)
    array([[13.605]])
    """
    n, p = points.shape
    points = points - points.mean(axis=0)
    within, between = np.zeros((p, p)), points.T @ points
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(codes))[:-1]):
        class_points = points[rows] - points[rows].mean(axis=0)
        size = len(class_points)
        if size > 1:
            class_scatter = _compute_class_scatter(class_points, min(n_neighbors, size - 1))
            within += class_scatter / size
            between += (1 / n - 1 / size) * class_scatter - (size / n) * (
                class_points.T @ class_points
            )
    return within, between


def _compute_class_scatter(points: Matrix, n_neighbors: int) -> Matrix:
    """Return the scatter of a class, weighted by the affinities A.

    It is half the sum over pairs of A_ij (x_i - x_j)(x_i - x_j)', that is X'(diag(A1) - A)X.
    """
    n, p = points.shape
    squares = np.einsum("ij,ij->i", points, points)
    scales = kneighbors(points, n_neighbors=n_neighbors)[0][:, -1]
    # A point that equals all of its neighbors has no affinity to other points.
    max_steepness = _MAX_STEEPNESS / np.sqrt(max(squares.max(), np.finfo(float).tiny))
    steepness = 1 / np.maximum(scales, 1 / max_steepness)
    sums, product = np.zeros(n), np.zeros((p, p))
    for block in split_rows(n, 24 * n, max_rows=max(16, _BLOCK // n)):
        # A is symmetric, so each pair is computed once.
        from_block, after_block = slice(block.start, None), slice(block.stop, None)
        A = compute_squared_distances(points[block], points[from_block], squares[from_block])
        A *= -steepness[block, None]
        A *= steepness[from_block]
        np.exp(A, out=A)
        A_block, A_after = np.split(A, [block.stop - block.start], axis=1)
        sums[block] += A.sum(axis=1)
        sums[after_block] += A_after.sum(axis=0)
        crossed = points[block].T @ (A_after @ points[after_block])
        product += points[block].T @ (A_block @ points[block]) + crossed + crossed.T
    return points.T @ (sums[:, None] * points) - product
