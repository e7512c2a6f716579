"""General tensor analysis."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from nearfar.base import LearnerTags, ModeStatisticsLearner
from nearfar.base.tensor_input import N_COMPONENTS_OF_MODES, TENSOR_PARAMETERS
from nearfar.parameters import boolean, integer, one_of, random_state, real
from nearfar.solvers.mode_subspaces import (
    count_leading_values,
    draw_random_factors,
    fix_column_signs,
    ordered_eigh,
)
from nearfar.summaries.mode_scatters import ModeScatters


class GTA(ModeStatisticsLearner):
    r"""General tensor analysis: principal components of tensors, one projection per mode.

    The projections maximize the sum of squares of the projected tensors:

    .. math:: \max_{U_k^T U_k = I}\;
        \sum_i \|(X_i - M) \times_1 U_1^T \cdots \times_K U_K^T\|^2 ,

    where M is the mean. For fixed factors of the other modes, :math:`U_k` contains the leading
    eigenvectors of :math:`\sum_i T_{i(k)} T_{i(k)}^T`, where :math:`T_i` is :math:`X_i - M`
    projected in all modes except k. The algorithm solves one mode after another. No step decreases
    the energy (the objective). The total energy minus the objective is the squared error of
    ``inverse_transform``.

    Use it to compress images, clips or volumes before another estimator. Rows, columns and
    channels have one small matrix each instead of one large matrix for all pixels. Few samples
    therefore suffice. It does not use labels. With many samples of few pixels, PCA keeps more
    energy with the same number of components.

    On vectors it is equal to PCA, and on a single matrix with ``center=False`` to the singular
    value decomposition. The method is also known as multilinear PCA, CSA and, for matrices, GLRAM.

    Cost: O(n p q) per sweep over the modes, where p is the number of entries of a tensor and q the
    largest number of components of a mode, plus O(n p d) before the first sweep, where d is the
    length of the longest mode. X is read in blocks.

    Parameters
    ----------
    n_components : int, tuple of int or None, default=None
        Dimension of the output: number of components per mode. An integer applies to every mode, up
        to the mode's length. A tuple has one entry per mode. If None, ``energy`` determines the
        number.
    energy : float, default=0.97
        Fraction of the energy that each mode keeps. It is computed without projecting the other
        modes, so all modes together keep less. Used if ``n_components`` is None.
    center : bool, default=True
        Whether to subtract the mean. If False, ``mean_`` is not set.
    init : {"hosvd", "random"}, default="hosvd"
        Starting point: "hosvd" uses the leading eigenvectors of each mode, computed without
        projecting the other modes. "random" uses random orthonormal factors.
    max_iter : int, default=50
        Maximum number of iterations. Each iteration is a sweep over the modes. With 0, the result
        is the "hosvd" starting point, which has a closed form.
    tol : float, default=1e-6
        Stop when a sweep changes the projectors by less than ``tol``, summed over the modes.
    tensor_shape : tuple of int or None, default=None
        Shape of one sample. Set it if X contains flattened tensors, in C order (the last mode
        varies fastest).
    flatten : bool, default=True
        Whether ``transform`` returns flat rows. If False, it returns tensors.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    factors_ : list of ndarray of shape (d_k, q_k)
        Factor of each mode, with orthonormal columns.
    components_ : ndarray of shape (n_features_out, n_features)
        Projection matrix for flat rows: the Kronecker product of the factors. It is computed on
        access.
    mean_ : ndarray of shape (n_features,)
        Mean of the training tensors, as a flat row.
    n_components_ : tuple of int
        Number of components in each mode.
    tensor_shape_ : tuple of int
        Shape of a sample.
    total_energy_ : float
        Sum of squares of all entries. If ``center`` is True, the mean is subtracted first.
    history_ : dict
        Lists of progress values. "objective" (the energy of the projected tensors) has one value
        per update of a mode. "step" (the change of the projectors) and "seconds" have one value per
        sweep.
    n_iter_ : int
        Number of sweeps.
    converged_ : bool
        Whether the last sweep changed the projectors by less than ``tol``.

    See Also
    --------
    GTDA, PCA, nearfar.tensors.best_rank

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 3.4,
       table 3.5.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import GTA
    >>> images = load_digits().images
    >>> gta = GTA(n_components=(4, 5)).fit(images)
    >>> gta.transform(images).shape, [U.shape for U in gta.factors_]
    ((1797, 20), [(8, 4), (8, 5)])
    >>> rebuilt = gta.inverse_transform(gta.transform(images))
    >>> round(float(((images - rebuilt) ** 2).sum()) / gta.total_energy_, 2)
    0.22
    """

    learner_tags = LearnerTags(reads="statistics", input="tensors", supervised=False)
    parameters: ClassVar = {
        "n_components": N_COMPONENTS_OF_MODES,
        "energy": [real(0, 1, open_low=True)],
        "center": [boolean],
        "init": [one_of("hosvd", "random")],
        "max_iter": [integer(0)],
        "tol": [real(0)],
        **TENSOR_PARAMETERS,
        "flatten": [boolean],
        "random_state": [random_state],
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        n_components: int | tuple[int, ...] | None = None,
        *,
        energy: float = 0.97,
        center: bool = True,
        init: Literal["hosvd", "random"] = "hosvd",
        max_iter: int = 50,
        tol: float = 1e-6,
        tensor_shape: tuple[int, ...] | None = None,
        flatten: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.energy = energy
        self.center = center
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.tensor_shape = tensor_shape
        self.flatten = flatten
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, scatters: ModeScatters, classes: NDArray[Any], dtype: np.dtype[Any]) -> None:
        """Learn the factors from the scatters of each mode. All samples belong to one class."""
        shape = scatters.mean.shape
        n_requested = self._resolve_n_components(shape)
        spectra = [ordered_eigh(scatters.within_scatter(mode)) for mode in range(len(shape))]
        total = float(np.sum(spectra[0][0]))
        if not total > 0:
            reason = "all samples in X are equal" if self.center else "all entries of X are zero"
            raise ValueError(f"GTA: {reason}, so no direction has any energy.")
        n_components = n_requested or [
            count_leading_values(values, self.energy) for values, _ in spectra
        ]
        if self.init == "random" and self.max_iter > 0:
            initial_factors = draw_random_factors(
                shape, n_components, check_random_state(self.random_state)
            )
        else:
            initial_factors = [
                fix_column_signs(V[:, :q]) for (_, V), q in zip(spectra, n_components, strict=True)
            ]
        self.total_energy_ = total
        mean = scatters.mean if self.center else None
        self._learn_modes(
            scatters.within_scatter,
            initial_factors,
            lambda mode, _: n_components[mode],
            mean,
            dtype,
        )
