"""Leading eigenvectors of one kernel, from which kernels of rank one are built."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.kernel_set import make_kernel_set
from nearfar.solvers.spectral_step import leading_spectrum

# Upper limit for the number of directions if n_directions is None.
_MAX_DIRECTIONS = 100
# Eigenvalues below this fraction of the largest eigenvalue are rounding errors.
_ROUNDING = 1e-10


def find_leading_directions(
    kernels: Any, n_labels: int, n_directions: int | None, *, centered: bool = False
) -> tuple[Vector, Matrix]:
    """Return the largest eigenvalues of one kernel, and their eigenvectors as columns."""
    if isinstance(kernels, np.ndarray) and kernels.ndim == 2:
        kernels = [kernels]
    base = make_kernel_set(kernels, n_labels)
    if base.n_kernels != 1:
        raise ValueError(
            'kernel_family="rank_one" uses the eigenvectors of one kernel, but kernels has '
            f"{base.n_kernels}. Pass one kernel, for example the sum of the kernels."
        )
    n = base.n_points
    if n_directions is not None and n_directions > n:
        raise ValueError(
            f"n_directions must be at most the number of points, {n}; got {n_directions}."
        )
    K = base.compute_weighted_sum(np.ones(1))
    if centered:
        K -= K.mean(axis=0)
        K -= K.mean(axis=1)[:, None]
    spectrum = leading_spectrum(K, n_directions or min(n, _MAX_DIRECTIONS), positive=True)
    is_significant = spectrum.values > _ROUNDING * max(float(spectrum.values[0]), 0.0)
    if not is_significant.any():
        raise ValueError("kernels[0] is constant, so it is zero after centering.")
    return spectrum.values[is_significant], spectrum.vectors[:, is_significant]
