"""Base class of EuclideanEmbedding and LaplacianEmbedding."""

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

#: Upper limit for n_components if there are fewer objects than components. Columns without an
#: eigenvector are filled with zeros.
_MOST_EMPTY = 1000


class _DistributionEmbedding(Embedding, OverDistributions):
    """Embedding of distributions, with Nyström's formula for new objects.

    Subclasses implement `_embed` for training objects and `_place` for new ones.
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
        """Return coordinates of training objects from their dissimilarities.

        D may be overwritten.
        """

    @abstractmethod
    def _place(self, D: Matrix) -> Matrix:
        """Return coordinates of new objects from their dissimilarities to training objects."""

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Compute the embedding of the training objects.

        Parameters
        ----------
        X : Gaussians, Sets, list of arrays (t_i, p), or array-like of shape (n, p) or (n, n)
            Training objects: Gaussians, sets of vectors, points, or the dissimilarities of all
            pairs if ``metric="precomputed"``.
        y : ignored
            Present for API consistency.

        Returns
        -------
        object
            The fitted estimator.
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
        if not strange.all():  # training objects keep their coordinates
            placed[~strange] = self.embedding_[self._firsts[new.same[~strange]]]
        if strange.any():
            places = [self._place(D) for _, D in self._pair_blocks(new.only(strange))]
            placed[strange] = np.concatenate(places)
        return placed.astype(new.dtype)

    def _check_components(self, n: int) -> None:
        """Raise if n_components is far larger than the number of objects.

        Such an array would contain mostly zeros and might not fit into memory.
        """
        most = max(n, _MOST_EMPTY)
        if isinstance(self.n_components, int | np.integer) and self.n_components > most:
            raise ValueError(
                f"n_components={self.n_components:,} is too large: {n} objects span at most "
                f"{n - 1} dimensions. Pass at most {most:,}."
            )

    def _padded(self, values: Matrix, vectors: Matrix) -> tuple[Matrix, Matrix]:
        """Return eigenvalues and eigenvectors, padded with zeros to n_components."""
        empty = int(self.n_components) - len(values)
        return np.pad(values, (0, empty)), np.pad(vectors, ((0, 0), (0, empty)))
