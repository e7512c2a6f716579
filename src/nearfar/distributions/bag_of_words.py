"""BagOfWords: histograms of sets of vectors over a codebook."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base import Learner, LearnerTags
from nearfar.blocks import check_range
from nearfar.distributions.objects import compute_scale, disable_table_checks
from nearfar.parameters import boolean, integer, one_of, random_state
from nearfar.state import State, floats, table
from nearfar.summaries.sets import Sets, as_sets

# Number of distinct vectors above which MiniBatchKMeans replaces KMeans.
_MAX_KMEANS_VECTORS = 20_000


class BagOfWords(ClassNamePrefixFeaturesOutMixin, Learner):
    r"""Histograms of sets of vectors: how often each word of a codebook occurs in a set.

    The codebook :math:`w_1, \ldots, w_K` is computed by k-means over the vectors of all training
    sets,

    .. math:: \min_w \sum_{i,j} \min_k \|x_{ij} - w_k\|^2 .

    Set i is described by the fractions :math:`h_{ik}` of its vectors whose nearest word is k. Any
    classifier can follow: ``make_pipeline(BagOfWords(), SVC())``, or an SVM with the chi-squared
    kernel of ``sklearn.metrics.pairwise``, which is common for histograms.

    It is the baseline for sets with many clusters, which a single Gaussian does not describe well.
    It needs many vectors per set, because fractions of few vectors are imprecise. Words depend on
    the distances between vectors, so the features should be scaled.

    Cost: O(N K p) for each of about 10 to 100 iterations of k-means over all N vectors. For more
    than 20,000 distinct vectors, mini-batches are used.

    Parameters
    ----------
    n_words : int, default=50
        Number of words, K. If there are fewer distinct training vectors, each vector is a word.
    weighting : {"share", "count", "root"}, default="share"
        Entries of a histogram. "share" uses fractions of the vectors, which sum to one. "count"
        uses numbers of vectors. "root" uses square roots of fractions, so that Euclidean distances
        are Hellinger distances.
    standardize : bool, default=True
        Divide each feature by its standard deviation first. The standard deviation is computed over
        all training vectors.
    n_init : int, default=3
        Number of starts. k-means keeps the best result.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The starts of k-means are random.

    Attributes
    ----------
    words_ : ndarray of shape (n_words, n_features)
        The codebook, in the units of the data.
    scale_ : ndarray of shape (n_features,)
        Divisor of each feature. All divisors are 1 if ``standardize=False``.
    n_features_in_ : int
        Number of features of the vectors.

    See Also
    --------
    nearfar.distributions.emd_distances, nearfar.distributions.dtw_distances

    References
    ----------
    .. [1] K. Abou-Moustafa, F. Ferrie, "A framework for hypothesis learning over sets of vectors",
       2011, section 1, which mentions the method.

    Examples
    --------
    >>> from nearfar import BagOfWords
    >>> from nearfar.datasets import make_sets
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import SVC
    >>> sets = make_sets(random_state=0)
    >>> model = make_pipeline(BagOfWords(20, random_state=0), SVC(C=10))
    >>> bool(cross_val_score(model, sets, sets.labels).mean() > 0.8)
    True
    """

    # The tag "instances" says that training rows are stored. This is the case if there are at most
    # n_words training vectors, because ``words_`` then contains the vectors themselves.
    learner_tags = LearnerTags(reads="instances", input="sets", supervised=False)
    state = State(
        {"words_": table("q", "p"), "scale_": floats("p", above=0)},
        fitted="words_",
        rows="words_",
    )
    renamed: ClassVar = {"scale": "standardize"}
    parameters: ClassVar = {
        "n_words": [integer(1)],
        "weighting": [one_of("share", "count", "root")],
        "standardize": [boolean],
        "n_init": [integer(1)],
        "random_state": [random_state],
    }

    def __init__(
        self,
        n_words: int = 50,
        *,
        weighting: str = "share",
        standardize: bool = True,
        n_init: int = 3,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_words = n_words
        self.weighting = weighting
        self.standardize = standardize
        self.n_init = n_init
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        return disable_table_checks(super().__sklearn_tags__())

    @property
    def _n_features_out(self) -> int:
        return len(self.words_)

    def fit(self, X: Sets | ArrayLike, y: Any = None) -> Self:
        """Compute the codebook.

        Parameters
        ----------
        X : Sets, or list of array-likes of shape (t_i, p)
            Training sets.
        y : Ignored
            Present for API consistency.

        Returns
        -------
        BagOfWords
            The fitted estimator.
        """
        self._forget()
        self._check_parameters()
        sets = as_sets(X)
        check_range(sets.X, "X")
        rows = np.asarray(sets.X, np.float64)
        scale = compute_scale(rows) if self.standardize else np.ones(rows.shape[1])
        words = _compute_codebook(rows / scale, self.n_words, self.n_init, self.random_state)
        self.scale_, self.words_ = scale, words * scale
        self.n_features_in_ = sets.n_features
        return self

    def transform(self, X: Sets | ArrayLike) -> Floats:
        """Return the histogram of each set.

        Parameters
        ----------
        X : Sets, or list of array-likes of shape (t_i, p)
            Sets with the same number of features as the training sets.

        Returns
        -------
        ndarray of shape (n_sets, n_words)
            One histogram per set, in the dtype of X.
        """
        check_is_fitted(self)
        sets = as_sets(X)
        if sets.n_features != self.n_features_in_:
            raise ValueError(
                f"X has vectors with {sets.n_features} features, but BagOfWords was fitted with "
                f"{self.n_features_in_}."
            )
        rows = np.asarray(sets.X, np.float64) / self.scale_
        nearest = pairwise_distances_argmin(rows, self.words_ / self.scale_)
        K = len(self.words_)
        set_indices = np.repeat(np.arange(len(sets)), sets.sizes)
        counts = np.bincount(set_indices * K + nearest, minlength=K * len(sets))
        histograms: Floats = counts.reshape(len(sets), K).astype(sets.X.dtype)
        if self.weighting != "count":
            histograms /= sets.sizes[:, None].astype(histograms.dtype)
        return np.sqrt(histograms) if self.weighting == "root" else histograms


def _compute_codebook(rows: Matrix, n_words: int, n_init: int, seed: Any) -> Matrix:
    # The vectors are sorted and weighted, so the codebook does not depend on the order of sets and
    # vectors.
    distinct, weights = np.unique(rows, axis=0, return_counts=True)
    if len(distinct) <= n_words:
        return distinct
    algorithm = KMeans if len(distinct) <= _MAX_KMEANS_VECTORS else MiniBatchKMeans
    kmeans = algorithm(n_words, n_init=n_init, random_state=check_random_state(seed))
    return np.asarray(kmeans.fit(distinct, sample_weight=weights).cluster_centers_)
