"""Linear learners that solve from class statistics."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from nearfar.base.learner import LinearLearner
from nearfar.base.statistics_estimator import StatisticsEstimator
from nearfar.solvers.subspaces import Interrupted
from nearfar.summaries.class_statistics import ClassStatistics


class StatisticsLearner(StatisticsEstimator, LinearLearner):
    """A linear learner that solves from :class:`~nearfar.ClassStatistics` alone.

    Subclasses write :meth:`solve`; fitting in one go or in batches comes with it. ``partial_fit``
    only accumulates: the solve runs once, when something learned is first asked for. Where what
    was seen so far cannot be solved, asking raises the solve's error (``hasattr`` too).

    Of dask arrays and dataframes (``pip install 'nearfar[dask]'``) the statistics are computed
    block by block where dask computes; only they come here, and the solve runs here.
    """

    @abstractmethod
    def solve(self, statistics: ClassStatistics) -> NDArray[np.float64]:
        """Components (n_components, n_features) from the statistics.

        May set further attributes that end in an underscore. On Ctrl-C it may raise
        :class:`~nearfar.solvers.subspaces.Interrupted` with the best components so far: the learner
        is then fitted with these, and the interrupt goes on.
        """

    def _learn_from(self, statistics: ClassStatistics) -> None:
        try:
            self._keep_map(self.solve(statistics), statistics)
        except Interrupted as error:
            if error.components is not None:
                self._keep_map(error.components, statistics)
            raise

    def _keep_map(self, components: NDArray[np.float64], statistics: ClassStatistics) -> None:
        self.components_ = components.astype(self._dtype)
        self.mean_ = statistics.mean.astype(self._dtype)
