"""Cross-validation, scores of pairs and comparisons, and quality measures of embeddings."""

from nearfar.evaluation.cross_validation import cross_validate
from nearfar.evaluation.pair_evaluation import PairFold, PairKFold, comparison_accuracy, pair_scores
from nearfar.evaluation.quality import (
    embedding_quality,
    held_out_quality,
    local_continuity,
    local_trust,
    neighborhood_intersection,
    out_of_sample_consistency,
    procrustes_error,
    rank_trustworthiness,
)

__all__ = [
    "PairFold",
    "PairKFold",
    "comparison_accuracy",
    "cross_validate",
    "embedding_quality",
    "held_out_quality",
    "local_continuity",
    "local_trust",
    "neighborhood_intersection",
    "out_of_sample_consistency",
    "pair_scores",
    "procrustes_error",
    "rank_trustworthiness",
]
