"""Two learners from outside nearfar, shown on the page about extending."""

import numpy as np

from nearfar.base import LearnerTags, LinearLearner, StatisticsLearner
from nearfar.parameters import real


class WithinScale(StatisticsLearner):
    """Each feature divided by its standard deviation within the classes.

    Parameters
    ----------
    floor : float, default=1e-3
        Smallest share of a feature's variance that counts as within classes.
    """

    learner_tags = LearnerTags(reads="statistics")
    parameters = {"floor": [real(0, 1, open_low=True)]}

    def __init__(self, floor=1e-3):
        self.floor = floor

    def solve(self, statistics):
        """Components from the class statistics; rows are never seen."""
        if statistics.n_classes < 2:
            raise ValueError("WithinScale needs at least 2 classes; y has only one class.")
        within = np.diag(statistics.within_scatter()) / statistics.total_weight
        variance = np.maximum(within, self.floor * statistics.total_variances())
        varies = statistics.varying_features()
        return np.diag(np.where(varies, 1 / np.sqrt(np.where(varies, variance, 1)), 0))


class UnitSpread(LinearLearner):
    """All distances times one number, such that their mean square is ``spread``.

    Parameters
    ----------
    spread : float, default=1.0
        Mean squared distance between two training points after the map.
    """

    learner_tags = LearnerTags(reads="supervision", supervised=False)
    parameters = {"spread": [real(0, open_low=True)]}

    def __init__(self, spread=1.0):
        self.spread = spread

    def fit(self, X, y=None):
        """Learn the number."""
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        # The order of rows or columns in memory must not change the result, not even its last bit.
        rows = np.ascontiguousarray(rows)
        variance = rows.var(axis=0, dtype=np.float64).sum()
        if not variance > 0:
            raise ValueError("Every feature of X is constant: there is no distance to learn.")
        scale = np.sqrt(self.spread / (2 * variance))
        self.mean_ = rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
        self.components_ = (scale * np.eye(rows.shape[1])).astype(rows.dtype)
        return self
