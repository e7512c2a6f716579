"""Lists of the public estimators of the package."""

from __future__ import annotations

import importlib
from functools import cache

from nearfar.base.estimator import Estimator
from nearfar.base.learner import Learner
from nearfar.base.tags import Input, Role


def all_estimators(
    role: Role | None = None, input: Input | None = None
) -> dict[str, type[Estimator]]:
    """Return the public estimators by name, optionally filtered by role and input.

    Parameters
    ----------
    role : {"map", "classifier", "regressor", "clusterer", "kernel"}, optional
        Role of the estimators. None selects all roles.
    input : {"vectors", "tensors", "sets", "pairs"}, optional
        Type of one sample. None selects all types.

    Returns
    -------
    dict
        Classes by name, sorted by name.

    Examples
    --------
    >>> sorted(all_estimators(role="classifier", input="sets"))
    ['GaitRecognizer', 'SetKNeighborsClassifier']
    """
    return {
        name: kind
        for name, kind in sorted(public_classes().items())
        if issubclass(kind, Estimator)
        and role in (None, kind.learner_tags.role)
        and input in (None, kind.learner_tags.input)
    }


def all_learners() -> dict[str, type[Learner]]:
    """Return all learners that have ``transform``, by name.

    >>> "LMNN" in all_learners()
    True
    """
    return {
        name: kind
        for name, kind in all_estimators().items()
        if issubclass(kind, Learner) and kind.learner_tags.maps
    }


@cache
def public_classes() -> dict[str, type]:
    """Return all public classes by name, including those that are not estimators."""
    # Import the package at run time, because its stub is the only list of public names.
    package = importlib.import_module("nearfar")
    items = {name: getattr(package, name) for name in package.__all__}
    return {name: item for name, item in items.items() if isinstance(item, type)}
