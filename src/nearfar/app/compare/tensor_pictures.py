"""What estimators of tensors look like: factors and eigen-tensors, or weights of classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from nearfar.app.tables.images import data_uri, pictures
from nearfar.base import MultilinearLearner, TensorEstimator
from nearfar.base.linear_classifier import LinearClassifier, two_class_problems
from nearfar.datasets.table import Table

#: Eigen-tensors, samples, columns of a factor and their length, weight tensors, at most.
EIGEN, SAMPLES, CURVES, LENGTH, WEIGHTS = 8, 6, 4, 64, 12
#: Pixels on the longer side of a picture.
LARGEST = 48
# Numbers of the map of flat rows that are made to be drawn, at most.
_MOST_CELLS = 20_000_000


def tensors_of(
    chain: Pipeline | None, rows: NDArray[Any], numbers: NDArray[Any], *, show_rows: bool
) -> dict[str, Any] | None:
    """Of a fitted chain with a map or a classifier of tensors, what a page draws; else None.

    Parameters
    ----------
    chain : Pipeline
        Fitted; its step ``learner`` is asked.
    rows : ndarray of shape (n, p)
        Held-out rows: eigen-tensors are sorted by the variance they have among these, and what is
        kept is that of these.
    numbers : ndarray of shape (n,)
        What the rows are called.
    show_rows : bool
        Whether a few of them may be shown.
    """
    learner = None if chain is None else chain.named_steps.get("learner")
    if isinstance(learner, TensorEstimator) and isinstance(learner, LinearClassifier):
        return _weights(learner)
    if not isinstance(learner, MultilinearLearner) or chain is None:
        return None
    before = [(name, step) for name, step in chain.steps if name in ("prepare", "scale")]
    given = np.asarray(rows)
    for _, step in before:
        given = np.asarray(step.transform(given))
    given = given.reshape(len(given), -1)
    mapped = np.asarray(learner.transform(given), np.float64).reshape(len(given), -1)
    rebuilt = np.asarray(learner.inverse_transform(mapped)).reshape(len(given), -1)
    shape = tuple(int(size) for size in learner.tensor_shape_)
    found: dict[str, Any] = {
        "shape": list(shape),
        "kept": [int(size) for size in learner.n_components_],
        "n_features": int(mapped.shape[1]),
        "share": _share(given, rebuilt),
        "factors": [_curves(factor) for factor in learner.factors_],
        "eigen": [],
        "samples": [],
    }
    if Table("", None, tensor_shape=shape).image_shape is None:
        return found
    found["eigen"] = _eigen_pictures(learner, mapped, shape)
    if show_rows:
        scaler = chain.named_steps.get("scale")
        if hasattr(scaler, "inverse_transform"):
            given, rebuilt = (np.asarray(scaler.inverse_transform(one)) for one in (given, rebuilt))
        chosen = np.unique(np.linspace(0, len(given) - 1, SAMPLES).astype(int))
        drawn = pictures(
            np.concatenate([given[chosen], rebuilt[chosen]]), shape, 10**6, largest=LARGEST
        )
        found["samples"] = [
            {"row": int(numbers[row]), "original": original, "rebuilt": after}
            for row, original, after in zip(
                chosen, drawn[: len(chosen)], drawn[len(chosen) :], strict=True
            )
        ]
    return found


def _share(given: NDArray[Any], rebuilt: NDArray[Any]) -> float | None:
    """What of the squared deviations of rows from their mean is kept when they are rebuilt."""
    mean = given.mean(axis=0, dtype=np.float64)
    total = float(((given - mean) ** 2).sum())
    lost = float(((given - rebuilt) ** 2).sum())
    return max(0.0, 1.0 - lost / total) if total > 0 else None


def _curves(factor: NDArray[Any]) -> dict[str, Any]:
    """The first columns of a factor along its mode, thinned where that is long."""
    places = np.unique(np.linspace(0, len(factor) - 1, min(len(factor), LENGTH)).astype(int))
    lines = factor[places][:, :CURVES].T.astype(float)
    return {
        "length": len(factor),
        "n_columns": int(factor.shape[1]),
        "columns": [[float(f"{value:.4g}") for value in line] for line in lines],
    }


def _eigen_pictures(
    learner: MultilinearLearner, mapped: NDArray[np.float64], shape: tuple[int, ...]
) -> list[dict[str, Any]]:
    """The eigen-tensors of the largest variance as pictures."""
    if mapped.shape[1] * int(np.prod(shape)) > _MOST_CELLS:
        return []
    variances = mapped.var(axis=0)
    total = float(variances.sum()) or 1.0
    found = []
    components = np.asarray(learner.components_, np.float64)
    for which in np.argsort(-variances, kind="stable")[:EIGEN]:
        picture = _signed_picture(components[which].reshape(shape))
        found.append({"picture": picture, "share": float(variances[which] / total)})
    return found


def _signed_picture(tensor: NDArray[np.float64]) -> str | None:
    """A tensor of an image's shape: mid grey is zero, white the largest."""
    tensor = tensor.mean(axis=2) if tensor.ndim == 3 and tensor.shape[2] != 3 else tensor
    largest = float(np.abs(tensor).max()) or 1.0
    return data_uri(127.5 * (1 + tensor / largest), LARGEST)


def _weights(machine: Any) -> dict[str, Any]:
    """The weight tensors of a classifier as pictures, with the classes on either side."""
    shape = tuple(int(size) for size in machine.tensor_shape_)
    names = [str(name) for name in machine.classes_.tolist()]
    problems = two_class_problems(len(names), machine.multi_class)
    found: dict[str, Any] = {
        "shape": list(shape),
        "rank": int(getattr(machine, "rank", 1)),
        "n_problems": len(problems),
        "weights": [],
        "samples": [],
    }
    if Table("", None, tensor_shape=shape).image_shape is None:
        return found
    for weight, problem in list(zip(machine.coef_, problems, strict=True))[:WEIGHTS]:
        found["weights"].append(
            {
                "picture": _signed_picture(np.asarray(weight, np.float64).reshape(shape)),
                "light": names[problem.positive[0]],
                "dark": names[problem.negative[0]] if len(problem.negative) == 1 else None,
            }
        )
    return found
