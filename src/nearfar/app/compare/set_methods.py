"""Methods for sets of vectors: standard distances between means, and methods that use more.

The baseline is the better of two standard distances between the means of the sets, raw and
standardized. The other methods use the spread of the vectors, or the vectors themselves. All are
tuned within the training sets of a fold: k, ridge, dimension, number of words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from nearfar.app.compare.methods import (
    Method,
    Scale,
    Setting,
    check_estimators,
    context_methods,
    find_estimator,
    label_of,
    listed_methods,
    new_name,
    parameters_of,
    presets,
    refuse_taken,
)
from nearfar.app.compare.set_neighbors import VectorDistanceNeighbors
from nearfar.app.compare.set_ways import shares_pairs, way_of
from nearfar.distributions.bag_of_words import BagOfWords
from nearfar.distributions.dissimilarities import METRICS
from nearfar.distributions.set_embedding import SetEmbedding
from nearfar.distributions.set_k_neighbors_classifier import SetKNeighborsClassifier
from nearfar.extras import import_optional
from nearfar.local.mvem import MVEMClassifier
from nearfar.words import format_method_name, normalize_name, suggest_names

_WORDS = {
    "kl": "Kullback-Leibler",
    "jeffreys": "Jeffreys",
    "bhattacharyya": "Bhattacharyya",
    "hellinger": "Hellinger",
    "riemann": "Riemannian",
    "jeffreys_riemann": "d_JR",
    "bhattacharyya_riemann": "d_BR",
}
# Beside the default, which is near 1 in units of the features' variances over all vectors.
_RIDGES = (0.01, 0.1)


@dataclass(frozen=True)
class SetMethod:
    """A method of sets that can be named."""

    label: str
    text: str
    make: Callable[[int], list[tuple[str, Any]]]
    #: Module and extra without which it cannot run.
    needs: tuple[str, str] | None = None


def _dissimilarity(metric: str) -> SetMethod:
    name = metric.removeprefix("sqrt_")
    words = f"root of {_WORDS[name]}" if name != metric else _WORDS[name]

    def make(seed: int) -> list[tuple[str, Any]]:
        def knn(**options: Any) -> SetKNeighborsClassifier:
            return SetKNeighborsClassifier(metric=metric, **options)

        return [
            ("standardized", knn(standardize=True)),
            *((f"standardized, ridge {r:g}", knn(standardize=True, ridge=r)) for r in _RIDGES),
            ("raw", knn()),
        ]

    return SetMethod(f"k-NN, {words}", f"k nearest sets by the dissimilarity {metric}", make)


def _embeddings(seed: int) -> list[tuple[str, Any]]:
    return [
        ("10 dimensions", SetEmbedding(10, standardize=True)),
        ("5 dimensions", SetEmbedding(5, standardize=True)),
        ("20 dimensions", SetEmbedding(20, standardize=True)),
        ("10 dimensions, ridge 0.1", SetEmbedding(10, standardize=True, ridge=0.1)),
    ]


def _embedded_svm(seed: int) -> list[tuple[str, Any]]:
    return [
        (
            f"{q} dimensions, C={C:g}",
            make_pipeline(SetEmbedding(q, standardize=True), StandardScaler(), SVC(C=C)),
        )
        for C, q in ((1, 10), (10, 10), (1, 20), (10, 20))
    ]


def _embedded_mvem(seed: int) -> list[tuple[str, Any]]:
    return [
        (f"{q} dimensions", make_pipeline(SetEmbedding(q, standardize=True), MVEMClassifier()))
        for q in (10, 5)
    ]


def _words_svm(seed: int) -> list[tuple[str, Any]]:
    return [
        (
            f"{n} words, C={C:g}",
            make_pipeline(BagOfWords(n, weighting="root", random_state=seed), SVC(C=C)),
        )
        for n, C in ((50, 10), (20, 10), (100, 10), (50, 1))
    ]


def _by_vectors(distance: Any) -> Callable[[int], list[tuple[str, Any]]]:
    def make(seed: int) -> list[tuple[str, Any]]:
        return [
            (way, VectorDistanceNeighbors(distance=distance, standardize=way == "standardized"))
            for way in ("standardized", "raw")
        ]

    return make


#: By the names that ``methods`` takes; the first are what is compared when none are named.
SET_METHODS: dict[str, SetMethod] = {
    **{
        metric.replace("_", "-"): _dissimilarity(metric)
        for metric in ("bhattacharyya_riemann", "bhattacharyya", "hellinger", "jeffreys", "riemann")
    },
    "set-embedding": SetMethod(
        "SetEmbedding", "a vector for each set by d_BR (SetEmbedding), then k-NN", _embeddings
    ),
    "embedding-svm": SetMethod(
        "SetEmbedding + SVM", "a vector for each set by d_BR, then an SVM", _embedded_svm
    ),
    "mvem": SetMethod(
        "SetEmbedding + MVEM", "a vector for each set by d_BR, then MVEM", _embedded_mvem
    ),
    "bag-of-words": SetMethod(
        "Bag of words + SVM", "histograms over a codebook of vectors, then an SVM", _words_svm
    ),
}
#: What is compared when no methods are named.
DEFAULT = tuple(SET_METHODS)
SET_METHODS |= {
    metric.replace("_", "-"): _dissimilarity(metric)
    for metric in METRICS
    if metric != "mean" and metric.replace("_", "-") not in SET_METHODS
}
SET_METHODS |= {
    "emd": SetMethod(
        "k-NN, earth mover",
        "k nearest sets by the earth mover's distance (slow; needs nearfar[ot])",
        _by_vectors("emd"),
        needs=("ot", "ot"),
    ),
    "dtw": SetMethod(
        "k-NN, time warping",
        "k nearest sequences by dynamic time warping (slow; needs nearfar[dtw])",
        _by_vectors("dtw"),
        needs=("tslearn", "dtw"),
    ),
}


def set_baselines() -> list[Method]:
    """Neighbors by the means of the sets alone, as they are and standardized."""
    ways = [("mean-raw", "raw", False), ("mean-standardized", "standardized", True)]
    return [
        Method(name, f"{words} means", "baseline", (plain_setting(standardize),))
        for name, words, standardize in ways
    ]


def plain_setting(standardize: bool = False) -> Setting:
    """The plainest way: neighbors by the means of the sets."""
    knn = SetKNeighborsClassifier(metric="mean", standardize=standardize)
    words = "standardized" if standardize else "raw"
    return Setting(words, "passthrough", knn)


def set_context(seed: int = 0) -> list[Method]:
    """The majority class: what knowing nothing of the sets reaches."""
    return [method for method in context_methods(seed) if method.name == "majority"]


def set_learners(methods: Any = None, scale: Scale = "auto", seed: int = 0) -> list[Method]:
    """The methods to compare on sets.

    Parameters
    ----------
    methods : mapping, sequence, str, estimator or None
        Names of :data:`SET_METHODS` or of other estimators that take ``Sets``, "distributions" for
        all of the first that need no extra package; such estimators; or a mapping from names to
        estimators or up to four of them (settings to tune). None is a selection that suits most
        data.
    scale : {"auto", "none", "standard"}
        Whether features are divided by their standard deviations over all training vectors; "auto"
        tries both.
    seed : int
        Of the codebooks.
    """
    if scale not in ("auto", "none", "standard"):
        raise ValueError(f"scale={scale!r}: for sets it is auto, none or standard.")
    if methods is None:
        methods = DEFAULT
    named = isinstance(methods, Mapping)
    given = methods.items() if named else ((None, one) for one in listed_methods(methods))
    found: dict[str, Method] = {}
    for name, one in given:
        if isinstance(one, str):
            for key in _names(one):
                if key in SET_METHODS:
                    found[name or key] = _named(name or key, SET_METHODS[key], scale, seed)
                else:
                    found[name or key] = _given(name or key, presets(find_estimator(key)))
            continue
        several = list(one) if isinstance(one, list | tuple) else [one]
        own = new_name(several[0] if several else one, found) if name is None else name
        found[own] = _given(own, several)
    if not found:
        raise ValueError(f"methods is empty: name one at least, of {', '.join(SET_METHODS)}.")
    refuse_taken(found.values(), [*set_baselines(), *set_context()])
    return list(found.values())


def _names(text: str) -> list[str]:
    """Names of methods, from a name or that of the family."""
    if normalize_name(text) == "distributions":
        return [key for key, method in SET_METHODS.items() if method.needs is None]
    key = {normalize_name(key): key for key in SET_METHODS}.get(normalize_name(text))
    if key is not None:
        return [key]
    try:
        kind = find_estimator(text)
    except ValueError:
        hint = suggest_names(text, SET_METHODS)
    else:
        if kind.learner_tags.input == "sets":
            return [format_method_name(kind.__name__)]
        hint = f" {kind.__name__} takes {kind.learner_tags.input}, and these are sets."
    raise ValueError(f"There is no method {text!r} for sets.{hint} See: nearfar methods.")


def _named(name: str, method: SetMethod, scale: Scale, seed: int) -> Method:
    if method.needs is not None:
        import_optional(*method.needs)
    made = method.make(seed)
    if scale != "auto":
        fixed = scale == "standard"
        fitting = [(words, e) for words, e in made if fixed in _switches(e).values()]
        # Of what is standardized in all its settings, these without it.
        made = fitting or [
            (f"{words}, raw", e.set_params(**dict.fromkeys(_switches(e), fixed)))
            for words, e in made
        ]
    settings = tuple(Setting(words, "passthrough", estimator) for words, estimator in made)
    return _method(name, method.label, settings)


def _method(name: str, label: str, settings: tuple[Setting, ...]) -> Method:
    """A method that shares pairs, if its settings do."""
    if not shares_pairs(settings):
        return Method(name, label, "learner", settings)
    ways = list(dict.fromkeys(map(way_of, settings)))
    lasting = tuple(i for i, way in enumerate(ways) if way is not None and way.lasting)
    return Method(name, label, "learner", settings, "pairs", len(ways), lasting)


def _switches(estimator: Any) -> dict[str, bool]:
    """The parameters, its own or of a step, that say whether features are standardized."""
    return {
        key: value
        for key, value in estimator.get_params(deep=True).items()
        if re.search(r"(^|__)(standardize|scale)$", key) and isinstance(value, bool)
    }


def _given(name: str, estimators: list[Any]) -> Method:
    """A method that has no entry above: the user's own, or one that the registry knows."""
    check_estimators(name, estimators)
    settings = tuple(Setting(parameters_of(one), "passthrough", one) for one in estimators)
    return _method(name, label_of(name, estimators[0]), settings)
