"""What every estimator shares: tags, declared parameters, checks of what it is given."""

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
from nearfar.blocks import check_finite_samples
from nearfar.labels import encode_labels, encode_values
from nearfar.parameters import Allowed, check_parameter
from nearfar.state import Sizes, State, optional, whole


class Estimator(BaseEstimator):
    """An estimator with tags and declared parameters, which checks what it is given."""

    #: What it is, takes and reads.
    learner_tags: ClassVar[LearnerTags]
    #: What it has learned, on top of what its bases say.
    state: ClassVar[State] = State({"n_features_in_": optional(whole("p"))})
    #: What the class was called in older model files, and its parameters and attributes (old name
    #: to new) and their choices (by the new name of the parameter, old to new).
    former_names: ClassVar[Sequence[str]] = ()
    renamed: ClassVar[Mapping[str, str]] = {}
    renamed_values: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    #: Parameters worth trying beside the defaults when nothing is known of the data; up to three.
    settings: ClassVar[Sequence[dict[str, Any]]] = ()

    #: Methods that it is with some parameters, by name: a user may ask for them so.
    also_called: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    #: For each parameter of ``__init__`` the kinds of values it may take.
    parameters: ClassVar[dict[str, Sequence[Allowed]]] = {}

    #: Called at each iteration of a long fit with its number, from 1, and what is known of it. To
    #: be set on an estimator; no parameter, so that copies and model files stay plain.
    callback: Callback | None = None

    @classmethod
    def settings_for(cls, n_rows: int, n_features: int) -> Sequence[dict[str, Any]]:
        """Parameters worth trying on data of this size, the best guess first."""
        return ({}, *cls.settings)

    def __getstate__(self) -> dict[str, Any]:
        kept: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in kept.items() if name != "callback"}

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
        open_channel(self, getattr(self, "verbose", 0))  # a fit begins

    def _check_state(self, sizes: Sizes) -> None:
        """Raise a ``ValueError`` if what was learned makes no sense, beyond what ``state`` says."""

    def _bring_up_to_date(self) -> dict[str, str]:
        """Rename what an older model file has under former names, which are returned with new."""
        names: dict[str, str] = {}
        choices: dict[str, Mapping[str, Any]] = {}
        for base in reversed(type(self).__mro__):
            names |= vars(base).get("renamed", {})
            choices |= vars(base).get("renamed_values", {})
        held = self.__dict__
        for old in names.keys() & held.keys():
            held.setdefault(names[old], held.pop(old))
        for name, values in choices.items():
            if isinstance(held.get(name), str):
                held[name] = values.get(held[name], held[name])
        return names

    def _forget(self) -> None:
        """Drop what was learned."""
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
        """X as a finite float array.

        ``reset`` is for ``fit``: what was learned before is forgotten, so that a fit that fails
        leaves no old map behind, and ``n_features_in_`` and feature names are set.

        ``finite=False`` leaves NaN and infinity to whoever reads the rows next; ``half`` is for
        those who read float16 rows as they are, block by block.
        """
        if reset:
            self._forget()
        elif not finite and self._fits_as_it_is(X):
            return X  # type: ignore[return-value]
        if sparse.issparse(X):
            raise TypeError(
                f"{type(self).__name__} takes dense data, but X is a sparse matrix. Reduce it "
                "first, for example with sklearn.decomposition.TruncatedSVD."
            )
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
        except ValueError as error:
            if "X" in str(error):
                raise
            raise ValueError(f"X: {error}") from error
        if len(rows) < min_samples:
            if reset:
                self._forget()
            raise ValueError(
                f"X has {len(rows)} sample(s) (shape={rows.shape}) while a minimum of "
                f"{min_samples} is required by {name}."
            )
        if finite and half:  # scikit-learn would hold as many booleans as there are numbers
            check_finite_samples(rows)
        return rows

    def _fits_as_it_is(self, X: object) -> bool:
        """Whether X is like the rows before, with nothing to convert or to say about names.

        Checking a small batch in full takes longer than to learn from it.
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
        """Sorted classes and the code of each row."""
        name = type(self).__name__
        if y is None:
            raise ValueError(
                f"{name} requires y to be passed, but the target y is None: it learns from labels."
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
        """Numbers to predict, finite and, unless they may be ``constant``, not all the same."""
        name = type(self).__name__
        if y is None:
            raise ValueError(
                f"{name} requires y to be passed, but the target y is None: it learns from numbers."
            )
        values = encode_values(y)
        if len(values) != n_samples:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X has {n_samples} "
                f"rows and y has {len(values)} values."
            )
        if not constant and values.min() == values.max():
            raise ValueError(f"{name} needs numbers that differ; y has only one, {values[0]!r}.")
        return values
