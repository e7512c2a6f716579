"""Means, scatters, covariances and factors computed from accumulated class statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Floats, Matrix
from nearfar.blocks import limit_blas_for
from nearfar.labels import make_label_array
from nearfar.summaries.second_moment import SecondMoment


class ClassReadings:
    """Base class of `ClassStatistics` with the methods that compute scatters and covariances.

    Private arrays list the classes in order of first appearance. Public arrays are sorted by label.
    """

    pooled: bool
    _labels: list[Any]
    _counts: NDArray[np.int64]
    _weights: NDArray[np.float64]
    _shifts: NDArray[np.float64]
    _origin: Floats | float
    _firsts: NDArray[np.float64]
    _seconds: list[SecondMoment]
    _precision: float
    _rounded: bool

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self._shifts.shape[1])

    @property
    def n_classes(self) -> int:
        """Number of classes seen."""
        return len(self._labels)

    @property
    def classes(self) -> NDArray[Any]:
        """Distinct labels, sorted."""
        return make_label_array(self._labels)[self._order]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of rows of each class."""
        return self._counts[self._order]

    @property
    def weights(self) -> NDArray[np.float64]:
        """Sum of the sample weights of each class."""
        return self._weights[self._order]

    @property
    def means(self) -> NDArray[np.float64]:
        """Class means, of shape (n_classes, n_features)."""
        return (self._shifts + self._firsts / self._weights[:, None])[self._order] + self._origin

    @property
    def total_weight(self) -> float:
        """Sum of all sample weights."""
        return float(self._weights.sum())

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of all rows."""
        self._check_has_rows()
        reference = self._shifts[0]
        deviation = self._weights @ (self._shifts - reference) + self._firsts.sum(axis=0)
        return reference + deviation / self.total_weight + self._origin

    @property
    def is_factored(self) -> bool:
        """Whether the statistics store rows instead of dense scatter matrices."""
        return all(second_moment.dense is None for second_moment in self._seconds)

    @property
    def precision(self) -> float:
        """Machine epsilon of the least precise dtype among the added rows."""
        return self._precision

    @property
    def is_rounded(self) -> bool:
        """Whether scatters of float32 rows were computed in float32."""
        return self._rounded

    def is_ill_conditioned(self) -> bool:
        """Return True if the within scatter has fewer than about two correct digits."""
        if not self._rounded:
            return False
        return not self.exceeds_rounding(np.sqrt(np.maximum(self.within_scatter().diagonal(), 0)))

    def exceeds_rounding(self, scale: Matrix) -> bool:
        """Return True if the within scatter of X / scale exceeds 1e-4 in all directions."""
        with limit_blas_for(self.n_features**3 / 3):
            within_scatter = self.within_scatter()
            is_used = self.varying_features() & (scale > 0)
            scaled_scatter = within_scatter[np.ix_(is_used, is_used)] / np.outer(
                scale[is_used], scale[is_used]
            )
            scaled_scatter.flat[:: len(scaled_scatter) + 1] -= 1e-4
            try:
                np.linalg.cholesky(scaled_scatter)
            except np.linalg.LinAlgError:
                return False
            return True

    @property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(make_label_array(self._labels), kind="stable")

    def scatter(self, label: Any) -> NDArray[np.float64]:
        """Return the scatter of one class."""
        slot = self._find_slot(label)
        return self._seconds[slot].scatter(self._firsts[[slot]], self._weights[[slot]])

    def covariance(
        self,
        label: Any = None,
        *,
        ddof: float = 0,
        ridge: float = 0.0,
        shrinkage: float = 0.0,
    ) -> NDArray[np.float64]:
        r"""Return the covariance of one class, or the pooled within-class covariance.

        .. math:: \Sigma = (1-g)\,S/(W - d) + (g\,\mathrm{tr}(S)/((W-d)\,p) + r) I

        Here S is the scatter, W the weight, d is ``ddof`` (times the number of classes for the
        pooled covariance), g is ``shrinkage``, r is ``ridge`` and p the number of features.

        Parameters
        ----------
        label : optional
            Label of the class. None means the pooled within-class covariance.
        ddof : float, default=0
            Number subtracted from each class weight to get the divisor: 0 for the maximum
            likelihood estimate, 1 for the unbiased estimate.
        ridge : float, default=0
            Number added to the diagonal.
        shrinkage : float in [0, 1], default=0
            Weight of the identity matrix that is mixed into the covariance. The identity matrix is
            scaled to have the same trace as the covariance.

        Returns
        -------
        ndarray of shape (n_features, n_features)
        """
        if label is None:
            scatter, weight = self.within_scatter(), self.total_weight
            divisor = weight - ddof * self.n_classes
        else:
            scatter, weight = self.scatter(label), float(self._weights[self._find_slot(label)])
            divisor = weight - ddof
        _check_divisor(divisor, weight, ddof)
        covariance = scatter / divisor
        diagonal_increment = shrinkage * np.trace(covariance) / self.n_features + ridge
        covariance *= 1 - shrinkage
        covariance.flat[:: self.n_features + 1] += diagonal_increment
        return covariance

    def sigma_dot(
        self, B: ArrayLike, *, ddof: float = 0, ridge: float = 0.0, shrinkage: float = 0.0
    ) -> NDArray[np.float64]:
        """Return the product of each class covariance and a matrix with few columns.

        No p×p matrix is formed if the statistics are factored.

        Parameters
        ----------
        B : array-like of shape (n_features, q)
            Matrix by which the covariances are multiplied.
        ddof, ridge, shrinkage : float
            Regularization of the covariances; see :meth:`covariance`.

        Returns
        -------
        ndarray of shape (n_classes, n_features, q)
        """
        self._check_not_pooled()
        matrix = np.asarray(B, dtype=np.float64)
        products = np.empty((self.n_classes, *matrix.shape))
        for k, slot in enumerate(self._order):
            second_moment, weight = self._seconds[slot], float(self._weights[slot])
            _check_divisor(weight - ddof, weight, ddof)
            first_moment, weights = self._firsts[[slot]], self._weights[[slot]]
            divisor = weight - ddof
            diagonal_increment = (
                shrinkage * second_moment.trace(first_moment, weights) / (divisor * self.n_features)
                + ridge
            )
            products[k] = (
                second_moment.dot(matrix, first_moment, weights) * ((1 - shrinkage) / divisor)
                + diagonal_increment * matrix
            )
        return products

    def scatter_traces(self) -> NDArray[np.float64]:
        """Return the trace of the scatter of each class."""
        self._check_not_pooled()
        return np.array(
            [
                self._seconds[slot].trace(self._firsts[[slot]], self._weights[[slot]])
                for slot in self._order
            ]
        )

    def within_scatter(self) -> NDArray[np.float64]:
        """Return the within scatter: the sum of the scatters of all classes."""
        self._check_has_rows()
        if self.pooled:
            return self._seconds[0].scatter(self._firsts, self._weights)
        total = np.zeros((self.n_features, self.n_features))
        for slot, second_moment in enumerate(self._seconds):
            total += second_moment.scatter(self._firsts[[slot]], self._weights[[slot]])
        return total

    def read_within(
        self, of_matrix: Callable[[Matrix], NDArray[Any]], of_rows: Callable[[Matrix], NDArray[Any]]
    ) -> Matrix:
        """Return f(S) for a linear function f and the pooled within scatter S, without forming S.

        Parameters
        ----------
        of_matrix : callable
            The function f, which takes a p×p matrix.
        of_rows : callable
            Function that takes a matrix H with p columns and returns ``f(H.T @ H)``.

        Returns
        -------
        ndarray
            The result of ``f(within_scatter())``.
        """
        self._check_has_rows()
        (second_moment,) = self._seconds
        return second_moment.read(of_matrix, of_rows, self._firsts, self._weights)

    def within_dot(self, B: ArrayLike) -> NDArray[np.float64]:
        """Return the product of the within scatter and a matrix with few columns.

        No p×p matrix is formed if the statistics are factored.
        """
        matrix = np.asarray(B, dtype=np.float64)
        if self.pooled:
            return self._seconds[0].dot(matrix, self._firsts, self._weights)
        product = np.zeros_like(matrix)
        for slot, second_moment in enumerate(self._seconds):
            product += second_moment.dot(matrix, self._firsts[[slot]], self._weights[[slot]])
        return product

    def within_factor(self) -> NDArray[np.float64]:
        """Return H such that ``H.T @ H`` is the within scatter.

        Raises ``ValueError`` if a scatter is dense.
        """
        if not self.is_factored:
            raise ValueError(
                "These statistics store dense scatters, so they have no factors. "
                "Use the scatters instead."
            )
        means = self._firsts / self._weights[:, None]
        return np.concatenate([second_moment.factor(means) for second_moment in self._seconds])

    def class_factors(self) -> list[NDArray[np.float64]]:
        """Return a matrix H per class such that ``H.T @ H`` is the scatter of the class.

        Raises ``ValueError`` if a scatter is dense.
        """
        self._check_not_pooled()
        if not self.is_factored:
            raise ValueError(
                "These statistics store dense scatters, so they have no factors. "
                "Use the scatters instead."
            )
        means = self._firsts / self._weights[:, None]
        return [self._seconds[slot].factor(means[[slot]]) for slot in self._order]

    def between_factor(self) -> NDArray[np.float64]:
        """Return H with rows ``sqrt(W_c) (m_c - m)``, so ``H.T @ H`` is the between scatter."""
        return self._compute_between_rows()[self._order]

    def _compute_between_rows(self) -> NDArray[np.float64]:
        """Return the rows of `between_factor`, with the classes in order of first appearance."""
        self._check_has_rows()
        # Use differences between the class shifts instead of the shifts, because the differences
        # are small and exact.
        deviations = self._firsts / self._weights[:, None]
        deviations += self._shifts - self._shifts[0]
        deviations -= self._weights @ deviations / self.total_weight
        deviations *= np.sqrt(self._weights)[:, None]
        return deviations

    def between_scatter(self) -> NDArray[np.float64]:
        """Return the between scatter: the scatter of the class means, weighted by class weights."""
        factor = self._compute_between_rows()
        return factor.T @ factor

    def total_scatter(self) -> NDArray[np.float64]:
        """Return the scatter of all rows about their mean: within plus between scatter."""
        return self.within_scatter() + self.between_scatter()

    def total_factor(self) -> NDArray[np.float64]:
        """Return H such that ``H.T @ H`` is the total scatter.

        Raises ``ValueError`` if a scatter is dense.
        """
        return np.concatenate([self.within_factor(), self.between_factor()])

    def total_variances(self) -> NDArray[np.float64]:
        """Return the variance of each feature: the diagonal of the total covariance."""
        within_diagonal = np.zeros(self.n_features)
        if self.pooled:
            within_diagonal += self._seconds[0].diagonal(self._firsts, self._weights)
        else:
            for slot, second_moment in enumerate(self._seconds):
                within_diagonal += second_moment.diagonal(
                    self._firsts[[slot]], self._weights[[slot]]
                )
        between_rows = self._compute_between_rows()
        diagonal = np.maximum(within_diagonal, 0) + np.einsum(
            "ij,ij->j", between_rows, between_rows
        )
        return diagonal / self.total_weight

    def varying_features(self, variances: Floats | None = None) -> NDArray[np.bool_]:
        """Return a mask of the features that vary by more than rounding errors.

        ``variances`` can be passed if `total_variances` was computed before.
        """
        deviation = np.sqrt(self.total_variances() if variances is None else variances)
        means = self._shifts + self._firsts / self._weights[:, None] + self._origin
        return deviation > 16 * self._precision * np.maximum(means.max(axis=0), -means.min(axis=0))

    def _find_slot(self, label: Any) -> int:
        self._check_not_pooled()
        for slot, own_label in enumerate(self._labels):
            if own_label == label:
                return slot
        raise KeyError(f"Class {label!r} not found; the classes are {self.classes.tolist()}.")

    def _check_has_rows(self) -> None:
        if not self._labels:
            raise ValueError("These statistics hold no rows yet; call partial_fit first.")

    def _check_not_pooled(self) -> None:
        if self.pooled:
            raise ValueError(
                "Pooled statistics have no covariances of single classes. Create the statistics "
                "with pooled=False."
            )


def _check_divisor(divisor: float, weight: float, ddof: float) -> None:
    if divisor <= 0:
        raise ValueError(f"ddof={ddof} is too large for a total weight of {weight:g}. Use ddof=0.")
