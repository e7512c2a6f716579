"""Nearest-neighbour classification of sets of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, NeighborVoter
from nearfar.distributions.dissimilarities import METRICS, dissimilarity
from nearfar.distributions.objects import SHARED_PARAMETERS, OverDistributions
from nearfar.parameters import integer, one_of
from nearfar.solvers.kernel_repair import checked_dissimilarities


class SetKNeighborsClassifier(NeighborVoter, OverDistributions):
    r"""Majority vote of the k training sets whose Gaussians are nearest.

    Each set becomes the Gaussian :math:`\mathcal G_i = N(\mu_i, \Sigma_i + \gamma I)` of its
    vectors; neighbours are those of least :math:`d(\mathcal G, \mathcal G_i)`, with d one of
    :func:`~nearfar.distributions.dissimilarity`, which need be no metric. Ties between classes
    shrink k, as in :class:`KNNClassifier`.

    Use it as the first thing to try on labelled sets of vectors: nothing is embedded, so nothing
    of d is lost. For other classifiers see :class:`SetEmbedding`.

    Cost: :math:`O(\sum_i t_i p^2)` to fit; then n dissimilarities of :math:`O(p^3)` for the
    default for each new set.

    Parameters
    ----------
    n_neighbors : int, default=3
        How many sets vote.
    metric : str, default="bhattacharyya_riemann"
        The dissimilarity: any of :func:`~nearfar.distributions.dissimilarity`; "kl" is that from a
        new set to a training set. "precomputed" takes dissimilarities of any kind, symmetric or
        not, those of :func:`~nearfar.distributions.emd_distances` for one: all training sets with
        one another in ``fit``, then new sets (rows) with training sets.
    ridge : float or "auto", default="auto"
        What is added to variances: :math:`\gamma`, in squared units of the vectors; see
        :meth:`nearfar.Gaussians.from_sets`. The works take 1.
    shrinkage : float, "ledoit_wolf", "oas" or None, default=None
        What is mixed into covariances: those of sets; see :meth:`nearfar.Gaussians.from_sets`.
    standardize : bool, default=False
        Divide each feature by its standard deviation first: that over all training vectors, before
        the ridge.
    ties : {"shrink", "first"}, default="shrink"
        "first" lets the smallest label win; scikit-learn's classifier does so.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores. They compute dissimilarities.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    gaussians_ : Gaussians
        Of the training sets, unless dissimilarities were given.

    See Also
    --------
    SetEmbedding, SetSpectralClustering, KNNClassifier

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

    called = "set"

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
        """Keep the Gaussians of the training sets.

        Parameters
        ----------
        X : Sets, list of arrays (t_i, p), array of shape (n, t, p), or Gaussians
            The sets; or the square matrix of their dissimilarities, if ``metric="precomputed"``.
        y : array-like of shape (n_sets,)
            Their labels.

        Returns
        -------
        SetKNeighborsClassifier
            Itself.
        """
        if self.metric == "precomputed":
            checked_dissimilarities(self._fit_given(X, min_objects=1), "X", square=True)
        else:
            self._fit_objects(X, min_objects=1)
        classes, self._codes = self._check_labels(y, self._n_objects, min_classes=1)
        self._check_neighbors(self._n_objects)
        self.classes_ = classes
        return self

    def _distance_blocks(self, X: Any) -> tuple[int, Iterator[tuple[slice, Matrix]]]:
        if X is not None:
            new = self._new_objects(X)
            return len(new.same), self._pair_blocks(new)
        if self.metric == "precomputed":
            raise ValueError(
                "leave_one_out_error needs the training sets, and given dissimilarities are not "
                "kept. Use cross_val_score with cv=LeaveOneOut()."
            )
        D = dissimilarity(self.gaussians_, metric=self.metric, n_jobs=self.n_jobs)
        return len(D), iter([(slice(None), D)])
