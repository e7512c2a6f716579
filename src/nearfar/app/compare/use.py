"""After a comparison, or without one: the method that is to be used, fitted to all rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from nearfar.app.compare.chain import Chosen
from nearfar.app.compare.kinds.kind import Kind
from nearfar.app.compare.kinds.rows import RowKind
from nearfar.app.compare.methods import (
    AXES,
    Method,
    find_estimator,
    parameters_of,
    without_axes,
)
from nearfar.words import format_method_name, join_names, suggest_name

#: Characters of what a model file may say of itself.
_MOST_SAID = 500_000


def choose_named(
    kind: RowKind, method: Method, given: Mapping[str, Any], k: int | None = None
) -> tuple[Chosen, str]:
    """A method at the setting and k that do best, as the comparison tunes it inside a fold.

    Parameters
    ----------
    kind : RowKind
        The data, read and prepared.
    method : Method
        A learner, or one of the standard distances: see ``kind.named``.
    given : mapping
        Parameters of the learner: it is not tuned then, its scaling is.
    k : int, optional
        How many neighbors vote; None tunes it.

    Returns
    -------
    choice : Chosen
    words : str
        What was chosen, and its error inside.
    """
    if given:
        method = with_parameters(method, given)
    n_rows = len(kind.training()[0])
    settings = method.settings
    votes = kind.problem.tunes_k and settings[0].votes
    pinned = len(settings) == 1 and (k is not None or not votes)
    if k is not None and not votes:
        raise ValueError(f"-k {k}: of {method.label} no neighbors vote.")
    if k is not None and k > n_rows:
        raise ValueError(f"-k {k}: there are {n_rows:,} {kind.table.noun}s.")
    if pinned:
        choice, error = Chosen(method, settings[0], k), None
    else:
        found = kind.tuned(method, k)
        voters = (found.k or 1) if votes and found.setting.votes else None
        choice, error = Chosen(method, found.setting, voters), found.error
    inside = "" if error is None else f"{kind.say.measure} inside {kind.say.short(error)}"
    return choice, f"{method.title}: {'; '.join(filter(None, [choice.words(), inside]))}."


def with_parameters(method: Method, given: Mapping[str, Any]) -> Method:
    """The method with these parameters only, in each of its scalings."""
    first = method.settings[0].estimator
    if isinstance(first, str | Pipeline):
        what = "is a standard distance" if isinstance(first, str) else "is a chain of several steps"
        raise ValueError(f"--set and --components: {method.name} {what} without parameters.")
    own = first.get_params(deep=False)
    for name in given:
        if name not in own:
            option = "--components" if name == "n_components" else f"--set {name}={given[name]}"
            raise ValueError(
                f"{option}: {format_method_name(type(first).__name__)} has no parameter '{name}'."
                f"{suggest_name(name, own)} It has {join_names(own)}."
            )
    given = {name: _learner_if_named(first, name, value) for name, value in given.items()}
    made = clone(first).set_params(**given)
    if hasattr(made, "_check_parameters"):
        made._check_parameters()
    scalings = [one for one in method.settings if repr(one.estimator) == repr(first)]
    axes_given = "n_pca_components" in given
    inside = parameters_of(made if axes_given else without_axes(made))
    settings = []
    for one in scalings:
        first_word, _, last_word = one.label.partition(", ")
        # Before the parameters stands the scaling, after them what the columns are reduced to, or
        # what follows.
        last = last_word.rpartition(", ")[2]
        along = last.endswith(AXES) and not axes_given
        plain = isinstance(one.reduce, str) and isinstance(one.after, str)
        reduced = last if along or not plain else ""
        label = ", ".join(filter(None, [first_word, inside, reduced]))
        settings.append(replace(one, label=label, estimator=made))
    return replace(method, settings=tuple(settings))


def _learner_if_named(estimator: Any, name: str, value: Any) -> Any:
    """A parameter's value; the method of this name, where the parameter takes it and no text."""
    allowed = getattr(estimator, "parameters", {}).get(name, ())
    if not isinstance(value, str) or any(one.accepts(value) for one in allowed):
        return value
    try:
        learner = find_estimator(value)()
    except (TypeError, ValueError):  # there is none, or it must be given something
        return value
    return learner if any(one.accepts(learner) for one in allowed) else value


def fit_chain(kind: Kind, choice: Chosen) -> Pipeline:
    """The chain, fitted to all rows; those of a test file are left alone."""
    return kind.chain(choice).fitted(*kind.training())


def model_notes(kind: Kind, choice: Chosen) -> dict[str, Any]:
    """What a model file must know to tell labels and neighbors by their names."""
    data = kind.describe()
    notes: dict[str, Any] = {
        "method": choice.method.name,
        "label": choice.method.label,
        "setting": choice.words(),
        "data": data["name"],
        "unit": kind.table.noun,
        "n_rows": len(kind.training()[0]),
        "target": data["target"],
        "classes": data["classes"],
        "features": [str(name) for name in data["features"]],
    }
    if data.get("tensor_shape") is not None:
        notes["shape"] = data["tensor_shape"]
    name, ids = kind.ids()
    if ids is not None:
        notes |= {"id_name": name, "ids": [str(one) for one in ids]}
    for key in ("ids", "features"):
        if len(json.dumps(notes)) > _MOST_SAID:
            del notes[key]
    return notes
