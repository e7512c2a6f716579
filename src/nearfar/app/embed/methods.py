"""The embedding learners by the names that the command takes."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Collection, Sequence
from typing import Any

from nearfar.app.compare.methods import family
from nearfar.app.embed.kinds.choice import KINDS
from nearfar.app.embed.kinds.kind import Kind
from nearfar.base import Learner, all_estimators
from nearfar.base.tags import Input
from nearfar.words import (
    format_method_name,
    join_names,
    normalize_name,
    suggest_name,
    suggest_names,
)

_BY_INPUT: dict[Input, Kind] = {kind.input: kind for kind in KINDS.values()}


def embedders(input: Input = "vectors") -> dict[str, type[Learner]]:
    """Maps by name that need no labels and take a number of dimensions, of "vectors" or "sets".

    Rows may be tensors: their family is among the maps of vectors, and may learn from labels.

    >>> embedders()["hessian-lle"].__name__, "lda" in embedders(), list(embedders("sets"))
    ('HessianLLE', False, ['set-embedding'])
    """
    found = {
        format_method_name(name): learner
        for name, learner in all_estimators("map", input).items()
        if issubclass(learner, _BY_INPUT[input].drawn_by)
        and not learner.learner_tags.supervised
        and "n_components" in learner().get_params(deep=False)
    }
    if input == "vectors":
        every = all_estimators("map", "tensors")
        found |= {
            format_method_name(name): every[name] for name in family("tensors") if name in every
        }
    return dict(sorted(found.items()))


def find_embedder(name: str, input: Input = "vectors") -> type[Learner]:
    """An embedding learner by its name, whatever the case and the hyphens.

    >>> find_embedder("VariationalMVU").__name__, find_embedder("landmark_isomap").__name__
    ('VariationalMVU', 'LandmarkIsomap')
    """
    by_bare = {
        other: {normalize_name(key): learner for key, learner in embedders(other).items()}
        for other in _BY_INPUT
    }
    if normalize_name(name) in by_bare[input]:
        return by_bare[input][normalize_name(name)]
    for other, learners in by_bare.items():
        if normalize_name(name) in learners:
            raise ValueError(
                f"--method {name}: it embeds {_BY_INPUT[other].called}, and the data are "
                f"{_BY_INPUT[input].called}."
            )
    hint = suggest_names(name, embedders(input))
    raise ValueError(f"--method {name}: there is no such embedding.{hint} See: nearfar methods.")


def make_embedder(
    method: str,
    n_components: int,
    n_neighbors: int | None = None,
    settings: Sequence[str] = (),
    *,
    input: Input = "vectors",
) -> Learner:
    """A learner as the options ask for.

    Parameters
    ----------
    method : str
        Its name.
    n_components, n_neighbors : int
        ``--components`` and ``--neighbors``.
    settings : sequence of str
        Further parameters as "name=value".
    input : {"vectors", "sets"}
        What it is to embed.
    """
    found = find_embedder(method, input)
    name = format_method_name(found.__name__)
    known = found().get_params(deep=False)
    given: dict[str, Any] = {"n_components": n_components}
    if n_neighbors is not None:
        if "n_neighbors" not in known:
            raise ValueError(f"--neighbors {n_neighbors}: {name} reads no neighbours.")
        given["n_neighbors"] = n_neighbors
    own = {key: value for key, value in known.items() if key not in ("verbose", "warm_start")}
    for key, value in read_settings(settings, ("n_components", "n_neighbors"), own, name).items():
        given[key] = value
    learner = found(**given)
    learner._check_parameters()
    return learner


def read_settings(
    settings: Sequence[str],
    options: Sequence[str] = (),
    own: Collection[str] | None = None,
    name: str = "",
) -> dict[str, Any]:
    """Parameters that were given as "name=value".

    Parameters
    ----------
    settings : sequence of str
        As they were given.
    options : sequence of str
        Those that have an option of their own.
    own : collection of str, optional
        Those that the method of this ``name`` has; None takes any.
    """
    given = {}
    for setting in settings:
        key, sign, text = (part.strip() for part in setting.partition("="))
        if not sign or not key:
            raise ValueError(f"--set {setting}: write it as name=value.")
        if own is not None and key not in own:
            hint = suggest_name(key, own)
            raise ValueError(
                f"--set {setting}: {name} has no parameter '{key}'.{hint} It has {join_names(own)}."
            )
        if key in options:
            option = key.replace("n_", "--")
            raise ValueError(f"--set {setting}: say {option} {text}.")
        given[key] = _value(text)
    return given


def _value(text: str) -> Any:
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def in_options(text: str, *, all_of_them: bool = False) -> str:
    """A message of a learner in terms of the command's options.

    >>> in_options("n_neighbors=5 must be less than 4. Raise n_neighbors.")
    '--neighbors 5 must be less than 4. Raise --neighbors.'
    """
    for name, option in (("n_neighbors", "--neighbors"), ("n_components", "--components")):
        text = re.sub(rf"\b{name}=", f"{option} ", text)
        text = re.sub(rf"\b{name}\b", option, text)
    if all_of_them:
        text = re.sub(r'\bconstraints="', '--set constraints="', text).replace('"', "")
        text = re.sub(r"\b(Raise|Increase) (max_iter|bound_iter)", r"\1 --set \2=...", text)
    return text
