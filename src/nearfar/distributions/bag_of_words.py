"""Sets of vectors as histograms over a codebook of words."""

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
from nearfar.distributions.objects import deviations, without_tables
from nearfar.parameters import boolean, integer, one_of, random_state
from nearfar.state import State, floats, table
from nearfar.summaries.sets import Sets, as_sets

# Beyond so many vectors k-means goes by small batches.
_MANY = 20_000


class BagOfWords(ClassNamePrefixFeaturesOutMixin, Learner):
    r"""Sets of vectors as histograms of words: how often each word of a codebook occurs in a set.

    The codebook :math:`w_1, \ldots, w_K` is found by k-means over the vectors of all training sets,

    .. math:: \min_w \sum_{i,j} \min_k \|x_{ij} - w_k\|^2 ,

    and set i becomes the shares :math:`h_{ik}` of its vectors whose nearest word is k. Any
    classifier of vectors follows: ``make_pipeline(BagOfWords(), SVC())``, or an SVM with the
    chi-squared kernel of ``sklearn.metrics.pairwise``, which is customary for histograms.

    It is the baseline for sets of many clusters, where one Gaussian says little. It needs many
    vectors a set, as shares of few vectors are coarse; and words are as good as the distances
    between vectors are, so features should be scaled.

    Cost: O(N K p) for each of some ten to a hundred rounds of k-means over all N vectors; beyond
    20,000 vectors it goes by small batches.

    Parameters
    ----------
    n_words : int, default=50
        K. With fewer different vectors than that there are as many words.
    weighting : {"share", "count", "root"}, default="share"
        What a histogram holds: shares that sum to one, numbers of vectors, or square roots of
        shares, whose distances are those of Hellinger.
    standardize : bool, default=True
        Divide each feature by its standard deviation first: that over the training vectors.
    n_init : int, default=3
        Number of starts; the best is kept. They are those of k-means.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: the starts of k-means.

    Attributes
    ----------
    words_ : ndarray of shape (n_words, n_features)
        The codebook, in the units of the data.
    scale_ : ndarray of shape (n_features,)
        What features are divided by; ones without ``standardize``.
    n_features_in_ : int
        The width of the vectors.

    See Also
    --------
    nearfar.distributions.emd_distances, nearfar.distributions.dtw_distances

    References
    ----------
    .. [1] K. Abou-Moustafa, F. Ferrie, "A framework for hypothesis learning over sets of vectors",
       2011, section 1, which names it.

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

    # Words are training vectors where there are no more of these than words.
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
        return without_tables(super().__sklearn_tags__())

    @property
    def _n_features_out(self) -> int:
        return len(self.words_)

    def fit(self, X: Sets | ArrayLike, y: Any = None) -> Self:
        """Find the codebook.

        Parameters
        ----------
        X : Sets, or list of array-likes of shape (t_i, p)
            Training sets.
        y : Ignored
            For pipelines.

        Returns
        -------
        BagOfWords
            Itself.
        """
        self._forget()
        self._check_parameters()
        sets = as_sets(X)
        rows = np.asarray(sets.X, np.float64)
        scale = deviations(rows) if self.standardize else np.ones(rows.shape[1])
        words = _codebook(rows / scale, self.n_words, self.n_init, self.random_state)
        self.scale_, self.words_ = scale, words * scale
        self.n_features_in_ = sets.n_features
        return self

    def transform(self, X: Sets | ArrayLike) -> Floats:
        """The histogram of each set.

        Parameters
        ----------
        X : Sets, or list of array-likes of shape (t_i, p)
            Sets, of the width of the training sets.

        Returns
        -------
        ndarray of shape (n_sets, n_words)
            In the dtype of X.
        """
        check_is_fitted(self)
        sets = as_sets(X)
        if sets.n_features != self.n_features_in_:
            raise ValueError(
                f"X has vectors of {sets.n_features} features, but BagOfWords was fitted with "
                f"{self.n_features_in_}."
            )
        rows = np.asarray(sets.X, np.float64) / self.scale_
        nearest = pairwise_distances_argmin(rows, self.words_ / self.scale_)
        K = len(self.words_)
        owner = np.repeat(np.arange(len(sets)), sets.sizes)
        counts = np.bincount(owner * K + nearest, minlength=K * len(sets))
        histograms: Floats = counts.reshape(len(sets), K).astype(sets.X.dtype)
        if self.weighting != "count":
            histograms /= sets.sizes[:, None].astype(histograms.dtype)
        return np.sqrt(histograms) if self.weighting == "root" else histograms


def _codebook(rows: Matrix, n_words: int, n_init: int, seed: Any) -> Matrix:
    # Sorted and weighted, so that neither the order of sets nor that of vectors plays a part.
    different, weights = np.unique(rows, axis=0, return_counts=True)
    if len(different) <= n_words:
        return different
    kind = KMeans if len(different) <= _MANY else MiniBatchKMeans
    means = kind(n_words, n_init=n_init, random_state=check_random_state(seed))
    return np.asarray(means.fit(different, sample_weight=weights).cluster_centers_)
