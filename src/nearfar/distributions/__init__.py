"""Distances between distributions, and what they are good for."""

from nearfar.distributions.dissimilarities import dissimilarity
from nearfar.distributions.kernels import (
    KernelRepair,
    exponential_kernel,
    quantile_width,
    repair_kernel,
)
from nearfar.distributions.metric_checks import MetricReport, metric_closure, metric_report

__all__ = [
    "KernelRepair",
    "MetricReport",
    "dissimilarity",
    "exponential_kernel",
    "metric_closure",
    "metric_report",
    "quantile_width",
    "repair_kernel",
]
