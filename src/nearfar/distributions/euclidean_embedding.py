"""EuclideanEmbedding: classical scaling of dissimilarities between distributions."""

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
    double_center,
    first_solution,
    is_positive,
    leading_spectrum,
    smallest_eigenvalue,
    warn_about_zero_coordinates,
)
from nearfar.state import State, floats, number

# Negative eigenvalues up to this fraction of the spectrum can be caused by rounding or by errors in
# the estimate of the spectrum.
_ROUNDING = 1e-8


class EuclideanEmbedding(_DistributionEmbedding):
    r"""Euclidean coordinates of distributions by classical scaling of their dissimilarities.

    The embedding Y solves

    .. math::
        \min_Y \|Y Y^T - K\|_F^2, \qquad K = -\tfrac12 H D^{\circ 2} H, \qquad
        D_{ij} = d(\mathcal G_i, \mathcal G_j) ,

    with :math:`H = I - \frac1n 1 1^T`. The solution is :math:`Y = V \Lambda^{1/2}` with the largest
    eigenvalues of K. d is one of :func:`~nearfar.distributions.dissimilarity`, by default
    :math:`d_{BR}`.

    Use it to represent each Gaussian, set of vectors or point by a vector for other estimators,
    with distances close to those of the distributions. A set is represented by the Gaussian of its
    vectors, a point by the Gaussian of its neighborhood (the "augmented space"), so that both the
    position and the shape of the neighborhood are compared.

    Cost: :math:`n (n-1) / 2` dissimilarities, of :math:`O(p^3)` each for the default, then
    :math:`O(n^3)` for up to 1000 objects, and about twenty products of :math:`O(n^2)` for more.
    Memory: three n×n arrays.

    Parameters
    ----------
    n_components : int, float or "positive", default=2
        Dimension of the output. "positive" keeps all positive eigenvalues. A float up to 1.0 keeps
        the largest eigenvalues that together reach this fraction of the sum of positive
        eigenvalues. In both cases, all eigenvalues are computed.
    metric : str, default="bhattacharyya_riemann"
        Dissimilarity d: any of :func:`~nearfar.distributions.dissimilarity` except "kl" and
        "sqrt_kl", which are not symmetric, or "precomputed" if X contains dissimilarities.
    indefinite : {"clip", "shift", "raise"}, default="clip"
        How to handle negative eigenvalues: drop them ("clip"), shift all eigenvalues ("shift"), or
        raise an error ("raise"). See Notes.
    ridge : float or "auto", default="auto"
        Value added to the variances. It is used for sets and points, in squared units of X. See
        :meth:`nearfar.Gaussians.from_sets`.
    shrinkage : float, "ledoit_wolf", "oas" or None, default=None
        Shrinkage of the covariances. Only used for sets. See :meth:`nearfar.Gaussians.from_sets`.
    standardize : bool, default=False
        Divide each feature by its standard deviation first. The standard deviation is computed over
        all training points, or over the vectors of all training sets.
    n_neighbors : int, default=8
        Number of neighbors per row. Only used if X contains points. At most n_samples - 2, or
        n_samples - 1 with ``gaussian_center="point"``.
    gaussian_center : {"mean", "point"}, default="mean"
        Center of each point's Gaussian: "mean" uses the mean of the neighborhood, and "point" uses
        the point itself.
    match_training_points : bool, default=True
        If True, a new point that is equal to a training point, up to rounding, is treated as that
        training point, so that it is not its own neighbor.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores. The threads compute the
        dissimilarities.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_objects, n_components)
        Coordinates of the training objects.
    eigenvalues_ : ndarray of shape (n_components,)
        Eigenvalues of K, in descending order. Coordinates for eigenvalues that are not positive are
        zero.
    negative_share_ : float
        Fraction :math:`\sum_{\lambda<0} |\lambda| / \sum |\lambda|` of the spectrum of K, before a
        shift. For more than 1000 objects, the fraction is estimated.
    shift_ : float
        Value added to the squared dissimilarities.
    gaussians_ : Gaussians
        Gaussians of the training objects. Not available for ``metric="precomputed"``.

    See Also
    --------
    nearfar.SetEmbedding : The same for sets of vectors only.
    nearfar.distributions.metric_report : Compare dissimilarities with Euclidean distances.

    Notes
    -----
    [1]_ and [2]_ state that these dissimilarities always have an exact Euclidean embedding. This is
    not true: K has negative eigenvalues unless d is "hellinger" or "mean". ``negative_share_`` is
    their fraction of the spectrum. `indefinite` selects how they are handled:

    - "clip" drops them.
    - "shift" adds :math:`-2 \lambda_{min}` to the squared dissimilarities of all pairs of different
      objects. Then no eigenvalue is negative, and clusterings that minimize pairwise costs do not
      change.
    - "raise" raises an error if their fraction is larger than rounding errors.

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

    renamed_values: ClassVar = {"gaussian_center": {"smoothed": "mean", "raw": "point"}}
    renamed: ClassVar = {
        "negative_mass_": "negative_share_",
        "recognize": "match_training_points",
        "form": "gaussian_center",
    }
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
        gaussian_center: Literal["mean", "point"] = "mean",
        match_training_points: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.metric = metric
        self.indefinite = indefinite
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.standardize = standardize
        self.n_neighbors = n_neighbors
        self.gaussian_center = gaussian_center
        self.match_training_points = match_training_points
        self.n_jobs = n_jobs

    def _embed(self, D: Matrix) -> Matrix:
        squared = D**2
        means = squared.mean(axis=0)
        self.shift_ = 0.0
        spectrum = self._compute_spectrum(
            double_center(squared, in_place=self.indefinite != "shift")
        )
        self.negative_share_ = spectrum.negative_share
        if self.indefinite == "raise" and spectrum.negative_share > _ROUNDING:
            raise ValueError(
                f"indefinite='raise': the negative eigenvalues of the centered dissimilarities are "
                f"{spectrum.negative_share:.2%} of the spectrum. Pass 'clip' or 'shift', or "
                "another metric."
            )
        if self.indefinite == "shift" and spectrum.negative_share > 0:
            self.shift_ = -2 * smallest_eigenvalue(double_center(squared))
            squared += self.shift_
            np.fill_diagonal(squared, 0.0)
            means = squared.mean(axis=0)
            spectrum = self._compute_spectrum(double_center(squared, in_place=True))
        values, vectors = self._select_components(spectrum)
        warn_about_zero_coordinates("EuclideanEmbedding", values)
        self.eigenvalues_, self._means = values, means
        self._axes = distance_axes(values, vectors)
        return first_solution(values, vectors)

    def transform(self, X: Any) -> Floats:
        r"""Embed new objects by Nyström's formula with squared dissimilarities.

        .. math::
            e_t(x) = \frac{1}{\sqrt{\lambda_t}} \sum_i v_{it} \tilde K(x, i), \qquad
            \tilde K(x, i) = -\tfrac12 \left( d^2(x, i) - \overline{d^2(\cdot, i)} -
            \overline{d^2(x, \cdot)} + \overline{d^2} \right) .

        For a training object, the result is its row of ``embedding_``. If several training objects
        are equal, the row of the first one is returned. With ``indefinite="shift"``, the shift is
        added to all squared dissimilarities of new objects, except for the dissimilarity of a
        training object to itself.

        Parameters
        ----------
        X : as in ``fit``, or Gaussians
            New objects. With ``metric="precomputed"``, X contains the dissimilarities of new
            objects (rows) to training objects (columns).

        Returns
        -------
        ndarray of shape (n_new, n_components)
            Coordinates of the objects, in the dtype of X.
        """
        return self._transform(X)

    def _embed_new(self, D: Matrix) -> Matrix:
        squared = D**2
        if self.shift_:
            nearest = squared.argmin(axis=1)
            rows = np.arange(len(squared))
            is_training = squared[rows, nearest] == 0
            squared += self.shift_
            squared[rows[is_training], nearest[is_training]] = 0.0
        return np.asarray(-0.5 * (squared @ self._axes - self._means @ self._axes))

    def _compute_spectrum(self, K: Matrix) -> Spectrum:
        n_eigenvalues = len(K)
        if not isinstance(self.n_components, str | float | np.floating):
            n_eigenvalues = min(int(self.n_components), len(K) - 1)
        return leading_spectrum(K, n_eigenvalues)

    def _select_components(self, spectrum: Spectrum) -> tuple[Matrix, Matrix]:
        """Return the eigenvalues and eigenvectors selected by n_components."""
        values, vectors, _ = spectrum
        if isinstance(self.n_components, str | float | np.floating):
            positive = np.where(is_positive(values), values, 0.0)
            fraction = 1.0 if isinstance(self.n_components, str) else float(self.n_components)
            is_reached = np.cumsum(positive) >= (fraction - 1e-12) * positive.sum()
            q = max(
                1, int(np.argmax(is_reached)) + 1 if fraction < 1 else int((positive > 0).sum())
            )
            return values[:q], vectors[:, :q]
        return self._pad_with_zeros(values, vectors)
