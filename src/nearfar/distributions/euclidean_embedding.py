"""Euclidean embedding: classical scaling of dissimilarities between distributions."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from nearfar.arrays import Floats, Matrix
from nearfar.distributions.distribution_embedding import _DistributionEmbedding
from nearfar.distributions.objects import POINT_PARAMETERS, SHARED_PARAMETERS
from nearfar.parameters import integer, one_of, real
from nearfar.solvers.spectral_step import (
    Spectrum,
    distance_axes,
    double_centered,
    first_solution,
    is_positive,
    leading_spectrum,
    smallest_eigenvalue,
    warn_of_empty,
)
from nearfar.state import State, floats, number

# A share of negative eigenvalues up to this may be rounding, or the error of its estimate.
_ROUNDING = 1e-8


class EuclideanEmbedding(_DistributionEmbedding):
    r"""Points in space for distributions: classical scaling of their dissimilarities.

    .. math::
        \min_Y \|Y Y^T - K\|_F^2, \qquad K = -\tfrac12 H D^{\circ 2} H, \qquad
        D_{ij} = d(\mathcal G_i, \mathcal G_j) ,

    with :math:`H = I - \frac1n 1 1^T`, solved by :math:`Y = V \Lambda^{1/2}` with the largest
    eigenvalues of K; d is one of :func:`~nearfar.distributions.dissimilarity`, by default
    :math:`d_{BR}`.

    Use it to give each Gaussian, set of vectors or point a vector that any learner takes, with
    distances near to those of the distributions. Of points the Gaussians are those of their
    neighbourhoods (the augmented space), so that it is the shape of the neighbourhoods that counts
    besides their place.

    The works say that such distances always embed exactly. They do not: K has negative eigenvalues
    unless d is "hellinger" or "mean". These are left out, and ``negative_share_`` says how much
    they weigh.

    Cost: :math:`n (n-1) / 2` dissimilarities, of :math:`O(p^3)` each for the default; then
    :math:`O(n^3)` up to 1000 objects and some twenty products of :math:`O(n^2)` beyond. Memory:
    three n×n arrays.

    Parameters
    ----------
    n_components : int, float or "positive", default=2
        Dimension of the output; "positive" for as many as there are positive eigenvalues, a number
        up to 1.0 for as many as have that share of their sum. (The latter two find all
        eigenvalues.)
    metric : str, default="bhattacharyya_riemann"
        The dissimilarity: "jeffreys", "bhattacharyya", "hellinger", "riemann", "jeffreys_riemann",
        "bhattacharyya_riemann", "mean", "sqrt_jeffreys", "sqrt_bhattacharyya"; or "precomputed", if
        X holds dissimilarities.
    indefinite : {"clip", "shift", "raise"}, default="clip"
        What to do with negative eigenvalues: leave them out; add :math:`-2 \lambda_{min}` to all
        squared dissimilarities of different objects, which makes all eigenvalues positive and
        keeps the clusters of pairwise costs; or raise.
    ridge : float or "auto", default="auto"
        What is added to variances: those of sets or points; see
        :meth:`nearfar.Gaussians.from_sets`.
    shrinkage : float, "ledoit_wolf", "oas" or None, default=None
        What is mixed into covariances: those of sets; see :meth:`nearfar.Gaussians.from_sets`.
    standardize : bool, default=False
        Divide each feature by its standard deviation first: that of sets or points over all
        training vectors.
    n_neighbors : int, default=8
        Neighbours of each row; only if X holds points.
    form : {"smoothed", "raw"}, default="smoothed"
        Of the Gaussians of points: about the mean of the neighbourhood, or about the point.
    recognize : bool, default=True
        Whether new points that equal a training point are taken for it; they are then not their own
        neighbours.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores. They compute dissimilarities.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_objects, n_components)
        The training objects.
    eigenvalues_ : ndarray of shape (n_components,)
        Of K, the largest first. Where one is not positive the coordinate is zero.
    negative_share_ : float
        :math:`\sum_{\lambda<0} |\lambda| / \sum |\lambda|` of K, before a shift. Estimated beyond
        1000 objects.
    shift_ : float
        What was added to squared dissimilarities.
    gaussians_ : Gaussians
        Of the training objects, unless dissimilarities were given.

    See Also
    --------
    nearfar.SetEmbedding : The same for sets of vectors alone.
    nearfar.distributions.metric_report : How far dissimilarities are from distances in space.

    References
    ----------
    .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", PhD thesis, McGill University, 2011,
       sections 5.8 and 5.9 (with squared distances in the extension).
    .. [2] K. T. Abou-Moustafa, F. P. Ferrie, "A Framework for Hypothesis Learning Over Sets of
       Vectors", MLG 2011, sections 2 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import EuclideanEmbedding, Gaussians
    >>> gaussians = Gaussians([[0.0], [2.0], [5.0]], [[[1.0]], [[4.0]], [[1.0]]])
    >>> embedding = EuclideanEmbedding().fit(gaussians)
    >>> embedding.eigenvalues_.round(5)
    array([12.60833,  1.66211])
    >>> np.abs(embedding.embedding_).round(4)
    array([[2.3541, 0.6144],
           [0.2884, 1.0474],
           [2.6426, 0.433 ]])
    >>> bool(np.allclose(embedding.transform(gaussians), embedding.embedding_))
    True
    """

    renamed: ClassVar = {"negative_mass_": "negative_share_"}
    state = State({"_means": floats("n"), "shift_": number(0), "negative_share_": number()})
    parameters: ClassVar = {
        "n_components": [integer(1), one_of("positive"), real(0, 1, open_low=True)],
        "indefinite": [one_of("clip", "shift", "raise")],
        **SHARED_PARAMETERS,
        **POINT_PARAMETERS,
    }

    def __init__(
        self,
        n_components: int | float | Literal["positive"] = 2,
        *,
        metric: str = "bhattacharyya_riemann",
        indefinite: Literal["clip", "shift", "raise"] = "clip",
        ridge: float | Literal["auto"] = "auto",
        shrinkage: float | Literal["ledoit_wolf", "oas"] | None = None,
        standardize: bool = False,
        n_neighbors: int = 8,
        form: Literal["smoothed", "raw"] = "smoothed",
        recognize: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.metric = metric
        self.indefinite = indefinite
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.standardize = standardize
        self.n_neighbors = n_neighbors
        self.form = form
        self.recognize = recognize
        self.n_jobs = n_jobs

    def _embed(self, D: Matrix) -> Matrix:
        squared = D**2
        means = squared.mean(axis=0)
        self.shift_ = 0.0
        found = self._spectrum(double_centered(squared, in_place=self.indefinite != "shift"))
        self.negative_share_ = found.negative_share
        if self.indefinite == "raise" and found.negative_share > _ROUNDING:
            raise ValueError(
                f"indefinite='raise': the negative eigenvalues of the centred dissimilarities have "
                f"{found.negative_share:.2%} of the spectrum. Take 'clip' or 'shift', or another "
                "metric."
            )
        if self.indefinite == "shift" and found.negative_share > 0:
            self.shift_ = -2 * smallest_eigenvalue(double_centered(squared))
            squared += self.shift_
            np.fill_diagonal(squared, 0.0)
            means = squared.mean(axis=0)
            found = self._spectrum(double_centered(squared, in_place=True))
        values, vectors = self._kept(found)
        warn_of_empty("EuclideanEmbedding", values)
        self.eigenvalues_, self._means = values, means
        self._axes = distance_axes(values, vectors)
        return first_solution(values, vectors)

    def transform(self, X: Any) -> Floats:
        r"""Map new objects by Nyström's formula, with squared dissimilarities,

        .. math::
            e_t(x) = \frac{1}{\sqrt{\lambda_t}} \sum_i v_{it} \tilde K(x, i), \qquad
            \tilde K(x, i) = -\tfrac12 \left( d^2(x, i) - \overline{d^2(\cdot, i)} -
            \overline{d^2(x, \cdot)} + \overline{d^2} \right) .

        Training objects get their own coordinates. After a shift all squared dissimilarities of new
        objects get the same constant, but for that of a training object to itself; of training
        objects that are equal to one another, the first one counts.

        Parameters
        ----------
        X : as in ``fit``, or Gaussians
            New objects; given dissimilarities are theirs (rows) to the training objects.

        Returns
        -------
        ndarray of shape (n_new, n_components)
            In the dtype of X.
        """
        return self._transform(X)

    def _place(self, D: Matrix) -> Matrix:
        squared = D**2
        if self.shift_:
            nearest = squared.argmin(axis=1)
            rows = np.arange(len(squared))
            same = squared[rows, nearest] == 0
            squared += self.shift_
            squared[rows[same], nearest[same]] = 0.0
        return np.asarray(-0.5 * (squared @ self._axes - self._means @ self._axes))

    def _spectrum(self, K: Matrix) -> Spectrum:
        wanted = len(K)
        if not isinstance(self.n_components, str | float | np.floating):
            wanted = min(int(self.n_components), len(K) - 1)
        return leading_spectrum(K, wanted)

    def _kept(self, found: Spectrum) -> tuple[Matrix, Matrix]:
        """Eigenvalues and vectors of as many components as are asked for."""
        values, vectors, _ = found
        if isinstance(self.n_components, str | float | np.floating):
            good = np.where(is_positive(values), values, 0.0)
            share = 1.0 if isinstance(self.n_components, str) else float(self.n_components)
            reached = np.cumsum(good) >= (share - 1e-12) * good.sum()
            q = max(1, int(np.argmax(reached)) + 1 if share < 1 else int((good > 0).sum()))
            return values[:q], vectors[:, :q]
        return self._padded(values, vectors)
