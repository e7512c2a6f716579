"""Base class of embeddings: coordinates of the training samples, and a formula for new ones."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from nearfar.arrays import Floats
from nearfar.base.learner import Learner
from nearfar.state import State, floats, optional


class Embedding(ClassNamePrefixFeaturesOutMixin, Learner):
    """Learner that sets ``embedding_``. Subclasses implement ``fit`` and ``transform``."""

    state = State({"embedding_": optional(floats("samples", "q"))}, fitted="embedding_")

    embedding_: Floats

    def fit_transform(self, X: Any, y: ArrayLike | None = None) -> Floats:
        """Fit to X and return the coordinates of the training samples, ``embedding_``.

        Parameters
        ----------
        X : as in ``fit``
            Training samples.
        y : ignored
            Present for API consistency.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Coordinates, in the dtype of X.
        """
        return self.fit(X).embedding_.copy()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "embedding_")

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])
