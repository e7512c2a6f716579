from . import base as base
from . import evaluation as evaluation
from .base import all_learners as all_learners
from .base import check_learner as check_learner
from .discriminant.lda import LDA as LDA
from .discriminant.pca import PCA as PCA
from .evaluation.compare import compare as compare
from .mahalanobis.euclidean import Euclidean as Euclidean
from .mahalanobis.kernel_lmnn import KernelLMNN as KernelLMNN
from .mahalanobis.lmnn import LMNN as LMNN
from .mahalanobis.multi_metric_lmnn import MultiMetricLMNN as MultiMetricLMNN
from .mahalanobis.multi_pass_lmnn import MultiPassLMNN as MultiPassLMNN
from .mahalanobis.rca import RCA as RCA
from .neighbors.energy import EnergyClassifier as EnergyClassifier
from .neighbors.knn import KNNClassifier as KNNClassifier
from .persistence import load as load
from .persistence import save as save
from .summaries.class_statistics import ClassStatistics as ClassStatistics
from .summaries.neighbor_graph import NeighborGraph as NeighborGraph
from .summaries.supervision import Chunklets as Chunklets
from .summaries.supervision import Pairs as Pairs
from .summaries.supervision import Triplets as Triplets

__version__: str
