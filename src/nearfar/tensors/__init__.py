"""Multilinear subspaces and supervised tensor learning."""

from nearfar.solvers.tensor_algebra import (
    best_rank,
    best_rank_one,
    contract_except,
    fold,
    hosvd,
    mode_dot,
    multi_mode_dot,
    n_rank,
    rank_one,
    rank_one_gram,
    unfold,
)
from nearfar.tensors.attention_roi import AttentionROI
from nearfar.tensors.gabor_features import GaborFeatures, gabor_bank
from nearfar.tensors.gait import (
    averaged_gait_images,
    gait_period,
    rank_k_rates,
    sequence_distance,
    weighted_average_rate,
)
from nearfar.tensors.gait_recognizer import GaitRecognizer
from nearfar.tensors.margin_error_bound import margin_error_bound
from nearfar.tensors.saliency import saliency_map
from nearfar.tensors.tensor_standardizer import TensorStandardizer

__all__ = [
    "AttentionROI",
    "GaborFeatures",
    "GaitRecognizer",
    "TensorStandardizer",
    "averaged_gait_images",
    "best_rank",
    "best_rank_one",
    "contract_except",
    "fold",
    "gabor_bank",
    "gait_period",
    "hosvd",
    "margin_error_bound",
    "mode_dot",
    "multi_mode_dot",
    "n_rank",
    "rank_k_rates",
    "rank_one",
    "rank_one_gram",
    "saliency_map",
    "sequence_distance",
    "unfold",
    "weighted_average_rate",
]
