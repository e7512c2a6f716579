"""Base classes of all estimators.

To write an estimator, derive from one of these classes:

* :class:`StatisticsLearner`: a linear map that is solved from ``ClassStatistics`` alone. Implement
  ``solve``. :class:`StatisticsEstimator` is the same for estimators that are not linear maps:
  implement ``_learn_from``.
* :class:`LinearLearner`: a linear map that reads X, with supervision or a neighbor graph.
  Implement ``fit`` and set ``components_``.
* :class:`MultilinearLearner`: one matrix per tensor mode. Implement ``fit`` and call
  ``_keep_factors``. :class:`AlternatingLearner` optimizes the modes in turn: call
  ``_learn_modes``. :class:`ModeStatisticsLearner` needs only the scatters of each mode, so it
  accepts batches and dask arrays: implement ``_learn``. :class:`RankOneLearner` extracts rank-one
  tensors one after another: call ``_keep_atoms``.
* :class:`ConstraintLearner`: a linear map learned from pairs or comparisons, which are passed as
  supervision or drawn from labels. Implement ``_draw_supervision`` and ``_learn``.
  :class:`PairLearner` draws and checks pairs.
* :class:`Learner`: any other map. Implement ``fit`` and ``transform``. An :class:`Embedding` sets
  ``embedding_``. :class:`KernelCoordinates` adds the feature space of a kernel, and
  :class:`KernelizedLearner` fits a linear learner in it. A :class:`KernelLearner` learns the
  kernel itself.
* :class:`NeighborsClassifier`: a nearest-neighbor classifier. Implement the distances. A
  :class:`LocalClassifier` has a separate metric for each query: implement ``_metrics``.
* :class:`NeighborsBase`: any other estimator that searches nearest neighbors. Implement
  ``_nearest``.
* :class:`Estimator`: anything else. Implement ``fit`` and the prediction methods.

:class:`AfterLearner` is a mixin that maps the points with another learner first.
:class:`TensorEstimator` accepts tensors, or flat rows together with their tensor shape.
:class:`LocalExplanation` reports which neighbors and which features decided a prediction of a
nearest-neighbor classifier.
"""

from nearfar.base.embedding import Embedding
from nearfar.base.estimator import Estimator
from nearfar.base.explanation import LocalExplanation
from nearfar.base.guided import ConstraintLearner, PairLearner
from nearfar.base.kernel_coordinates import KernelCoordinates, LandmarkCoordinates
from nearfar.base.kernel_learner import KernelLearner
from nearfar.base.kernelized import KernelizedLearner
from nearfar.base.learner import Learner, LinearLearner
from nearfar.base.local_voter import LocalClassifier
from nearfar.base.mapping import AfterLearner
from nearfar.base.mode_statistics_learner import ModeStatisticsLearner
from nearfar.base.multilinear import AlternatingLearner, MultilinearLearner
from nearfar.base.progress import get_reporter
from nearfar.base.rank_one import RankOneLearner
from nearfar.base.registry import all_estimators, all_learners
from nearfar.base.statistics_estimator import StatisticsEstimator
from nearfar.base.statistics_learner import StatisticsLearner
from nearfar.base.tags import LearnerTags
from nearfar.base.tensor_input import TensorEstimator
from nearfar.base.voter import NeighborsBase, NeighborsClassifier

__all__ = [
    "AfterLearner",
    "AlternatingLearner",
    "ConstraintLearner",
    "Embedding",
    "Estimator",
    "KernelCoordinates",
    "KernelLearner",
    "KernelizedLearner",
    "LandmarkCoordinates",
    "Learner",
    "LearnerTags",
    "LinearLearner",
    "LocalClassifier",
    "LocalExplanation",
    "ModeStatisticsLearner",
    "MultilinearLearner",
    "NeighborsBase",
    "NeighborsClassifier",
    "PairLearner",
    "RankOneLearner",
    "StatisticsEstimator",
    "StatisticsLearner",
    "TensorEstimator",
    "all_estimators",
    "all_learners",
    "get_reporter",
]
