"""What the two embeddings of distributions share: coordinates, old and new."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base import Embedding, LearnerTags
from nearfar.distributions.objects import OverDistributions
from nearfar.state import State, floats

#: Up to so many dimensions are filled up with zeros where the objects are fewer.
_MOST_EMPTY = 1000


class _DistributionEmbedding(Embedding, OverDistributions):
    """A learner of coordinates for distributions, with Nyström's formula for new ones.

    Subclasses write ``_embed``, which sees dissimilarities, and ``_place``.
    """

    learner_tags = LearnerTags(reads="instances", input="sets", supervised=False)
    state = State(
        {"embedding_": floats("n", "q"), "_axes": floats("n", "q"), "eigenvalues_": floats("q")}
    )
    takes_points = True

    n_components: int | float | str
    eigenvalues_: Matrix
    _axes: Matrix

    @abstractmethod
    def _embed(self, D: Matrix) -> Matrix:
        """Coordinates of training objects from their dissimilarities, which may be spoilt."""

    @abstractmethod
    def _place(self, D: Matrix) -> Matrix:
        """Coordinates of new objects from their dissimilarities to the training objects."""

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Embed distributions.

        Parameters
        ----------
        X : Gaussians, Sets, list of arrays (t_i, p), or array-like of shape (n, p) or (n, n)
            What to embed: distributions; sets of vectors; points; or dissimilarities, if
            ``metric="precomputed"``.
        y : ignored
            For the API.

        Returns
        -------
        object
            The learner itself.
        """
        D, dtype = self._fit_pairs(X)
        self._check_components(len(D))
        self.embedding_ = self._embed(D).astype(dtype)
        return self

    def _transform(self, X: Any) -> Floats:
        check_is_fitted(self)
        new = self._new_objects(X)
        placed = np.empty((len(new.same), self._axes.shape[1]))
        strange = new.same < 0
        if not strange.all():  # the others are where they were
            placed[~strange] = self.embedding_[self._firsts[new.same[~strange]]]
        if strange.any():
            places = [self._place(D) for _, D in self._pair_blocks(new.only(strange))]
            placed[strange] = np.concatenate(places)
        return placed.astype(new.dtype)

    def _check_components(self, n: int) -> None:
        """Refuse dimensions that no objects of this number can fill, and no memory may hold."""
        most = max(n, _MOST_EMPTY)
        if isinstance(self.n_components, int | np.integer) and self.n_components > most:
            raise ValueError(
                f"n_components={self.n_components:,} is far more than {n} objects can span, "
                f"{n - 1}; ask for {most:,} at most."
            )

    def _padded(self, values: Matrix, vectors: Matrix) -> tuple[Matrix, Matrix]:
        """Eigenvalues and vectors, with zeros for those that are not there."""
        empty = int(self.n_components) - len(values)
        return np.pad(values, (0, empty)), np.pad(vectors, ((0, 0), (0, empty)))
