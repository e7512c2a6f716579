"""How settings make Gaussians of sets, and which pairs of these serve more than one fold.

*All folds* read the same pairs where the Gaussian of a set is the same in all of them
(:attr:`Way.lasting`): a ridge that is a number, and vectors as they are. Shrinkage looks at no
other set. Without a ridge, vectors may be standardized too: what is dear of a pair stays the same
when all Gaussians go through one invertible linear map, and scaling is such a map as long as no
ridge adds the same to all variances, whatever their units.

What is compared by default is not of this kind: other sets take part in making the Gaussians. The
ridge "auto" is a median over sets; and in units of the vectors as they are, a ridge r of
standardized vectors is r times the variances v over all vectors: S_i + r diag(v). With another v
all eigenvalues of all pairs are others, and none follow from those of another fold. If these sets
are the training sets of each fold, *one fold alone* reads its pairs. Of many sets all folds read
the same here too: v and the ridge are then those of all sets, if it was measured that the training
sets of no fold would give others that matter, and it is said so (``set_units.py``). Test sets then
have a say in their units, as far as that measure lets them, and without their labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, NamedTuple

from sklearn.pipeline import Pipeline

from nearfar.app.compare.methods import Setting
from nearfar.distributions.bag_of_words import BagOfWords
from nearfar.distributions.dissimilarities import METRICS, get_costly_terms
from nearfar.distributions.set_embedding import SetEmbedding
from nearfar.distributions.set_k_neighbors_classifier import SetKNeighborsClassifier


class Way(NamedTuple):
    """How Gaussians are made of sets."""

    standardize: bool
    ridge: Any
    shrinkage: Any

    @classmethod
    def of(cls, first: SetKNeighborsClassifier | SetEmbedding) -> Way:
        """The way of an estimator.

        Without a ridge dissimilarities of scaled vectors are those of the vectors as they are.
        (Shrinkage mixes in as much of every feature, whatever its unit.)
        """
        number = isinstance(first.ridge, Real) and not isinstance(first.ridge, bool)
        way = cls(first.standardize, float(first.ridge) if number else first.ridge, first.shrinkage)
        scales = way.ridge != 0 or way.shrinkage is not None or not get_costly_terms(first.metric)
        return way if scales else way._replace(standardize=False)

    @property
    def lasting(self) -> bool:
        """Whether the Gaussian of a set is the same whatever other sets are trained on.

        >>> Way(False, 0.5, "oas").lasting, Way(True, 0.5, None).lasting
        (True, False)
        >>> Way(False, "auto", None).lasting
        False
        """
        return not self.standardize and not isinstance(self.ridge, str)


def way_of(setting: Setting) -> Way | None:
    """The way of a setting that begins with Gaussians of sets; None where it does not."""
    first = first_of(setting)
    return None if first is None else Way.of(first)


def shares_pairs(settings: Iterable[Setting]) -> bool:
    """Whether the first of the settings looks at what is dear of the pairs.

    >>> from nearfar import SetKNeighborsClassifier
    >>> [
    ...     shares_pairs([Setting("", "passthrough", SetKNeighborsClassifier(metric=metric))])
    ...     for metric in ("riemann", "mean")
    ... ]
    [True, False]
    """
    first = next((first_of(setting) for setting in settings), None)
    return first is not None and bool(get_costly_terms(first.metric))


def first_of(setting: Setting) -> SetKNeighborsClassifier | SetEmbedding | None:
    """What a setting begins with, if that is Gaussians of sets, and nothing else comes before."""
    first = setting.estimator
    if isinstance(first, Pipeline):
        first = first.steps[0][1]
        if type(first) is SetKNeighborsClassifier:
            return None
    if not isinstance(setting.scale, str):
        return None
    if type(first) is not SetKNeighborsClassifier and type(first) is not SetEmbedding:
        return None
    given = (first.standardize, first.ridge, first.shrinkage)
    if first.metric not in METRICS or not all(isinstance(v, str | Real | None) for v in given):
        return None  # for it to refuse by itself
    return first


def words_of(setting: Setting) -> BagOfWords | None:
    """The codebook that a setting begins with, if another gets the same from the same seed."""
    first = setting.estimator
    if not isinstance(first, Pipeline) or not isinstance(setting.scale, str):
        return None
    first = first.steps[0][1]
    fixed = type(first) is BagOfWords and isinstance(first.random_state, Integral)
    return first if fixed else None


def nests(embedding: SetEmbedding) -> bool:
    """Whether an embedding in fewer dimensions is the first part of this one."""
    return embedding.embedding == "euclidean" and isinstance(embedding.n_components, Integral)


def rest_of(estimator: Any) -> Any:
    """What comes after the first step."""
    if isinstance(estimator, Pipeline) and len(estimator.steps) > 1:
        return Pipeline(estimator.steps[1:])
    return "passthrough"


def key_of(embedding: SetEmbedding) -> str:
    """All that its coordinates depend on but their number."""
    given = embedding.get_params(deep=False)
    return repr(sorted((name, given[name]) for name in given if name != "n_components"))
