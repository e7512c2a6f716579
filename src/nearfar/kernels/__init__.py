"""Kernel learning: weighted sums of kernels by margin or alignment, and idealized kernels."""

from nearfar.kernels.alignment import alignment, center_kernel, target_alignment, target_kernel
from nearfar.kernels.alignment_weights import AlignmentWeights, alignment_weights
from nearfar.kernels.base_kernels import BaseKernels
from nearfar.kernels.easy_mkl import easy_mkl_weights
from nearfar.kernels.ideal_kernel import ideal_kernel, idealize
from nearfar.kernels.kernel_set import KernelSet
from nearfar.kernels.margin_value import margin_value
from nearfar.kernels.margin_weights import MarginWeights, margin_weights
from nearfar.kernels.vc_confidence import vc_confidence

__all__ = [
    "AlignmentWeights",
    "BaseKernels",
    "KernelSet",
    "MarginWeights",
    "alignment",
    "alignment_weights",
    "center_kernel",
    "easy_mkl_weights",
    "ideal_kernel",
    "idealize",
    "margin_value",
    "margin_weights",
    "target_alignment",
    "target_kernel",
    "vc_confidence",
]
