from . import base as base
from . import evaluation as evaluation
from .app.python import compare as compare
from .base import all_estimators as all_estimators
from .base import all_learners as all_learners
from .contract import check_learner as check_learner
from .discriminant.apac import APAC as APAC
from .discriminant.dlda import DLDA as DLDA
from .discriminant.dsdc import DSDC as DSDC
from .discriminant.fda import FDA as FDA
from .discriminant.fractional_step_lda import FractionalStepLDA as FractionalStepLDA
from .discriminant.gada import GADA as GADA
from .discriminant.hda import HDA as HDA
from .discriminant.hlda import HLDA as HLDA
from .discriminant.kernel_da import KernelDA as KernelDA
from .discriminant.kernel_mgmkld import KernelMGMKLD as KernelMGMKLD
from .discriminant.lda import LDA as LDA
from .discriminant.mgmd import MGMD as MGMD
from .discriminant.mgmkld import MGMKLD as MGMKLD
from .discriminant.moda import MODA as MODA
from .discriminant.mpm import MPM as MPM
from .discriminant.multimodal_kernel_mgmkld import MultimodalKernelMGMKLD as MultimodalKernelMGMKLD
from .discriminant.multimodal_mgmkld import MultimodalMGMKLD as MultimodalMGMKLD
from .discriminant.oda import ODA as ODA
from .discriminant.parda import PARDA as PARDA
from .discriminant.pca import PCA as PCA
from .discriminant.weighted_lda import WeightedLDA as WeightedLDA
from .distributions.augmented_spectral_clustering import (
    AugmentedSpectralClustering as AugmentedSpectralClustering,
)
from .distributions.bag_of_words import BagOfWords as BagOfWords
from .distributions.euclidean_embedding import EuclideanEmbedding as EuclideanEmbedding
from .distributions.laplacian_embedding import LaplacianEmbedding as LaplacianEmbedding
from .distributions.set_embedding import SetEmbedding as SetEmbedding
from .distributions.set_k_neighbors_classifier import (
    SetKNeighborsClassifier as SetKNeighborsClassifier,
)
from .distributions.set_spectral_clustering import SetSpectralClustering as SetSpectralClustering
from .large_margin.energy import EnergyClassifier as EnergyClassifier
from .local.dann import DANNClassifier as DANNClassifier
from .local.dann_subspace import DANNSubspace as DANNSubspace
from .local.mvem import MVEMClassifier as MVEMClassifier
from .local.quasiconformal import QuasiconformalClassifier as QuasiconformalClassifier
from .local.short_fukunaga import ShortFukunagaClassifier as ShortFukunagaClassifier
from .mahalanobis.euclidean import Euclidean as Euclidean
from .mahalanobis.itml import ITML as ITML
from .mahalanobis.kernel_lmnn import KernelLMNN as KernelLMNN
from .mahalanobis.kernel_mmc import KernelMMC as KernelMMC
from .mahalanobis.kernel_pola import KernelPOLA as KernelPOLA
from .mahalanobis.kernel_rca import KernelRCA as KernelRCA
from .mahalanobis.lfda import LFDA as LFDA
from .mahalanobis.lmnn import LMNN as LMNN
from .mahalanobis.logistic_metric import LogisticMetric as LogisticMetric
from .mahalanobis.lsml import LSML as LSML
from .mahalanobis.mcml import MCML as MCML
from .mahalanobis.mlkr import MLKR as MLKR
from .mahalanobis.mmc import MMC as MMC
from .mahalanobis.multi_metric_lmnn import MultiMetricLMNN as MultiMetricLMNN
from .mahalanobis.multi_pass_lmnn import MultiPassLMNN as MultiPassLMNN
from .mahalanobis.nca import NCA as NCA
from .mahalanobis.pola import POLA as POLA
from .mahalanobis.rca import RCA as RCA
from .mahalanobis.scml import SCML as SCML
from .mahalanobis.sdml import SDML as SDML
from .manifold.classical_mds import ClassicalMDS as ClassicalMDS
from .manifold.eigen_embedding import EigenEmbedding as EigenEmbedding
from .manifold.hessian_lle import HessianLLE as HessianLLE
from .manifold.isomap import Isomap as Isomap
from .manifold.kernel_pca import KernelPCA as KernelPCA
from .manifold.landmark_isomap import LandmarkIsomap as LandmarkIsomap
from .manifold.landmark_mvu import LandmarkMVU as LandmarkMVU
from .manifold.laplacian_eigenmaps import LaplacianEigenmaps as LaplacianEigenmaps
from .manifold.lle import LLE as LLE
from .manifold.lpp import LPP as LPP
from .manifold.mds import MDS as MDS
from .manifold.mvu import MVU as MVU
from .manifold.npe import NPE as NPE
from .manifold.random_projection import RandomProjection as RandomProjection
from .manifold.spectral_clustering import SpectralClustering as SpectralClustering
from .manifold.variational_mvu import VariationalMVU as VariationalMVU
from .neighbors.knn import KNNClassifier as KNNClassifier
from .neighbors.knn_regressor import KNNRegressor as KNNRegressor
from .neighbors.minimum_mahalanobis import (
    MinimumMahalanobisClassifier as MinimumMahalanobisClassifier,
)
from .neighbors.pair_classifier import PairClassifier as PairClassifier
from .persistence import load as load
from .persistence import save as save
from .summaries.class_statistics import ClassStatistics as ClassStatistics
from .summaries.gaussians import Gaussians as Gaussians
from .summaries.mode_statistics import ModeStatistics as ModeStatistics
from .summaries.neighbor_graph import NeighborGraph as NeighborGraph
from .summaries.sets import Sets as Sets
from .summaries.supervision.chunklets import Chunklets as Chunklets
from .summaries.supervision.pairs import Pairs as Pairs
from .summaries.supervision.quadruplets import Quadruplets as Quadruplets
from .summaries.supervision.triplets import Triplets as Triplets
from .tensors.attention_roi import AttentionROI as AttentionROI
from .tensors.gabor_features import GaborFeatures as GaborFeatures
from .tensors.gait_recognizer import GaitRecognizer as GaitRecognizer
from .tensors.gta import GTA as GTA
from .tensors.gtda import GTDA as GTDA
from .tensors.ifem import IFEM as IFEM
from .tensors.lsstm import LSSTM as LSSTM
from .tensors.mdml import MDML as MDML
from .tensors.nu_stm import NuSTM as NuSTM
from .tensors.stm import STM as STM
from .tensors.tensor_graph_embedding import TensorGraphEmbedding as TensorGraphEmbedding
from .tensors.tensor_standardizer import TensorStandardizer as TensorStandardizer
from .tensors.tfda import TFDA as TFDA
from .tensors.tmpm import TMPM as TMPM
from .tensors.tr1a import TR1A as TR1A
from .tensors.tr1da import TR1DA as TR1DA
from .tensors.two_d_lda import TwoDLDA as TwoDLDA

__version__: str
