"""Which estimators there are: the public names of the package, asked once."""

from __future__ import annotations

import importlib
from functools import cache

from nearfar.base.estimator import Estimator
from nearfar.base.learner import Learner
from nearfar.base.tags import Input, Role


def all_estimators(
    role: Role | None = None, input: Input | None = None
) -> dict[str, type[Estimator]]:
    """Every public estimator of the library by name, or those of a role or an input.

    Parameters
    ----------
    role : {"map", "classifier", "regressor", "clusterer", "kernel"}, optional
        What they give.
    input : {"vectors", "tensors", "sets", "pairs"}, optional
        What one sample is.

    Returns
    -------
    dict
        Classes by name, in the order of the names.

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
    """Every learner of a map, or of a kernel with its map, by name.

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
    """Every public class of the library by name, summaries too."""
    # By name at run time: the stub lists what is public, and nothing else does.
    package = importlib.import_module("nearfar")
    items = {name: getattr(package, name) for name in package.__all__}
    return {name: item for name, item in items.items() if isinstance(item, type)}
