"""Base class of all estimators: tags, declared parameters and input validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from nearfar.arrays import Floats, Vector
from nearfar.base.progress import Callback, open_channel
from nearfar.base.tags import LearnerTags
from nearfar.blocks import check_finite_samples, check_mask, check_range
from nearfar.labels import encode_labels, encode_values
from nearfar.parameters import AllowedValues, check_parameter
from nearfar.state import Sizes, State, integer_value, optional

# Tuples of points that can be supervision, by the number of points.
_TUPLES = {2: "pairs", 3: "triplets", 4: "quadruplets"}


class Estimator(BaseEstimator):
    """Base estimator with tags, declared parameters and input validation."""

    #: Role, input type and supervision of the estimator.
    learner_tags: ClassVar[LearnerTags]
    #: Fitted attributes that a model file must contain, in addition to those of the base classes.
    state: ClassVar[State] = State({"n_features_in_": optional(integer_value("p"))})
    #: Names of the class in older model files.
    former_names: ClassVar[Sequence[str]] = ()
    #: Renamed parameters and attributes, as a dict from the names in older model files to the new
    #: names.
    renamed: ClassVar[Mapping[str, str]] = {}
    #: Renamed parameter values. The keys are the new names of parameters. Each value is a dict from
    #: the values in older model files to the new values.
    renamed_values: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    #: Up to three parameter settings that are worth trying on new data, in addition to the
    #: defaults.
    settings: ClassVar[Sequence[dict[str, Any]]] = ()

    #: Names of well-known methods that this estimator implements, with the parameters of each
    #: method. Users can select the estimator by one of these names.
    aliases: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    #: The allowed values of each parameter of ``__init__``.
    parameters: ClassVar[dict[str, Sequence[AllowedValues]]] = {}

    #: Function called at each iteration of a long fit with the iteration number (from 1) and a dict
    #: of progress values. The function is an attribute and not a parameter, so that clones and
    #: model files do not contain it.
    callback: Callback | None = None

    @classmethod
    def settings_for(cls, n_rows: int, n_features: int) -> Sequence[dict[str, Any]]:
        """Return parameter settings to try on data of this size, with the best guess first."""
        return ({}, *cls.settings)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "callback"}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.two_d_array = self.learner_tags.input == "vectors"
        tags.input_tags.three_d_array = self.learner_tags.input in ("tensors", "pairs")
        tags.target_tags.required = self.learner_tags.supervised
        return tags

    def _check_parameters(self) -> None:
        for name, allowed in self.parameters.items():
            check_parameter(type(self).__name__, name, getattr(self, name), allowed)
        open_channel(self, getattr(self, "verbose", 0))  # Every fit calls _check_parameters.

    def _check_state(self, sizes: Sizes) -> None:
        """Raise a ``ValueError`` for errors in fitted attributes that ``state`` cannot detect."""

    def _bring_up_to_date(self) -> dict[str, str]:
        """Replace names and values from an older model file. Return a dict of new names."""
        names: dict[str, str] = {}
        choices: dict[str, Mapping[str, Any]] = {}
        for base in reversed(type(self).__mro__):
            names |= vars(base).get("renamed", {})
            choices |= vars(base).get("renamed_values", {})
        attributes = self.__dict__
        for old in names.keys() & attributes.keys():
            attributes.setdefault(names[old], attributes.pop(old))
        for name, values in choices.items():
            if isinstance(attributes.get(name), str):
                attributes[name] = values.get(attributes[name], attributes[name])
        return names

    def _forget(self) -> None:
        """Delete all fitted attributes."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            del self.__dict__[name]

    def _check_X(
        self,
        X: ArrayLike,
        *,
        reset: bool,
        min_samples: int = 1,
        finite: bool = True,
        half: bool = False,
    ) -> Floats:
        """Validate X and return it as a finite float array with values of a moderate size.

        ``reset=True`` is for ``fit``: it deletes the fitted attributes first, so that a failed fit
        leaves no old map, and sets ``n_features_in_`` and the feature names.

        ``finite=False`` skips the checks for NaN, infinity and extreme values, which the caller
        must then do.
        ``half=True`` keeps float16 rows, for callers that convert them block by block.
        """
        if reset:
            self._forget()
        elif not finite and self._is_valid_batch(X):
            return X  # type: ignore[return-value]
        if sparse.issparse(X):
            raise TypeError(
                f"{type(self).__name__} requires dense data, but X is a sparse matrix. Reduce its "
                "dimension first, for example with sklearn.decomposition.TruncatedSVD."
            )
        check_mask(X, "X")
        self._reject_tuples_of_points(X)
        name = type(self).__name__
        half = half and getattr(X, "dtype", None) == np.float16
        try:
            rows: Floats = validate_data(
                self,
                X,
                reset=reset,
                dtype=np.float16 if half else [np.float64, np.float32],
                ensure_min_samples=0,
                ensure_all_finite=finite and not half,
            )
        except (TypeError, ValueError, OverflowError) as error:
            if "X" in str(error):
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"X: {error}") from error
        if len(rows) < min_samples:
            if reset:
                self._forget()
            raise ValueError(
                f"X has {len(rows)} sample(s) (shape={rows.shape}) while a minimum of "
                f"{min_samples} is required by {name}."
            )
        if finite and half:
            # scikit-learn's check would allocate a boolean array as large as X.
            check_finite_samples(rows)
        if finite:
            self._check_range(rows, small=reset)
        return rows

    def _reject_tuples_of_points(self, X: Any) -> None:
        """Raise if X contains pairs, triplets or quadruplets of points, as for metric-learn."""
        shape: tuple[int, ...] = np.shape(X) if hasattr(X, "ndim") else ()
        noun = _TUPLES.get(shape[1], "") if len(shape) == 3 else ""
        if noun in self.learner_tags.supervision:
            name = type(self).__name__
            remedy = f"fit PairClassifier({name}()) on the pairs, or " if noun == "pairs" else ""
            raise ValueError(
                f"X has shape {shape}, which looks like {noun} of points, but {name} expects rows "
                f"of shape (n_samples, n_features). To learn from {noun}, {remedy}convert them: "
                f"rows, {noun} = {noun.capitalize()}.from_arrays(...), then "
                f"{name}().fit(rows, supervision={noun})."
            )

    def _check_range(self, rows: Floats, *, small: bool) -> None:
        """Raise if values of X are extreme. ``small`` is True in ``fit``, which then fails."""
        try:
            check_range(rows, "X", small=small)
        except ValueError:
            if small:
                self._forget()
            raise

    def _is_valid_batch(self, X: object) -> bool:
        """Return True if X needs no conversion and matches the features of earlier batches.

        The full check of a small batch takes longer than learning from it.
        """
        return (
            type(X) is np.ndarray
            and X.ndim == 2
            and len(X) > 0
            and X.dtype in (np.float64, np.float32)
            and X.shape[1] == getattr(self, "n_features_in_", -1)
            and not hasattr(self, "feature_names_in_")
        )

    def _check_labels(
        self, y: ArrayLike | None, n_samples: int, *, min_classes: int = 2
    ) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Return the sorted classes and the class index of each row."""
        name = type(self).__name__
        if y is None:
            raise ValueError(
                f"{name} requires y to be passed, but the target y is None. Pass labels as y."
            )
        classes, codes = encode_labels(y)
        if len(codes) != n_samples:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X has {n_samples} "
                f"rows and y has {len(codes)} labels."
            )
        if len(classes) < min_classes:
            raise ValueError(
                f"{name} needs at least {min_classes} classes; y has only one class "
                f"({classes.tolist()[0]!r})."
            )
        return classes, codes

    def _check_values(
        self, y: ArrayLike | None, n_samples: int, *, constant: bool = False
    ) -> Vector:
        """Return y as finite numbers. Reject equal numbers unless ``constant`` is True."""
        name = type(self).__name__
        if y is None:
            raise ValueError(
                f"{name} requires y to be passed, but the target y is None. Pass numbers as y."
            )
        values = encode_values(y)
        if len(values) != n_samples:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X has {n_samples} "
                f"rows and y has {len(values)} values."
            )
        if not constant and values.min() == values.max():
            raise ValueError(
                f"{name} needs at least two different values in y, but y has only one: "
                f"{values[0]!r}."
            )
        return values
