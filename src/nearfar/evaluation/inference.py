"""What repeated cross-validation can say: corrected intervals, Holm's p, rows that would decide.

Pure functions of errors fold by fold. Folds of one data set share training rows, so their errors
are correlated and the plain t interval is far too short; Nadeau and Bengio's correction adds the
ratio of test to training rows to the variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error and degrees of freedom.

    >>> estimate = corrected_estimate([0.1, 0.2, 0.15, 0.1, 0.2], test_share=0.25)
    >>> low, high = estimate.interval()
    >>> round(estimate.mean, 3), round(low, 3), round(high, 3)
    (0.15, 0.057, 0.243)
    """

    mean: float
    standard_error: float
    degrees: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The two-sided t interval; infinite where one fold is all there is."""
        if not self.degrees > 0:
            return (-np.inf, np.inf)
        half = float(special.stdtrit(self.degrees, 0.5 + confidence / 2)) * self.standard_error
        return (self.mean - half, self.mean + half)

    def p_below_zero(self) -> float:
        """One-sided p against "the mean is zero or more": how surely it is below zero."""
        if not self.degrees > 0:
            return 1.0
        if self.standard_error == 0:
            return 1.0 if self.mean >= 0 else 0.0
        return float(special.stdtr(self.degrees, self.mean / self.standard_error))


def corrected_estimate(
    values: ArrayLike, test_share: float, *, resolution: float = 0.0
) -> Estimate:
    r"""Mean over J folds with the corrected resampled variance.

    .. math:: \left(\frac{1}{J} + \frac{n_{test}}{n_{train}}\right) s^2

    ``test_share`` is test rows for each training row, averaged over the folds; ``resolution`` the
    least s, what one test row is worth: equal values in a few small folds are no certainty.

    C. Nadeau and Y. Bengio, "Inference for the generalization error", Machine Learning 52, 2003.
    """
    numbers = np.asarray(values, dtype=np.float64)
    n = len(numbers)
    if n < 2:
        return Estimate(float(numbers.mean()) if n else np.nan, np.nan, 0.0)
    variance = max(numbers.var(ddof=1), resolution**2) * (1.0 / n + test_share)
    return Estimate(float(numbers.mean()), float(np.sqrt(variance)), n - 1.0)


def row_estimate(
    losses: ArrayLike, strata: ArrayLike | None = None, *, unit: float = 1.0
) -> Estimate:
    """Mean of losses of independent test rows; with strata, the mean of the strata's means.

    For a fixed test file, where there is one fold and the rows are what varies. Strata are the true
    classes when the error is balanced. The sum of squares is that of the rows and of two more, one
    each way: so few rows, or rows that all agree, are no certainty, and paired losses come out much
    as in McNemar's exact test (A. Agresti and Y. Min, "Simple improved confidence intervals for
    comparing matched proportions", Statistics in Medicine 24, 2005). ``unit`` is the loss of these
    two: 1 where a row is right or wrong.

    >>> estimate = row_estimate([0, 0, 1, 0])
    >>> estimate.mean, round(estimate.standard_error, 3), estimate.degrees
    (0.25, 0.433, 3.0)
    """
    rows = np.asarray(losses, dtype=np.float64)
    groups = np.zeros(len(rows), np.intp) if strata is None else np.asarray(strata)
    parts = [rows[groups == group] for group in np.unique(groups)]
    mean = float(np.mean([part.mean() for part in parts]))
    degrees = float(len(rows) - len(parts))
    if degrees <= 0:
        return Estimate(mean, np.nan, 0.0)
    # A class with one test row has no variance of its own: the pooled one stands in.
    pooled = sum(float(((part - part.mean()) ** 2).sum()) for part in parts) / degrees
    both = 2.0 * unit**2
    variances = [
        ((float(part.var(ddof=1)) if len(part) > 1 else pooled) + both / len(parts) / len(part))
        / len(part)
        for part in parts
    ]
    return Estimate(mean, float(np.sqrt(sum(variances))) / len(parts), degrees)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down adjustment: p-values that bound the chance of any false claim.

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def rows_to_decide(difference: Estimate, n_rows: int, confidence: float = 0.95) -> float:
    """Roughly how many rows would bring the interval off zero, if the difference is what it seems.

    The standard error falls with the square root of the rows.

    >>> rows_to_decide(Estimate(-0.02, 0.02, 24), 500)
    2130.0
    """
    if not difference.degrees > 0 or difference.mean == 0:
        return np.inf
    wanted = float(special.stdtrit(difference.degrees, 0.5 + confidence / 2))
    factor = (wanted * difference.standard_error / abs(difference.mean)) ** 2
    return float(np.ceil(n_rows * max(1.0, factor) / 10) * 10)
