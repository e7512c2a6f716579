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

__all__ = [
    "best_rank",
    "best_rank_one",
    "contract_except",
    "fold",
    "hosvd",
    "mode_dot",
    "multi_mode_dot",
    "n_rank",
    "rank_one",
    "rank_one_gram",
    "unfold",
]
