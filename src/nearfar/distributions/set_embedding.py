"""SetEmbedding: one output vector per set of vectors."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base import Embedding, LearnerTags
from nearfar.distributions.euclidean_embedding import EuclideanEmbedding
from nearfar.distributions.laplacian_embedding import WIDTH_PARAMETERS, LaplacianEmbedding
from nearfar.distributions.objects import SHARED_PARAMETERS, SYMMETRIC, disable_table_checks
from nearfar.parameters import integer, one_of, real
from nearfar.state import State, object_of
from nearfar.summaries.gaussians import Gaussians
from nearfar.summaries.sets import as_sets


class SetEmbedding(Embedding):
    r"""Embedding of sets of vectors: one output vector per set.

    Set i is described by the Gaussian :math:`\mathcal G_i = N(\mu_i, \Sigma_i + \gamma I)` of its
    vectors. From the dissimilarities :math:`D_{ij} = d(\mathcal G_i, \mathcal G_j)` of all pairs,
    the embedding Y is computed by

    .. math:: \min_Y \|Y Y^T + \tfrac12 H D^{\circ 2} H\|_F^2

    (:class:`EuclideanEmbedding`), or from the leading eigenvectors of a kernel of D
    (:class:`LaplacianEmbedding`). New sets are embedded by Nyström's formula, without a new fit.

    Use it in a Pipeline before a classifier, for objects that are each described by a different
    number of vectors, such as utterances, clips, patients or documents. A Gaussian describes
    neither the order of the vectors nor more than one mode of their distribution. For
    classification, :class:`SetKNeighborsClassifier` needs no embedding. More than ten components
    rarely reduce the accuracy.

    Cost: :math:`O(\sum_i t_i p^2)` for the Gaussians of n sets with :math:`t_i` vectors,
    :math:`O(n^2 p^3)` for their dissimilarities, and :math:`O(n p^3)` per new set.

    Parameters
    ----------
    n_components : int, default=10
        Dimension of the output. With ``embedding="euclidean"``, "positive" and fractions are also
        allowed, as in :class:`EuclideanEmbedding`.
    embedding : {"euclidean", "laplacian"}, default="euclidean"
        "euclidean" uses :class:`EuclideanEmbedding`, and "laplacian" uses
        :class:`LaplacianEmbedding`.
    metric : str, default="bhattacharyya_riemann"
        Dissimilarity d: any value that :class:`EuclideanEmbedding` accepts, except "precomputed".
    indefinite : {"clip", "shift", "raise"}, default="clip"
        How to handle negative eigenvalues: drop them ("clip"), shift all eigenvalues ("shift"), or
        raise an error ("raise"). Only used for "euclidean". See :class:`EuclideanEmbedding`.
    width : float or None, default=None
        Width of the kernel. None uses a quantile of the dissimilarities. Only used for "laplacian".
    quantile : float from 0 to 1, default=0.5
        Quantile of the dissimilarities that is used as the width if ``width=None``.
    ridge : float or "auto", default="auto"
        Value added to the variances: :math:`\gamma`, in squared units of the vectors. See
        :meth:`nearfar.Gaussians.from_sets`. The references use 1.
    shrinkage : float, "ledoit_wolf", "oas" or None, default=None
        Shrinkage of the covariances. See :meth:`nearfar.Gaussians.from_sets`.
    standardize : bool, default=False
        Divide each feature by its standard deviation first. The standard deviation is computed over
        all training vectors. The ridge is added after the division.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores. The threads compute the
        dissimilarities.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_sets, n_components)
        Coordinates of the training sets.
    eigenvalues_ : ndarray of shape (n_components,)
        Eigenvalues of the embedding, in descending order.
    negative_share_ : float
        Fraction of the spectrum in negative eigenvalues, which Euclidean coordinates cannot
        represent. Only available for ``embedding="euclidean"``.
    gaussians_ : Gaussians
        Gaussians of the training sets. ``metric_report(dissimilarity(gaussians_))`` describes how
        far their dissimilarities are from Euclidean distances.
    embedder_ : EuclideanEmbedding or LaplacianEmbedding
        The fitted embedding.

    See Also
    --------
    EuclideanEmbedding, LaplacianEmbedding, SetKNeighborsClassifier, BagOfWords

    References
    ----------
    .. [1] K. T. Abou-Moustafa, F. P. Ferrie, "A Framework for Hypothesis Learning Over Sets of
       Vectors", MLG 2011, sections 2 to 4.
    .. [2] K. T. Abou-Moustafa, "Metric Learning Revisited", PhD thesis, McGill University, 2011,
       section 6.3.

    Examples
    --------
    The sets have 20 to 39 vectors and the same mean, but their covariances differ:

    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import SVC
    >>> from nearfar import SetEmbedding, Sets
    >>> random = np.random.default_rng(0)
    >>> y = np.arange(60) % 2
    >>> spread = [[3.0, 1.0], [1.0, 3.0]]
    >>> rows = [random.normal(size=(20 + k % 20, 2)) * spread[k % 2] for k in range(60)]
    >>> sets = Sets.from_list(rows)
    >>> model = make_pipeline(SetEmbedding(n_components=3), SVC()).fit(sets[:40], y[:40])
    >>> model.score(sets[40:], y[40:])
    1.0
    """

    learner_tags = LearnerTags(reads="instances", input="sets", supervised=False)
    # The training objects are stored in `embedder_`.
    state = State(
        {"embedder_": object_of(EuclideanEmbedding, LaplacianEmbedding, n="n", p="p", q="q")},
        fitted="embedder_",
        rows=0,
    )
    parameters: ClassVar = {
        "n_components": [integer(1), one_of("positive"), real(0, 1, open_low=True)],
        "embedding": [one_of("euclidean", "laplacian")],
        "indefinite": [one_of("clip", "shift", "raise")],
        **WIDTH_PARAMETERS,
        **SHARED_PARAMETERS,
        "metric": [one_of(*SYMMETRIC)],
    }

    def __init__(
        self,
        n_components: int | float | Literal["positive"] = 10,
        *,
        embedding: Literal["euclidean", "laplacian"] = "euclidean",
        metric: str = "bhattacharyya_riemann",
        indefinite: Literal["clip", "shift", "raise"] = "clip",
        width: float | None = None,
        quantile: float = 0.5,
        ridge: float | Literal["auto"] = "auto",
        shrinkage: float | Literal["ledoit_wolf", "oas"] | None = None,
        standardize: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.embedding = embedding
        self.metric = metric
        self.indefinite = indefinite
        self.width = width
        self.quantile = quantile
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.standardize = standardize
        self.n_jobs = n_jobs

    def __sklearn_tags__(self) -> Tags:
        return disable_table_checks(super().__sklearn_tags__())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "embedder_")

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Compute the embedding of the training sets.

        Parameters
        ----------
        X : Sets, list of arrays (t_i, p), array of shape (n, t, p), or Gaussians
            The training sets, or their Gaussians.
        y : ignored
            Present for API consistency.

        Returns
        -------
        SetEmbedding
            The fitted estimator.
        """
        self._forget()
        self._check_parameters()
        self.embedder_ = self._make_embedder().fit(X if isinstance(X, Gaussians) else as_sets(X))
        self.n_features_in_ = self.embedder_.n_features_in_
        return self

    def transform(self, X: Any) -> Floats:
        """Embed new sets by Nyström's formula.

        The formula is that of :class:`EuclideanEmbedding` or :class:`LaplacianEmbedding`.

        For a training set, the result is its row of ``embedding_``.

        Parameters
        ----------
        X : as in ``fit``
            The sets.

        Returns
        -------
        ndarray of shape (n_sets, n_components)
            Coordinates of the sets, in the dtype of the vectors.
        """
        check_is_fitted(self)
        return self.embedder_.transform(X if isinstance(X, Gaussians) else as_sets(X))

    def _make_embedder(self) -> EuclideanEmbedding | LaplacianEmbedding:
        shared: dict[str, Any] = {
            "metric": self.metric,
            "ridge": self.ridge,
            "shrinkage": self.shrinkage,
            "standardize": self.standardize,
            "n_jobs": self.n_jobs,
        }
        if self.embedding == "euclidean":
            return EuclideanEmbedding(self.n_components, indefinite=self.indefinite, **shared)
        if isinstance(self.n_components, str | float):
            raise ValueError(
                'SetEmbedding: n_components must be an integer for embedding="laplacian"; got '
                f"{self.n_components!r}."
            )
        return LaplacianEmbedding(
            self.n_components, width=self.width, quantile=self.quantile, **shared
        )

    @property
    def embedding_(self) -> Floats:  # type: ignore[override]
        """Coordinates of the training sets."""
        return self.embedder_.embedding_

    @property
    def eigenvalues_(self) -> Matrix:
        """Eigenvalues of the embedding, in descending order."""
        return self.embedder_.eigenvalues_

    @property
    def negative_share_(self) -> float:
        """Fraction of the spectrum in negative eigenvalues."""
        if not isinstance(self.embedder_, EuclideanEmbedding):
            raise AttributeError('negative_share_ is only available for embedding="euclidean".')
        return self.embedder_.negative_share_

    @property
    def gaussians_(self) -> Gaussians:
        """Gaussians of the training sets."""
        return self.embedder_.gaussians_
