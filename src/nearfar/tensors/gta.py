"""General tensor analysis: the subspaces of the modes that keep most of the energy."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from nearfar.base import LearnerTags, ModeStatisticsLearner
from nearfar.base.tensor_input import N_COMPONENTS_OF_MODES, TENSOR_PARAMETERS
from nearfar.parameters import boolean, integer, one_of, random_state, real
from nearfar.solvers.mode_subspaces import (
    n_for_share,
    ordered_eigh,
    random_factors,
    signed_columns,
)
from nearfar.summaries.mode_scatters import ModeScatters


class GTA(ModeStatisticsLearner):
    r"""General tensor analysis: principal components of tensors, one subspace for each mode.

    .. math:: \max_{U_k^T U_k = I}\;
        \sum_i \|(X_i - M) \times_1 U_1^T \cdots \times_K U_K^T\|^2 ,

    with M the mean. Given the other modes, :math:`U_k` are the leading eigenvectors of
    :math:`\sum_i T_{i(k)} T_{i(k)}^T`, where :math:`T_i` is :math:`X_i - M` projected in all modes
    but k: one mode after another is solved, and no step lowers the energy that is kept. What is not
    kept is the squared error of ``inverse_transform``.

    Use it to compress images, clips or volumes before anything that learns: rows, columns and
    channels get a matrix each, in place of one for all pixels, so that few samples are enough. Of
    vectors it is PCA; of a single matrix, not centred, the singular value decomposition; the same
    method is known as multilinear PCA, CSA and, for matrices, GLRAM. It reads no labels. With many
    samples of few pixels PCA keeps more with as many numbers.

    Cost: for each sweep over the modes O(n p q) with p entries of a tensor and the most components
    q of a mode; before the first one O(n p d) with the longest mode d. X is read in blocks.

    Parameters
    ----------
    n_components : int, tuple of int or None, default=None
        Dimension of the output: of each mode. An integer is the most in any mode, a tuple has one
        number for each. None keeps the share ``energy``.
    energy : float, default=0.97
        Share of the energy that each mode keeps on its own: where ``n_components`` is None. Less is
        kept by all together.
    center : bool, default=True
        Whether the axes are those of the rows about their mean; False counts from zero, and there
        is no ``mean_``.
    init : {"hosvd", "random"}, default="hosvd"
        Where to start: "hosvd" are the leading eigenvectors of each mode alone.
    max_iter : int, default=50
        Steps at most: sweeps over all modes. 0 is the closed form, the start "hosvd" and no sweep.
    tol : float, default=1e-6
        Stops when a sweep changes the projectors of all modes by less in sum.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample, where X comes as flat rows, the last mode fastest.
    flatten : bool, default=True
        Whether ``transform`` returns rows; False returns tensors.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: the random start.
    verbose : int, default=0
        Print the progress: a line for each iteration.

    Attributes
    ----------
    factors_ : list of ndarray of shape (d_k, q_k)
        Orthonormal columns for each mode.
    components_ : ndarray of shape (n_features_out, n_features)
        The map of flat rows: the Kronecker product of the factors, built when it is asked for.
    mean_ : ndarray of shape (n_features,)
        Mean of the training tensors, flat.
    n_components_ : tuple of int
        Length of each mode after the map.
    tensor_shape_ : tuple of int
        Shape of a sample.
    total_energy_ : float
        Sum of squares of all entries, about the mean.
    history_ : dict
        "objective", the energy kept after every step of a mode; "step", the change of projectors,
        and "seconds", after every sweep.
    n_iter_ : int
        Sweeps.
    converged_ : bool
        Whether the last sweep changed projectors by less than ``tol``.

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
        """Learn from whatever knows the scatters of each mode, all in one class."""
        shape = scatters.mean.shape
        wanted = self._wanted_components(shape)
        alone = [ordered_eigh(scatters.within_scatter(mode)) for mode in range(len(shape))]
        total = float(np.sum(alone[0][0]))
        if not total > 0:
            found = "all samples are equal" if self.center else "all entries are zero"
            raise ValueError(f"GTA: {found} in X, so that there is nothing to learn.")
        kept = wanted or [n_for_share(values, self.energy) for values, _ in alone]
        if self.init == "random" and self.max_iter > 0:
            start = random_factors(shape, kept, check_random_state(self.random_state))
        else:
            start = [signed_columns(V[:, :q]) for (_, V), q in zip(alone, kept, strict=True)]
        self.total_energy_ = total
        mean = scatters.mean if self.center else None
        self._learn_modes(scatters.within_scatter, start, lambda mode, _: kept[mode], mean, dtype)
