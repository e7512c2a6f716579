"""Error rates, the quality of embeddings and the comparison of methods."""

from nearfar.evaluation.cross_validation import cross_validate
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
    "cross_validate",
    "embedding_quality",
    "held_out_quality",
    "local_continuity",
    "local_trust",
    "neighborhood_intersection",
    "out_of_sample_consistency",
    "procrustes_error",
    "rank_trustworthiness",
]
