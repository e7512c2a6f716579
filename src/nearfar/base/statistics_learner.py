"""Base class of linear learners that are solved from class statistics."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from nearfar.base.learner import LinearLearner
from nearfar.base.statistics_estimator import StatisticsEstimator
from nearfar.solvers.subspaces import Interrupted
from nearfar.summaries.class_statistics import ClassStatistics


class StatisticsLearner(StatisticsEstimator, LinearLearner):
    """Linear learner that is computed from :class:`~nearfar.ClassStatistics` alone.

    Subclasses implement :meth:`solve` and inherit ``fit`` and ``partial_fit``. ``partial_fit`` only
    accumulates. The solver runs once, on the first access to a fitted attribute. If the batches so
    far are not sufficient, this access raises the solver's error, and so does ``hasattr``.

    For dask arrays and data frames (``pip install 'nearfar[dask]'``), the dask workers compute the
    statistics block by block. Only the statistics are sent to the calling process, which solves.
    """

    @abstractmethod
    def solve(self, statistics: ClassStatistics) -> NDArray[np.float64]:
        """Compute components of shape (n_components, n_features) from the statistics.

        This method can set more fitted attributes. On Ctrl-C, it may raise
        :class:`~nearfar.solvers.subspaces.Interrupted` with the best components so far. The learner
        is then fitted with these components, and the interrupt propagates.
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
