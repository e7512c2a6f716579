"""General tensor discriminant analysis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags, ModeStatisticsLearner
from nearfar.base.tensor_input import N_COMPONENTS_OF_MODES, TENSOR_PARAMETERS
from nearfar.notices import warn
from nearfar.parameters import boolean, integer, none, one_of, random_state, real
from nearfar.solvers.eigen import difference_weight
from nearfar.solvers.mode_subspaces import (
    count_leading_values,
    draw_random_factors,
    fix_column_signs,
    ordered_eigh,
)
from nearfar.state import State, floats, labels, optional
from nearfar.summaries.mode_scatters import ModeScatters


class GTDA(ModeStatisticsLearner):
    r"""General tensor discriminant analysis: one supervised projection per tensor mode.

    The projections maximize the scatter between classes minus a weight times the scatter within
    classes:

    .. math:: \max_{U_k^T U_k = I}\;
        \sum_c n_c \|(M_c - M) \times_1 U_1^T \cdots \times_K U_K^T\|^2
        - \zeta \sum_i \|(X_i - M_{c(i)}) \times_1 U_1^T \cdots \times_K U_K^T\|^2 ,

    where M is the mean and :math:`M_c` are the class means. For fixed factors of the other modes,
    :math:`U_k` contains the leading eigenvectors of :math:`B_k - \zeta W_k`. Here :math:`B_k` and
    :math:`W_k` are the scatters of mode k between and within classes, computed after projecting
    all other modes. The algorithm solves one mode after another. As long as :math:`\zeta` and the
    dimensions are fixed, no step decreases the objective.

    Use it on images, clips or volumes with few samples per class, before :class:`LDA` with
    shrinkage or k-NN. With many samples, LDA with shrinkage on flat rows is as good or better. On
    vectors it is equal to :class:`DSDC`.

    Cost: O(n p q) per sweep over the modes, where p is the number of entries of a tensor and q the
    largest number of components of a mode, plus O(n p d) before the first sweep, where d is the
    length of the longest mode. X is read in blocks.

    Parameters
    ----------
    n_components : int, tuple of int or None, default=None
        Dimension of the output: number of components per mode. An integer applies to every mode, up
        to the mode's length. A tuple has one entry per mode. If None, ``energy`` or ``dim_rule``
        determines the number.
    within_weight : float or {"max_eig", "trace_ratio", "sum_eig"}, default=0.1
        Weight of the within-class scatter: a number, or a rule that computes the weight at each
        step (see Notes). With a rule, a step may decrease the objective.
    energy : float, default=0.97
        Fraction of the energy that each mode keeps. The energy is the sum of squares about the
        mean, computed without projecting the other modes. Used if ``n_components`` and ``dim_rule``
        are None.
    order : {"algebraic", "magnitude"}, default="algebraic"
        Order of the eigenvalues: "algebraic" starts with the largest value, and "magnitude" with
        the largest absolute value (see Notes).
    dim_rule : {"eigenvalue_mass", "abs_mass", "positive_mass"} or None, default=None
        Rule that chooses the number of components of a mode at each step (see Notes).
    dim_fraction : float or None, default=None
        Maximum fraction of the eigenvalue mass that ``dim_rule`` keeps (see Notes). None means the
        value of ``energy``.
    init : {"hosvd", "random"}, default="hosvd"
        Starting point: "hosvd" uses the leading eigenvectors of each mode, computed without
        projecting the other modes. "random" uses random orthonormal factors.
    max_iter : int, default=50
        Maximum number of iterations. Each iteration is a sweep over the modes. With 0, the result
        is the "hosvd" starting point.
    tol : float, default=1e-6
        Stop when a sweep changes the projectors by less than ``tol``, summed over the modes.
    ridge : float, default=1e-8
        Value added to the variances: the rules for ``within_weight`` add ``ridge`` times the mean
        diagonal element of :math:`W_k` to all diagonal elements.
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
    within_weight_ : ndarray of shape (n_modes,)
        Last weight used in each mode.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    history_ : dict
        Lists of progress values. "objective" and "within_weight" have one value per update of a
        mode. "step" (the change of the projectors) and "seconds" have one value per sweep.
    n_iter_ : int
        Number of sweeps.
    converged_ : bool
        Whether the last sweep changed the projectors by less than ``tol``.

    See Also
    --------
    GTA, DSDC, LDA

    Notes
    -----
    Rules for ``within_weight``, where q is the number of components of mode k:

    - "max_eig": the largest eigenvalue of :math:`W_k^{-1} B_k`, the rule of [1]_.
    - "trace_ratio": the maximum of :math:`\mathrm{tr}(U^T B_k U) / \mathrm{tr}(U^T W_k U)` over
      U with q orthonormal columns.
    - "sum_eig": the sum of the q largest eigenvalues of :math:`W_k^{-1} B_k`.

    Choose ``within_weight`` by cross-validation. Most of the gain over flat rows comes from the
    tensor form, which :class:`GTA` has too. On faces and digits with few images per class,
    "max_eig" has far more errors than 0.1, because it prefers directions with little variance. The
    weight 1 improves the result on some datasets and spoils it on others.

    The order "magnitude" is that of a singular value decomposition, one reading of [1]_. If
    :math:`\zeta` is large, it selects the directions with the largest scatter within classes.

    ``dim_rule`` keeps the largest number of leading eigenvalues whose sum is at most
    ``dim_fraction`` times

    - "eigenvalue_mass": the sum of all eigenvalues. This is the rule of [1]_. It is useful only if
      most eigenvalues are positive.
    - "abs_mass": the sum of the absolute values of all eigenvalues.
    - "positive_mass": the sum of the positive eigenvalues.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 3.6,
       table 3.6 and theorem 3.5.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import GTDA, KNNClassifier
    >>> images, y = load_digits(return_X_y=True)
    >>> images = images.reshape(-1, 8, 8)
    >>> gtda = GTDA(n_components=5).fit(images[:500], y[:500])
    >>> gtda.transform(images).shape
    (1797, 25)
    >>> knn = KNNClassifier().fit(gtda.transform(images[:500]), y[:500])
    >>> knn.score(gtda.transform(images[500:]), y[500:]) > 0.9
    True
    """

    learner_tags = LearnerTags(reads="statistics", input="tensors")
    renamed: ClassVar = {
        "zeta": "within_weight",
        "delta": "dim_fraction",
        "zeta_": "within_weight_",
    }
    settings = ({"within_weight": 0.3}, {"within_weight": 1.0})
    parameters: ClassVar = {
        "n_components": N_COMPONENTS_OF_MODES,
        "within_weight": [real(), one_of("max_eig", "trace_ratio", "sum_eig")],
        "energy": [real(0, 1, open_low=True)],
        "order": [one_of("algebraic", "magnitude")],
        "dim_rule": [none, one_of("eigenvalue_mass", "abs_mass", "positive_mass")],
        "dim_fraction": [none, real(0, 1, open_low=True)],
        "init": [one_of("hosvd", "random")],
        "max_iter": [integer(0)],
        "tol": [real(0)],
        "ridge": [real(0)],
        **TENSOR_PARAMETERS,
        "flatten": [boolean],
        "random_state": [random_state],
        "verbose": [integer(0)],
    }
    within_weight_: Vector
    state = State({"within_weight_": optional(floats("modes")), "classes_": optional(labels("c"))})

    def __init__(
        self,
        n_components: int | tuple[int, ...] | None = None,
        *,
        within_weight: float | Literal["max_eig", "trace_ratio", "sum_eig"] = 0.1,
        energy: float = 0.97,
        order: Literal["algebraic", "magnitude"] = "algebraic",
        dim_rule: Literal["eigenvalue_mass", "abs_mass", "positive_mass"] | None = None,
        dim_fraction: float | None = None,
        init: Literal["hosvd", "random"] = "hosvd",
        max_iter: int = 50,
        tol: float = 1e-6,
        ridge: float = 1e-8,
        tensor_shape: tuple[int, ...] | None = None,
        flatten: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.within_weight = within_weight
        self.energy = energy
        self.order = order
        self.dim_rule = dim_rule
        self.dim_fraction = dim_fraction
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.ridge = ridge
        self.tensor_shape = tensor_shape
        self.flatten = flatten
        self.random_state = random_state
        self.verbose = verbose

    def _needs_digits(self) -> bool:
        # A within_weight given as a string is computed by dividing by the within-class scatter,
        # which needs float64 precision.
        return isinstance(self.within_weight, str)

    def _learn(self, scatters: ModeScatters, classes: NDArray[Any], dtype: np.dtype[Any]) -> None:
        """Learn the factors from the scatters of each mode."""
        self._check_dimension_rule()
        shape = scatters.mean.shape
        modes = range(len(shape))
        n_requested = self._resolve_n_components(shape)
        initial_scatters = [
            (scatters.between_scatter(k), scatters.within_scatter(k)) for k in modes
        ]
        if not np.trace(initial_scatters[0][0]) + np.trace(initial_scatters[0][1]) > 0:
            raise ValueError("GTDA: all samples in X are equal. At least two must differ.")
        total_spectra = [ordered_eigh(B + W) for B, W in initial_scatters]
        # The bases exclude directions without variance. The eigenvalue 0 of these directions would
        # rank above all negative eigenvalues.
        relative_threshold = 1e-12 if dtype == np.float64 else 1e-6
        bases = [V[:, values > relative_threshold * values[0]] for values, V in total_spectra]
        n_components = n_requested or [
            count_leading_values(values, self.energy) for values, _ in total_spectra
        ]
        self.classes_, self.within_weight_ = classes, np.zeros(len(shape))
        weight_history: list[float] = []
        by_magnitude = self.order == "magnitude"

        def compute_difference(mode: int, B: Matrix, W: Matrix) -> Matrix:
            Q = bases[mode]
            self.within_weight_[mode] = self._compute_weight(
                Q.T @ B @ Q, Q.T @ W @ Q, n_components[mode]
            )
            return B - self.within_weight_[mode] * W

        def compute_matrix(mode: int, factors: Sequence[Matrix] | None) -> Matrix:
            B = scatters.between_scatter(mode, factors)
            # With weight zero, the scatter within classes has no effect. Skipping it saves a pass
            # over X.
            W = (
                scatters.within_scatter(mode, factors)
                if self.within_weight != 0
                else np.zeros_like(B)
            )
            M = compute_difference(mode, B, W)
            weight_history.append(float(self.within_weight_[mode]))
            return M

        def count_components(mode: int, values: Vector) -> int:
            if self.dim_rule is not None:
                n_components[mode] = self._count_by_rule(values)
            return n_components[mode]

        initial_factors = []
        for mode, (B, W) in enumerate(initial_scatters):
            values, V = ordered_eigh(compute_difference(mode, B, W), by_magnitude, bases[mode])
            initial_factors.append(fix_column_signs(V[:, : count_components(mode, values)]))
        if self.init == "random" and self.max_iter > 0:
            initial_factors = draw_random_factors(
                shape, n_components, check_random_state(self.random_state)
            )
        self._learn_modes(
            compute_matrix,
            initial_factors,
            count_components,
            scatters.mean,
            dtype,
            by_magnitude=by_magnitude,
            bases=bases,
            history={"within_weight": weight_history},
        )

    def _check_dimension_rule(self) -> None:
        if self.dim_rule is None and self.dim_fraction is not None:
            raise ValueError(
                f"GTDA: dim_fraction={self.dim_fraction} has no effect because dim_rule is None. "
                "Set dim_rule, or use energy instead of dim_fraction."
            )
        if self.dim_rule is not None and self.n_components is not None:
            raise ValueError(
                f"GTDA: n_components={self.n_components!r} and dim_rule={self.dim_rule!r} exclude "
                "each other. Pass only one of them."
            )

    def _compute_weight(self, B: Matrix, W: Matrix, n_components: int) -> float:
        """Return the weight of the within-class scatter W. B is the between-class scatter."""
        if not isinstance(self.within_weight, str):
            return float(self.within_weight)
        trace = np.trace(W)
        if not trace > 1e-20 * np.trace(B):  # A smaller trace is a rounding error.
            raise ValueError(
                "GTDA: all samples of each class are equal, so "
                f"within_weight={self.within_weight!r} would divide by zero. Pass a number for "
                "within_weight."
            )
        regularized = W + self.ridge * trace / len(W) * np.eye(len(W))
        n_components = min(n_components, len(W))
        return difference_weight(
            self.within_weight, B, regularized, n_components, np.finfo(float).eps
        )

    def _count_by_rule(self, values: Vector) -> int:
        """Apply ``dim_rule`` to sorted eigenvalues, and return the number of components to keep."""
        rule = self.dim_rule
        fraction = self.energy if self.dim_fraction is None else self.dim_fraction
        mass = {
            "eigenvalue_mass": values,
            "abs_mass": np.abs(values),
            "positive_mass": np.maximum(values, 0),
        }[str(rule)]
        total = mass.sum()
        if rule == "eigenvalue_mass" and not values[0] > 1e-6 * np.abs(values).max():
            warn(
                "GTDA: no eigenvalue is positive, so dim_rule='eigenvalue_mass' keeps nearly all "
                "components. Use n_components, a smaller within_weight, or dim_rule='abs_mass'."
            )
        if total == 0:
            return 1
        allowed = np.flatnonzero(np.cumsum(mass) / total <= fraction + 1e-12)
        return int(allowed[-1]) + 1 if len(allowed) else 1
