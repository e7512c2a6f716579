"""Multilinear subspaces and supervised tensor learning."""

from nearfar.tensors.gabor_features import gabor_bank
from nearfar.tensors.gait import (
    averaged_gait_images,
    gait_period,
    rank_k_rates,
    sequence_distance,
    weighted_average_rate,
)
from nearfar.tensors.saliency import saliency_map

__all__ = [
    "averaged_gait_images",
    "gabor_bank",
    "gait_period",
    "rank_k_rates",
    "saliency_map",
    "sequence_distance",
    "weighted_average_rate",
]
