"""Distances between distributions, and estimators for sets of vectors that use them."""

from nearfar.distributions.dissimilarities import dissimilarity
from nearfar.distributions.earth_mover import emd_distances
from nearfar.distributions.metric_checks import MetricReport, metric_closure, metric_report
from nearfar.distributions.time_warping import dtw_distances
from nearfar.solvers.kernel_repair import (
    KernelRepair,
    exponential_kernel,
    quantile_width,
    repair_kernel,
)

__all__ = [
    "KernelRepair",
    "MetricReport",
    "dissimilarity",
    "dtw_distances",
    "emd_distances",
    "exponential_kernel",
    "metric_closure",
    "metric_report",
    "quantile_width",
    "repair_kernel",
]
