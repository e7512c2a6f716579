"""What estimators are made of.

An estimator derives from one of

* :class:`StatisticsLearner`: a linear map that solves from ``ClassStatistics`` alone; write
  ``solve``. A :class:`StatisticsEstimator` is anything else that does; write ``_learn_from``;
* :class:`LinearLearner`: a linear map that reads X and a supervision or a graph; write ``fit``, set
  ``components_``;
* :class:`MultilinearLearner`: one matrix for each mode of a tensor; write ``fit``, which calls
  ``_keep_factors``. :class:`AlternatingLearner` finds them in turn: ``_learn_modes``;
  :class:`ModeStatisticsLearner` does so from scatters of the modes alone, and takes batches and
  dask arrays: write ``_learn``. :class:`RankOneLearner` has rank-one tensors that are taken away
  in turn: ``_keep_atoms``;
* :class:`GuidedLearner`: the same from pairs or comparisons, given or drawn from labels; write
  ``_drawn`` and ``_learn``. :class:`PairLearner` draws and checks pairs;
* :class:`Learner`: any other map; write ``fit`` and ``transform``. An :class:`Embedding` sets
  ``embedding_``; with :class:`KernelCoordinates` it works in the space of a kernel, and
  :class:`KernelizedLearner` fits a linear learner there. A :class:`KernelLearner` learns the
  kernel itself;
* :class:`NeighborVoter`: a classifier whose nearest training objects vote; write the distances;
  with a metric of its own for each query it is a :class:`LocalVoter`; write ``_metrics``;
* :class:`NearestObjects`: anything else that asks them; write ``_nearest``;
* :class:`Estimator`: anything else; write ``fit`` and what it is for.

:class:`ThroughLearner` maps points by another learner first, and :class:`TensorInput` takes
tensors, or flat rows with their shape. A classifier whose neighbours vote tells by a
:class:`LocalExplanation` which of them decided, and which features.
"""

from nearfar.base.embedding import Embedding
from nearfar.base.estimator import Estimator
from nearfar.base.explanation import LocalExplanation
from nearfar.base.guided import GuidedLearner, PairLearner
from nearfar.base.kernel_coordinates import KernelCoordinates, LandmarkCoordinates
from nearfar.base.kernel_learner import KernelLearner
from nearfar.base.kernelized import KernelizedLearner
from nearfar.base.learner import Learner, LinearLearner
from nearfar.base.local_voter import LocalVoter
from nearfar.base.mapping import ThroughLearner
from nearfar.base.mode_statistics_learner import ModeStatisticsLearner
from nearfar.base.multilinear import AlternatingLearner, MultilinearLearner
from nearfar.base.progress import report_of
from nearfar.base.rank_one import RankOneLearner
from nearfar.base.registry import all_estimators, all_learners
from nearfar.base.statistics_estimator import StatisticsEstimator
from nearfar.base.statistics_learner import StatisticsLearner
from nearfar.base.tags import LearnerTags
from nearfar.base.tensor_input import TensorInput
from nearfar.base.voter import NearestObjects, NeighborVoter

__all__ = [
    "AlternatingLearner",
    "Embedding",
    "Estimator",
    "GuidedLearner",
    "KernelCoordinates",
    "KernelLearner",
    "KernelizedLearner",
    "LandmarkCoordinates",
    "Learner",
    "LearnerTags",
    "LinearLearner",
    "LocalExplanation",
    "LocalVoter",
    "ModeStatisticsLearner",
    "MultilinearLearner",
    "NearestObjects",
    "NeighborVoter",
    "PairLearner",
    "RankOneLearner",
    "StatisticsEstimator",
    "StatisticsLearner",
    "TensorInput",
    "ThroughLearner",
    "all_estimators",
    "all_learners",
    "report_of",
]
