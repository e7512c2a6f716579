"""SetKNeighborsClassifier: nearest-neighbor classification of sets of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, NeighborsClassifier
from nearfar.distributions.dissimilarities import METRICS, dissimilarity
from nearfar.distributions.objects import SHARED_PARAMETERS, DistributionEstimator
from nearfar.parameters import integer, one_of
from nearfar.solvers.kernel_repair import check_dissimilarities


class SetKNeighborsClassifier(NeighborsClassifier, DistributionEstimator):
    r"""Nearest-neighbor classifier for sets of vectors, which are compared by their Gaussians.

    Each set is described by the Gaussian :math:`\mathcal G_i = N(\mu_i, \Sigma_i + \gamma I)` of
    its vectors. The k training sets with the smallest :math:`d(\mathcal G, \mathcal G_i)` vote,
    where d is one of :func:`~nearfar.distributions.dissimilarity` and need not be a metric. If
    classes are tied, k is reduced, as in :class:`KNNClassifier`.

    Use it first for labeled sets of vectors: without an embedding, no information of d is lost.
    For other classifiers, see :class:`SetEmbedding`.

    Cost: :math:`O(\sum_i t_i p^2)` for the fit with n sets of :math:`t_i` vectors. Each new set
    needs n dissimilarities, of :math:`O(p^3)` each for the default.

    Parameters
    ----------
    n_neighbors : int, default=3
        Number of neighbors that vote.
    metric : str, default="bhattacharyya_riemann"
        Dissimilarity d: any of :func:`~nearfar.distributions.dissimilarity`, or "precomputed". See
        Notes.
    ridge : float or "auto", default="auto"
        Value added to the variances: :math:`\gamma`, in squared units of the vectors. See
        :meth:`nearfar.Gaussians.from_sets`. [1]_ uses 1.
    shrinkage : float, "ledoit_wolf", "oas" or None, default=None
        Shrinkage of the covariances. See :meth:`nearfar.Gaussians.from_sets`.
    standardize : bool, default=False
        Divide each feature by its standard deviation first. The standard deviation is computed over
        all training vectors. The ridge is added after the division.
    ties : {"shrink", "first"}, default="shrink"
        How ties between classes are broken: "shrink" repeats the vote with k-1, k-2, … neighbors
        until one class leads, "first" takes the smallest label, as scikit-learn does.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores. The threads compute the
        dissimilarities.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted class labels.
    gaussians_ : Gaussians
        Gaussians of the training sets. Not available for ``metric="precomputed"``.

    See Also
    --------
    SetEmbedding, SetSpectralClustering, KNNClassifier

    Notes
    -----
    The metric "kl" is the divergence from a new set to a training set. With "precomputed", X
    contains dissimilarities of any type, symmetric or not, such as those of
    :func:`~nearfar.distributions.emd_distances`: between all training sets in ``fit``, and from
    new sets (rows) to training sets (columns) in ``predict``.

    References
    ----------
    .. [1] K. T. Abou-Moustafa, F. P. Ferrie, "A Framework for Hypothesis Learning Over Sets of
       Vectors", MLG 2011, section 5.2 (there after an embedding).

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import SetKNeighborsClassifier, Sets
    >>> random = np.random.default_rng(0)
    >>> y = np.array(["wide", "tall"] * 30)
    >>> spread = {"wide": [3.0, 1.0], "tall": [1.0, 3.0]}
    >>> sets = Sets.from_list([random.normal(size=(30, 2)) * spread[label] for label in y])
    >>> knn = SetKNeighborsClassifier().fit(sets[:40], y[:40])
    >>> knn.predict(sets[40:43]).tolist(), knn.score(sets[40:], y[40:])
    (['wide', 'tall', 'wide'], 1.0)
    """

    learner_tags = LearnerTags(reads="instances", role="classifier", input="sets")
    parameters: ClassVar = {
        "n_neighbors": [integer(1)],
        "ties": [one_of("shrink", "first")],
        **SHARED_PARAMETERS,
        "metric": [one_of(*METRICS, "precomputed")],
    }

    noun = "set"

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        metric: str = "bhattacharyya_riemann",
        ridge: float | Literal["auto"] = "auto",
        shrinkage: float | Literal["ledoit_wolf", "oas"] | None = None,
        standardize: bool = False,
        ties: Literal["shrink", "first"] = "shrink",
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.standardize = standardize
        self.ties = ties
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Compute and store the Gaussians of the training sets.

        Parameters
        ----------
        X : Sets, list of arrays (t_i, p), array of shape (n, t, p), or Gaussians
            The training sets, or the square matrix of their dissimilarities if
            ``metric="precomputed"``.
        y : array-like of shape (n_sets,)
            Labels of the sets.

        Returns
        -------
        SetKNeighborsClassifier
            The fitted estimator.
        """
        self._check_parameters()
        if self.metric == "precomputed":
            check_dissimilarities(self._fit_precomputed(X, min_objects=1), "X", square=True)
        else:
            self._fit_objects(X, min_objects=1)
        classes, self._codes = self._check_labels(y, self._n_objects, min_classes=1)
        self._check_neighbors(self._n_objects)
        self.classes_ = classes
        return self

    def _distance_blocks(self, X: Any) -> tuple[int, Iterator[tuple[slice, Matrix]]]:
        if X is not None:
            new = self._check_new_objects(X)
            return len(new.equal_to), self._iterate_pair_blocks(new)
        if self.metric == "precomputed":
            raise ValueError(
                "leave_one_out_error needs the dissimilarities between training sets, which are "
                'not stored with metric="precomputed". Use cross_val_score with '
                "cv=LeaveOneOut()."
            )
        D = dissimilarity(self.gaussians_, metric=self.metric, n_jobs=self.n_jobs)
        return len(D), iter([(slice(None), D)])
