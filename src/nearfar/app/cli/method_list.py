"""The methods that the commands accept, as one list: names, summaries, needs, parameters, usage."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nearfar.app.compare import pair_methods, set_methods, value_methods
from nearfar.app.compare.embeddings import BASELINE, REFERENCE, default_names
from nearfar.app.compare.methods import DEFAULT, OF_IMAGES, baselines, known_estimators
from nearfar.app.embed.methods import embedders
from nearfar.base import LinearLearner
from nearfar.words import format_method_name, normalize_name, suggest_names

#: Kinds of data that ``--for`` accepts: what the data are, and the option that selects them.
SITUATIONS: dict[str, tuple[str, str]] = {
    "labels": ("rows with class labels", "--target COL"),
    "pairs": ("similar and dissimilar pairs", "--pairs FILE"),
    "groups": ("groups of similar rows", "--pairs FILE"),
    "number": ("rows with a number to predict", "--target COL --task regression"),
    "nothing": ("rows without labels", "--unlabeled"),
    "sets": ("sets of vectors with labels", "--set-id COL"),
    "images": ("images with class labels", "--images HxW"),
}
#: Families of methods, in the order in which they are listed to users.
FAMILIES = {
    "mahalanobis": "distances from labels, pairs or groups: LMNN, ITML, RCA",
    "discriminant": "subspaces that separate classes: LDA and its relatives",
    "manifold": "embeddings of rows without labels: Isomap, LLE, MVU",
    "tensors": "images and other arrays, one map per mode: GTDA, STM",
    "distributions": "sets of vectors: distances between distributions",
    "local": "classifiers whose distance changes from query to query",
    "kernels": "learned kernels, and classifiers based on them",
    "neighbors": "nearest-neighbor classifiers and regressors",
    "large_margin": "classification by the loss of LMNN",
    "standard": "distances that are not learned, such as Euclidean",
}
_SUPERVISION = {"values": "number", "chunklets": "groups"}
_INPUTS = {"tensors": "images"}
#: Sizes of a training fold for which ``compare`` selects different embeddings.
_SIZES = (500, 3_000, 20_000)


class _Samples(NamedTuple):
    """How usage examples name the data of one kind of input."""

    #: Data on the command line.
    data: str
    #: Names of the samples and of their labels in Python.
    X: str
    y: str
    #: What these two are.
    shape: str
    labels: str


_SAMPLES = {
    "vectors": _Samples(
        "wine", "X", "y", "array of shape (n_rows, n_columns)", "one label per row"
    ),
    "images": _Samples(
        "digits", "images", "y", "array of shape (n_images, height, width)", "one label per image"
    ),
    "sets": _Samples(
        "frames.csv --set-id utterance --target vowel",
        "sets",
        "labels",
        "nearfar.Sets or a list of 2-D arrays",
        "one label per set",
    ),
    "pairs": _Samples(
        "rows.csv --pairs pairs.csv",
        "pairs",
        "signs",
        "array of shape (n_pairs, 2, n_columns)",
        "+1 similar, -1 dissimilar",
    ),
}


@dataclass(frozen=True)
class MethodInfo:
    """What users can know about one method before they run it.

    Attributes
    ----------
    key : str
        Name for ``--methods`` and ``--method``.
    summary : str
        What the method is, in one line.
    family : str
        Package of the method, "standard", or "package X" for a method of another package X.
    supervision : tuple of str
        What it learns from, one of which is enough: "labels", "number", "pairs", "triplets",
        "quadruplets", "groups". Empty if it needs none.
    input : str
        What one sample is: "vectors", "images", "sets" or "pairs".
    output : str
        What the method computes: "map", "classifier", "regressor", "kernel" or "distance".
    linear : bool or None
        Whether its map is linear; None if it does not compute a map.
    situations : tuple of str
        Keys of ``SITUATIONS`` that it fits.
    default_for : tuple of str
        Those of them in which ``nearfar compare`` tries it by default.
    estimator : type or None
        Its class, if it has one.
    aliases : dict
        Other names, with the parameters that they set.
    """

    key: str
    summary: str
    family: str
    supervision: tuple[str, ...]
    input: str
    output: str
    linear: bool | None
    situations: tuple[str, ...]
    default_for: tuple[str, ...]
    estimator: type[Any] | None = None
    aliases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the class, or the key of a method without a class."""
        return self.key if self.estimator is None else self.estimator.__name__

    @property
    def needs(self) -> str:
        """What it learns from, in words."""
        return " or ".join(self.supervision) or "nothing"

    @property
    def result(self) -> str:
        """What it computes, in words."""
        if self.output != "map":
            return self.output
        return "linear map" if self.linear else "nonlinear map"

    @property
    def parameters(self) -> dict[str, Any]:
        """Names and default values of the parameters of its class."""
        if self.estimator is None:
            return {}
        found = inspect.signature(self.estimator).parameters
        return {name: one.default for name, one in found.items()}

    @property
    def reference(self) -> str:
        """First entry of the References section of its docstring, or an empty string."""
        text = inspect.getdoc(self.estimator) or "" if self.estimator is not None else ""
        found = re.search(r"^References\n-+\n\.\. \[\w+\] (.+?)(?=^\S|\Z)", text, re.M | re.S)
        if found is None:
            return ""
        reference = plain_text(found[1])
        # Comments follow the citation, which ends with the first sentence that has a year.
        cited = re.match(r".*?\b(?:19|20)\d\d\b.*?\.(?=\s|$)", reference)
        return cited[0] if cited else reference

    def matches(self, query: str) -> bool:
        """Return True if a name contains the query, or the summary does."""
        hyphenated = re.sub(r"[_\s]+", "-", format_method_name(query))
        within = any(hyphenated in name for name in (self.key, *self.aliases))
        return within or query.lower() in self.summary.lower()

    def is_named(self, query: str) -> bool:
        """Return True if the query is one of its names, whatever the case and the hyphens."""
        return normalize_name(query) in {
            normalize_name(name) for name in (self.key, self.name, *self.aliases)
        }

    def command_lines(self) -> list[str]:
        """Return commands that use the method, on built-in datasets where there are any."""
        data, pairs = _SAMPLES[self.input].data, _SAMPLES["pairs"].data
        if self.output == "distance":
            return [f"nearfar fit {data} --method {self.key} --save model.nf"]
        if self.input == "pairs":
            return [f"nearfar fit {data} --method itml --save model.nf"]
        if "number" in self.supervision:
            data = "table.csv --target price --task regression"
        elif self.input == "vectors" and self.key in embedders():
            return [f"nearfar embed {data} --method {self.key}"]
        lines = [f"nearfar compare {data} --methods {self.key}"]
        if "pairs" in self.situations:
            lines.append(f"nearfar compare {pairs} --methods {self.key}")
        return lines

    def python_lines(self) -> list[str]:
        """Return Python code that uses the method on the arrays of ``python_names``."""
        X, y = _SAMPLES[self.input].X, _SAMPLES[self.input].y
        if self.estimator is None:
            how = "" if self.output == "distance" else f", methods={self.key!r}"
            return ["import nearfar", f'nearfar.compare({X}, {y}{how}).table.loc["{self.key}"]']
        module = self.estimator.__module__
        source = "nearfar" if module.startswith("nearfar.") else module
        if self.input == "pairs":
            return [
                f"from {source} import ITML, {self.name}",
                f"{self.name}(ITML()).fit({X}, {y}).predict({X})",
            ]
        fitted = f"fit({X}, {y})" if self.supervision else f"fit({X})"
        call = "transform" if self.output in ("map", "kernel") else "predict"
        return [f"from {source} import {self.name}", f"{self.name}().{fitted}.{call}({X})"]

    def python_names(self) -> str:
        """Return a comment that explains the arrays in ``python_lines``."""
        samples = _SAMPLES[self.input]
        if not self.supervision and self.output != "distance":
            return f"{samples.X}: {samples.shape}"
        values = "one number per row" if "number" in self.supervision else samples.labels
        return f"{samples.X}: {samples.shape}, {samples.y}: {values}"

    def to_json(self) -> dict[str, Any]:
        """Return the facts as a dictionary that JSON can hold."""
        return {
            "key": self.key,
            "class": None if self.estimator is None else self.name,
            "aliases": list(self.aliases),
            "summary": self.summary,
            "family": self.family,
            "supervision": list(self.supervision),
            "input": self.input,
            "output": self.output,
            "linear": self.linear,
            "for": list(self.situations),
            "default_for": list(self.default_for),
            "parameters": {name: _json_value(one) for name, one in self.parameters.items()},
        }


def list_methods() -> list[MethodInfo]:
    """Return all methods, by family and name."""
    defaults = default_methods()
    found = [_of_estimator(name, kind, defaults) for name, kind in known_estimators().items()]
    keys = {one.key for one in found}
    for key, method in set_methods.SET_METHODS.items():
        if key not in keys:
            found.append(_of_sets(key, method.text))
    found = [*sorted(found, key=lambda one: one.key), *_standard_distances()]
    order = list(FAMILIES)
    rank = {one.family: len(order) for one in found} | {name: i for i, name in enumerate(order)}
    return sorted(found, key=lambda one: (rank[one.family], one.family))


def default_methods() -> dict[str, list[str]]:
    """Return the keys of the methods that ``nearfar compare`` tries by default, by situation."""
    embeddings = [name for size in _SIZES for name in default_names(size)]
    names = {
        "labels": DEFAULT,
        "pairs": (*pair_methods.DEFAULT, "RCA"),
        "groups": ("RCA",),
        "number": value_methods.DEFAULT,
        "nothing": (REFERENCE, BASELINE, *embeddings),
        "sets": set_methods.DEFAULT,
        "images": (*DEFAULT, OF_IMAGES),
    }
    return {
        situation: list(dict.fromkeys(format_method_name(name) for name in names[situation]))
        for situation in SITUATIONS
    }


def find_methods(query: str | None, situation: str | None) -> list[MethodInfo]:
    """Return the methods of a situation that match a query. Raises if there are none.

    A name selects its method alone, and the name of a family all of its methods.

    >>> [method.name for method in find_methods("lmnn", None)]
    ['LMNN']
    >>> find_methods("lmnn", "sets")
    Traceback (most recent call last):
    ...
    ValueError: No method for sets of vectors with labels matches 'lmnn'. See: nearfar methods lmnn
    """
    every = list_methods()
    found = [one for one in every if situation is None or situation in one.situations]
    if query is None:
        return found
    for is_match in (
        lambda one: one.is_named(query),
        lambda one: one.family == query.lower(),
        lambda one: one.matches(query),
    ):
        matching = [one for one in found if is_match(one)]
        if matching:
            return matching
    if situation is not None and any(
        one.is_named(query) or one.matches(query) or one.family == query.lower() for one in every
    ):
        raise ValueError(
            f"No method for {SITUATIONS[situation][0]} matches {query!r}. "
            f"See: nearfar methods {query}"
        )
    names = [name for one in every for name in (one.key, *one.aliases)]
    hint = suggest_names(query, [*names, *(one.family for one in every)])
    raise ValueError(f"No method matches {query!r}.{hint} See: nearfar methods --all")


def plain_text(text: str) -> str:
    """Return a text of a docstring without markup, in one line.

    >>> plain_text("The metric of :class:`RCA`, with ``X``")
    'The metric of RCA, with X'
    """
    return " ".join(re.sub(r":\w+:`~?([^`]*)`|``([^`]*)``", r"\1\2", text).split())


def _of_estimator(name: str, kind: type[Any], defaults: Mapping[str, Iterable[str]]) -> MethodInfo:
    tags, key = kind.learner_tags, format_method_name(name)
    supervision = tuple(_SUPERVISION.get(one, one) for one in tags.supervision)
    input = _INPUTS.get(tags.input, tags.input)
    parts = kind.__module__.split(".")
    aliases = dict(getattr(kind, "aliases", {}))
    if key.endswith("-classifier"):
        aliases = {key.removesuffix("-classifier"): {}} | aliases
    default_for = tuple(one for one in SITUATIONS if key in defaults[one])
    situations = {*_situations(input, supervision, tags.role), *default_for}
    return MethodInfo(
        key=key,
        summary=plain_text((inspect.getdoc(kind) or "").partition("\n\n")[0]),
        family=parts[1] if parts[0] == "nearfar" else f"package {parts[0]}",
        supervision=supervision,
        input=input,
        output=tags.role,
        linear=issubclass(kind, LinearLearner) if tags.role == "map" else None,
        situations=tuple(one for one in SITUATIONS if one in situations),
        default_for=default_for,
        estimator=kind,
        aliases=aliases,
    )


def _situations(input: str, supervision: tuple[str, ...], role: str) -> set[str]:
    """Return the situations that a method fits by what it takes and what it learns from."""
    if input != "vectors":
        return {input}
    found: set[str] = {"labels", "number", "groups"} & set(supervision)
    # Similar and dissimilar pairs are converted to the form that the method reads.
    forms = {_SUPERVISION.get(one, one) for one in pair_methods.FORMS}
    if role == "map" and forms & set(supervision):
        found.add("pairs")
    if not supervision:
        found.add("nothing")
    return found


def _of_sets(key: str, summary: str) -> MethodInfo:
    tried = ("sets",) if key in set_methods.DEFAULT else ()
    return MethodInfo(
        key, summary, "distributions", ("labels",), "sets", "classifier", None, ("sets",), tried
    )


def _standard_distances() -> list[MethodInfo]:
    """Return the distances that are not learned; ``compare`` always includes them."""
    rows: tuple[str, ...] = ("labels", "pairs", "number", "images")
    found = [(one.name, one.label, "vectors", rows) for one in baselines()]
    best = "the best of the standard distances, selected by cross-validation"
    found.append(("reference", best, "vectors", rows))
    found += [(one.name, one.label, "sets", ("sets",)) for one in set_methods.set_baselines()]
    return [
        MethodInfo(key, text, "standard", (), input, "distance", None, situations, situations)
        for key, text, input, situations in found
    ]


def _json_value(value: Any) -> Any:
    if value is inspect.Parameter.empty:
        return None
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
