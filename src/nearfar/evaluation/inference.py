"""Inference from repeated cross-validation: corrected intervals, Holm's p-values, sample sizes.

The functions take the errors of the folds. Folds of one dataset share training rows, so their
errors are correlated and the uncorrected t interval is far too short. Nadeau and Bengio's
correction adds the ratio of test to training rows to the variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error and degrees of freedom.

    >>> estimate = estimate_from_folds([0.1, 0.2, 0.15, 0.1, 0.2], test_ratio=0.25)
    >>> low, high = estimate.interval()
    >>> round(estimate.mean, 3), round(low, 3), round(high, 3)
    (0.15, 0.057, 0.243)
    """

    mean: float
    standard_error: float
    degrees: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the two-sided t confidence interval. It is infinite for a single fold."""
        if not self.degrees > 0:
            return (-np.inf, np.inf)
        half_width = (
            float(special.stdtrit(self.degrees, 0.5 + confidence / 2)) * self.standard_error
        )
        return (self.mean - half_width, self.mean + half_width)

    def compute_p_value(self) -> float:
        """Return the one-sided p-value for the null hypothesis that the mean is at least zero."""
        if not self.degrees > 0:
            return 1.0
        if self.standard_error == 0:
            return 1.0 if self.mean >= 0 else 0.0
        return float(special.stdtr(self.degrees, self.mean / self.standard_error))


def estimate_from_folds(
    values: ArrayLike, test_ratio: float, *, resolution: float = 0.0
) -> Estimate:
    r"""Estimate the mean over J folds, with a variance corrected for overlapping training sets.

    .. math:: \left(\frac{1}{J} + \frac{n_{test}}{n_{train}}\right) s^2

    ``test_ratio`` is the number of test rows per training row, averaged over the folds.
    ``resolution`` is a lower limit for s, for example the effect of one test row on the error:
    equal values in a few small folds do not mean that the variance is zero.

    C. Nadeau and Y. Bengio, "Inference for the generalization error", Machine Learning 52, 2003.
    """
    numbers = np.asarray(values, dtype=np.float64)
    n = len(numbers)
    if n < 2:
        return Estimate(float(numbers.mean()) if n else np.nan, np.nan, 0.0)
    variance = max(numbers.var(ddof=1), resolution**2) * (1.0 / n + test_ratio)
    return Estimate(float(numbers.mean()), float(np.sqrt(variance)), n - 1.0)


def estimate_from_rows(
    losses: ArrayLike, strata: ArrayLike | None = None, *, unit: float = 1.0
) -> Estimate:
    """Estimate the mean loss of independent test rows, or the average of the means per stratum.

    This is for a fixed test set: there is one fold, and the variance comes from the rows. For the
    balanced error, the strata are the true classes. Two pseudo-rows, one with loss ``+unit`` and
    one with loss ``-unit``, are added to the sum of squares, so that a few rows, or rows with equal
    losses, do not have zero variance. Results for paired losses are then close to McNemar's exact
    test (A. Agresti and Y. Min, "Simple improved confidence intervals for comparing matched
    proportions", Statistics in Medicine 24, 2005). ``unit`` is 1 for losses that are 0 or 1.

    >>> estimate = estimate_from_rows([0, 0, 1, 0])
    >>> estimate.mean, round(estimate.standard_error, 3), estimate.degrees
    (0.25, 0.433, 3.0)
    """
    rows = np.asarray(losses, dtype=np.float64)
    groups = np.zeros(len(rows), np.intp) if strata is None else np.asarray(strata)
    samples = [rows[groups == group] for group in np.unique(groups)]
    mean = float(np.mean([sample.mean() for sample in samples]))
    degrees = float(len(rows) - len(samples))
    if degrees <= 0:
        return Estimate(mean, np.nan, 0.0)
    # A stratum with one test row has no variance of its own, so it uses the pooled variance.
    pooled = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in samples) / degrees
    pseudo_rows = 2.0 * unit**2
    variances = [
        (
            (float(sample.var(ddof=1)) if len(sample) > 1 else pooled)
            + pseudo_rows / len(samples) / len(sample)
        )
        / len(sample)
        for sample in samples
    ]
    return Estimate(mean, float(np.sqrt(sum(variances))) / len(samples), degrees)


def adjust_p_values(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return p-values adjusted by Holm's step-down method, which controls the family-wise error.

    >>> adjust_p_values([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(scaled, 1.0)
    return adjusted


def estimate_required_rows(difference: Estimate, n_rows: int, confidence: float = 0.95) -> float:
    """Estimate how many rows would make the confidence interval of a difference exclude zero.

    This assumes that the estimated difference is the true one, and that the standard error falls
    with the square root of the number of rows.

    >>> estimate_required_rows(Estimate(-0.02, 0.02, 24), 500)
    2130.0
    """
    if not difference.degrees > 0 or difference.mean == 0:
        return np.inf
    quantile = float(special.stdtrit(difference.degrees, 0.5 + confidence / 2))
    factor = (quantile * difference.standard_error / abs(difference.mean)) ** 2
    return float(np.ceil(n_rows * max(1.0, factor) / 10) * 10)
