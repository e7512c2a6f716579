"""Learners of coordinates for what they are fitted on, with a formula for what is new."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from nearfar.arrays import Floats
from nearfar.base.learner import Learner
from nearfar.state import State, floats, optional


class Embedding(ClassNamePrefixFeaturesOutMixin, Learner):
    """A learner that sets ``embedding_``; write ``fit`` and ``transform``."""

    state = State({"embedding_": optional(floats("samples", "q"))}, fitted="embedding_")

    embedding_: Floats

    def fit_transform(self, X: Any, y: ArrayLike | None = None) -> Floats:
        """Fit, and return the coordinates of what it was fitted on, ``embedding_``.

        Parameters
        ----------
        X : as in ``fit``
            What to embed.
        y : ignored
            For the API.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            In the dtype of X.
        """
        return self.fit(X).embedding_.copy()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "embedding_")

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])
