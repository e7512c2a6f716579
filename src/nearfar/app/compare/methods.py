"""What is compared: baselines, learners, and classifiers for context, each with its settings.

Every method has at most :data:`MAX_SETTINGS` settings, and all share the same values of k: so each
learner may try as much as the reference, which is the best of four baselines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from nearfar.base import Learner, all_learners
from nearfar.notices import warn
from nearfar.words import did_you_mean

Scale = Literal["auto", "none", "standard", "unit"]
Role = Literal["reference", "baseline", "learner", "context"]

MAX_SETTINGS = 4
#: Learners compared when none are named.
DEFAULT = ("LDA", "RCA", "LMNN")
_SCALE_WORDS = {"none": "raw", "standard": "standardised", "unit": "unit norm"}


@dataclass(frozen=True)
class Setting:
    """One way to run a method: steps of a pipeline before the vote of neighbours.

    Parameters
    ----------
    label : str
        In words.
    scale : transformer or "passthrough"
        First step.
    estimator : learner, classifier or "passthrough"
        What learns. One that predicts by itself gets no vote of neighbours after it.
    neighbours : bool
        Whether the neighbours that vote are those that its ``kneighbors`` finds, ``n_neighbors`` of
        them; otherwise those that are nearest after its map.
    """

    label: str
    scale: Any
    estimator: Any
    neighbours: bool = False

    @property
    def votes(self) -> bool:
        """Whether neighbours vote, and k is to be tuned."""
        return self.neighbours or not hasattr(self.estimator, "predict")

    def steps(self, prepare: Any) -> list[tuple[str, Any]]:
        """Named steps, unfitted, that do something."""
        named = [("prepare", prepare), ("scale", self.scale), ("learner", self.estimator)]
        return [
            (name, step if isinstance(step, str) else clone(step))
            for name, step in named
            if not (isinstance(step, str) and step == "passthrough")
        ]


@dataclass(frozen=True)
class Method:
    """A row of the comparison."""

    name: str
    label: str
    role: Role
    settings: tuple[Setting, ...]


def baselines() -> list[Method]:
    """Euclidean distance after four ways to scale."""
    from sklearn.preprocessing import Normalizer, StandardScaler

    from nearfar.discriminant.pca import PCA

    ways = [
        ("raw", "raw", "passthrough"),
        ("standardised", "standardised", StandardScaler()),
        ("cosine", "unit norm", Normalizer()),
        ("whitened", "PCA-whitened", PCA(whiten=True)),
    ]
    return [
        Method(name, f"Euclidean, {words}", "baseline", (Setting(words, scale, "passthrough"),))
        for name, words, scale in ways
    ]


def context_methods(seed: int = 0) -> list[Method]:
    """Classifiers that are no distances, to see what the features allow."""
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    logistic = [
        (f"C={C:g}", LogisticRegression(C=C, max_iter=1000)) for C in (1.0, 0.1, 10.0, 0.01)
    ]
    return [
        Method(
            "majority",
            "Majority class",
            "context",
            (Setting("", "passthrough", DummyClassifier(strategy="most_frequent")),),
        ),
        Method(
            "logistic",
            "Logistic regression",
            "context",
            tuple(Setting(f"standardised, {w}", StandardScaler(), e) for w, e in logistic),
        ),
        Method(
            "trees",
            "Gradient-boosted trees",
            "context",
            # One setting: they are slow, and here only to show what is possible.
            (Setting("", "passthrough", HistGradientBoostingClassifier(random_state=seed)),),
        ),
    ]


def learners(
    methods: Any = None, scale: Scale = "auto", *, image_shape: tuple[int, ...] | None = None
) -> list[Method]:
    """The learners to compare.

    Parameters
    ----------
    methods : mapping, sequence, str, learner or None
        A mapping from name to a learner, a classifier, or a sequence of up to four of them (its
        settings); or learners, named after their class, and names of learners of the library or of
        the entry point group ``nearfar.learners``, or names of rooms ("discriminant") for all
        their learners; None is a small set that suits most data.
    scale : {"auto", "none", "standard", "unit"}
        How features are scaled before a learner; "auto" tries what there is.
    """
    if scale not in ("auto", *_SCALE_WORDS):
        raise ValueError(f"scale={scale!r} must be one of auto, none, standard, unit.")
    if methods is None:
        methods = DEFAULT
    if not isinstance(methods, Mapping):
        methods = by_name(methods, _presets)
    if not methods:
        raise ValueError(
            f"methods is empty: name a learner at least, or give None for {', '.join(DEFAULT)}."
        )
    taken = {method.name for method in [*baselines(), *context_methods()]} | {"reference"}
    found = []
    for name, given in methods.items():
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"methods has the name {name!r}; names must be text.")
        if name in taken:
            raise ValueError(
                f"methods has the name {name!r}, which a baseline has; choose another."
            )
        estimators = list(given) if isinstance(given, list | tuple) else [given]
        found.append(_method(name, estimators, scale))
    return found


def by_name(methods: Any, made: Callable[[type[Learner]], Any]) -> dict[str, Any]:
    """Learners by their names; ``made`` says what to compare of a class that is only named."""
    if isinstance(methods, str):
        methods = [part.strip() for part in methods.split(",") if part.strip()]
    elif not isinstance(methods, Iterable) or hasattr(methods, "fit"):
        methods = [methods]
    found: dict[str, Any] = {}
    for given in methods:
        if isinstance(given, str):
            for name in family(given) or [given]:
                found[name.lower()] = made(find_learner(name))
            continue
        kind = given if isinstance(given, type) else type(given)
        name = base = kind.__name__.lower()
        n = 1
        while name in found:
            n += 1
            name = f"{base} {n}"
        found[name] = given
    return found


def check_estimators(name: str, estimators: list[Any]) -> None:
    """Refuse settings of a method that are too many, or cannot be compared."""
    if not 1 <= len(estimators) <= MAX_SETTINGS:
        raise ValueError(
            f"methods[{name!r}] has {len(estimators)} settings; give 1 to {MAX_SETTINGS}, so that "
            "all methods have the same budget."
        )
    for estimator in estimators:
        if isinstance(estimator, type):
            raise ValueError(
                f"methods[{name!r}] is the class {estimator.__name__}; give an object: "
                f"{estimator.__name__}()."
            )
        if not hasattr(estimator, "fit") or not (
            hasattr(estimator, "transform") or hasattr(estimator, "predict")
        ):
            raise ValueError(
                f"methods[{name!r}] is {estimator!r}, which has no fit with transform or predict."
            )


def _method(name: str, estimators: list[Any], scale: Scale) -> Method:
    check_estimators(name, estimators)
    own_scaling = any(isinstance(e, Pipeline) or hasattr(e, "predict") for e in estimators)
    if own_scaling and scale == "auto":
        pairs: list[tuple[str, Any]] = [("none", estimator) for estimator in estimators]
    elif scale == "auto":
        first = estimators[0]
        pairs = [("standard", first), ("none", first), ("unit", first)]
        # The other settings first, then the other scalings, as far as there is room.
        others = [("standard", other) for other in estimators[1:]]
        pairs = [pairs[0], *pairs[1 : MAX_SETTINGS - len(others)], *others]
    else:
        pairs = [(scale, estimator) for estimator in estimators]
    label = type(estimators[0]).__name__
    if label.lower() != name.lower():
        label = name
    return Method(name, label, "learner", tuple(_setting(way, e) for way, e in pairs))


def _setting(scale: str, estimator: Any) -> Setting:
    from sklearn.preprocessing import Normalizer, StandardScaler

    scaler = {"none": "passthrough", "standard": StandardScaler(), "unit": Normalizer()}[scale]
    text = " ".join(repr(estimator).split())
    inside = text[text.find("(") + 1 : -1] if len(text) < 120 else ""
    label = f"{_SCALE_WORDS[scale]}, {inside}" if inside else _SCALE_WORDS[scale]
    return Setting(label, scaler, estimator)


def _presets(learner: type[Learner]) -> list[Learner]:
    """A learner at its default and with the settings it declares."""
    return [learner(**parameters) for parameters in ({}, *learner.settings)]


def family(room: str) -> list[str]:
    """Names of the learners of vectors in a room; none if there is no such room.

    >>> "RCA" in family("Mahalanobis"), family("lmnn")
    (True, [])
    """
    return [
        name
        for name, learner in all_learners().items()
        if learner.__module__.split(".")[1] == room.lower()
        and learner.learner_tags.input == "vectors"
    ]


def find_learner(name: str) -> type[Learner]:
    """A learner by name, whatever the case; from other packages by entry point.

    >>> find_learner("lmnn").__name__
    'LMNN'
    """
    known = known_learners()
    by_name = {key.lower(): item for key, item in known.items()}
    if name.lower() in by_name:
        return by_name[name.lower()]
    hint = did_you_mean(name, by_name).replace("'", "")
    raise ValueError(f"There is no method {name!r}.{hint} Known: {', '.join(sorted(by_name))}.")


def known_learners() -> dict[str, type[Learner]]:
    """Learners of the library, and those that installed packages offer."""
    found = dict(all_learners())
    for point in entry_points(group="nearfar.learners"):
        try:
            found.setdefault(point.name, point.load())
        except Exception as error:  # another package's trouble must not become ours
            warn(
                f"The learner {point.name!r} of another package cannot be loaded: {error}",
            )
    return found
