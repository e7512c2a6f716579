"""Base class of EuclideanEmbedding and LaplacianEmbedding."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base import Embedding, LearnerTags
from nearfar.distributions.objects import DistributionEstimator
from nearfar.state import State, floats

# n_components may be up to this number even if there are fewer objects. The columns that have no
# eigenvector are then filled with zeros.
_MIN_COMPONENT_LIMIT = 1000


class _DistributionEmbedding(Embedding, DistributionEstimator):
    """Embedding of distributions, with Nyström's formula for new objects.

    Subclasses implement `_embed` for training objects and `_embed_new` for new objects.
    """

    learner_tags = LearnerTags(reads="instances", input="sets", supervised=False)
    state = State(
        {"embedding_": floats("n", "q"), "_axes": floats("n", "q"), "eigenvalues_": floats("q")}
    )
    accepts_points = True

    n_components: int | float | str
    eigenvalues_: Matrix
    _axes: Matrix

    @abstractmethod
    def _embed(self, D: Matrix) -> Matrix:
        """Return coordinates of training objects from their dissimilarities.

        D may be overwritten.
        """

    @abstractmethod
    def _embed_new(self, D: Matrix) -> Matrix:
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
        self._check_n_components(len(D))
        self.embedding_ = self._embed(D).astype(dtype)
        return self

    def _transform(self, X: Any) -> Floats:
        check_is_fitted(self)
        new_objects = self._check_new_objects(X)
        coordinates = np.empty((len(new_objects.equal_to), self._axes.shape[1]))
        is_new = new_objects.equal_to < 0
        # Objects that are equal to a training object get its coordinates.
        if not is_new.all():
            coordinates[~is_new] = self.embedding_[self._firsts[new_objects.equal_to[~is_new]]]
        if is_new.any():
            blocks = [
                self._embed_new(D) for _, D in self._iterate_pair_blocks(new_objects.select(is_new))
            ]
            coordinates[is_new] = np.concatenate(blocks)
        return coordinates.astype(new_objects.dtype)

    def _check_n_components(self, n: int) -> None:
        """Raise if n_components is far larger than the number of objects.

        The array of coordinates would contain mostly zeros and might not fit into memory.
        """
        max_components = max(n, _MIN_COMPONENT_LIMIT)
        if isinstance(self.n_components, int | np.integer) and self.n_components > max_components:
            raise ValueError(
                f"n_components={self.n_components:,} is too large: {n} objects span at most "
                f"{n - 1} dimensions. Pass at most {max_components:,}."
            )

    def _pad_with_zeros(self, values: Matrix, vectors: Matrix) -> tuple[Matrix, Matrix]:
        """Return eigenvalues and eigenvectors, padded with zeros to n_components."""
        n_missing = int(self.n_components) - len(values)
        return np.pad(values, (0, n_missing)), np.pad(vectors, ((0, 0), (0, n_missing)))
