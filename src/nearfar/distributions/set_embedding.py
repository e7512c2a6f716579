"""Set embedding: one vector for each set of vectors."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base import Embedding, LearnerTags
from nearfar.distributions.euclidean_embedding import EuclideanEmbedding
from nearfar.distributions.laplacian_embedding import WIDTH_PARAMETERS, LaplacianEmbedding
from nearfar.distributions.objects import SHARED_PARAMETERS, SYMMETRIC, without_tables
from nearfar.parameters import integer, one_of, real
from nearfar.state import State, object_of
from nearfar.summaries.gaussians import Gaussians
from nearfar.summaries.sets import as_sets


class SetEmbedding(Embedding):
    r"""One vector for each set of vectors, so that any learner of vectors follows.

    Set i becomes the Gaussian :math:`\mathcal G_i = N(\mu_i, \Sigma_i + \gamma I)` of its vectors,
    the dissimilarities :math:`D_{ij} = d(\mathcal G_i, \mathcal G_j)` of all pairs are computed,
    and the sets are placed in space by

    .. math:: \min_Y \|Y Y^T + \tfrac12 H D^{\circ 2} H\|_F^2

    (:class:`EuclideanEmbedding`), or by the leading eigenvectors of a kernel of D
    (:class:`LaplacianEmbedding`). New sets are placed by Nyström's formula, without a new fit.

    Use it in a Pipeline before a classifier, for utterances, clips, patients or documents, each
    known by a number of vectors of its own. A Gaussian sees neither the order of the vectors nor
    more than one mode of them. For classification :class:`SetKNeighborsClassifier` needs no
    embedding; a few more than ten components rarely hurt.

    Cost: :math:`O(\sum_i t_i p^2)` for the Gaussians and :math:`O(n^2 p^3)` for dissimilarities of
    n sets; :math:`O(n p^3)` for each new set.

    Parameters
    ----------
    n_components : int, default=10
        Dimension of the output; for "euclidean" also "positive" or a share, as in
        :class:`EuclideanEmbedding`.
    embedding : {"euclidean", "laplacian"}, default="euclidean"
        As above.
    metric : str, default="bhattacharyya_riemann"
        The dissimilarity: d, one of those of :class:`EuclideanEmbedding`, but not "precomputed".
    indefinite : {"clip", "shift", "raise"}, default="clip"
        What to do with negative eigenvalues: leave them out; shift all, as
        :class:`EuclideanEmbedding` does; or raise. For "euclidean" only.
    width : float or None, default=None
        Width of the kernel: for "laplacian"; None takes a quantile of the dissimilarities.
    quantile : float from 0 to 1, default=0.5
        Which quantile of the dissimilarities the width is.
    ridge : float or "auto", default="auto"
        What is added to variances: :math:`\gamma`, in squared units of the vectors; see
        :meth:`nearfar.Gaussians.from_sets`. The works take 1.
    shrinkage : float, "ledoit_wolf", "oas" or None, default=None
        What is mixed into covariances: those of sets; see :meth:`nearfar.Gaussians.from_sets`.
    standardize : bool, default=False
        Divide each feature by its standard deviation first: that over all training vectors, before
        the ridge.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores. They compute dissimilarities.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_sets, n_components)
        The training sets.
    eigenvalues_ : ndarray of shape (n_components,)
        The largest first.
    negative_share_ : float
        For "euclidean": the share of negative eigenvalues, which no vectors can show.
    gaussians_ : Gaussians
        Of the training sets. ``metric_report(dissimilarity(gaussians_))`` says more.
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
    Sets with the same mean, of 20 to 40 vectors each, which differ in how these spread:

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
    # Training objects are in the embedding.
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
        return without_tables(super().__sklearn_tags__())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "embedder_")

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Embed sets.

        Parameters
        ----------
        X : Sets, list of arrays (t_i, p), array of shape (n, t, p), or Gaussians
            The sets.
        y : ignored
            For the API.

        Returns
        -------
        SetEmbedding
            Itself.
        """
        self._forget()
        self._check_parameters()
        self.embedder_ = self._embedder().fit(X if isinstance(X, Gaussians) else as_sets(X))
        self.n_features_in_ = self.embedder_.n_features_in_
        return self

    def transform(self, X: Any) -> Floats:
        """Map new sets by Nyström's formula: see the ``transform`` of the two embeddings.

        Training sets get their own vectors.

        Parameters
        ----------
        X : as in ``fit``
            The sets.

        Returns
        -------
        ndarray of shape (n_sets, n_components)
            In the dtype of the vectors.
        """
        check_is_fitted(self)
        return self.embedder_.transform(X if isinstance(X, Gaussians) else as_sets(X))

    def _embedder(self) -> EuclideanEmbedding | LaplacianEmbedding:
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
        """The vectors of the training sets."""
        return self.embedder_.embedding_

    @property
    def eigenvalues_(self) -> Matrix:
        """Eigenvalues of the embedding."""
        return self.embedder_.eigenvalues_

    @property
    def negative_share_(self) -> float:
        """The share of negative eigenvalues."""
        if not isinstance(self.embedder_, EuclideanEmbedding):
            raise AttributeError('negative_share_ is for embedding="euclidean".')
        return self.embedder_.negative_share_

    @property
    def gaussians_(self) -> Gaussians:
        """The Gaussians of the training sets."""
        return self.embedder_.gaussians_
