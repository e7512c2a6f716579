"""General tensor discriminant analysis: class means apart in every mode."""

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
    n_for_share,
    ordered_eigh,
    random_factors,
    signed_columns,
)
from nearfar.state import State, floats, labels, optional
from nearfar.summaries.mode_scatters import ModeScatters


class GTDA(ModeStatisticsLearner):
    r"""General tensor discriminant analysis: class means apart, less what classes scatter.

    .. math:: \max_{U_k^T U_k = I}\;
        \sum_c n_c \|(M_c - M) \times_1 U_1^T \cdots \times_K U_K^T\|^2
        - \zeta \sum_i \|(X_i - M_{c(i)}) \times_1 U_1^T \cdots \times_K U_K^T\|^2 ,

    with the mean M and the class means :math:`M_c`. Given the other modes, :math:`U_k` are the
    leading eigenvectors of :math:`B_k - \zeta W_k`, the scatters between and within classes of
    mode k, all other modes projected; one mode after another is solved. While :math:`\zeta` and the
    dimensions are fixed no step lowers the objective.

    Use it on images, clips or volumes with few samples a class, before a shrunk LDA or k-NN. Most
    of the gain over vectors comes from the tensor form, which :class:`GTA` has too; the weight
    :math:`\zeta` adds little, or much to the worse: on faces and digits with few images a class the
    rule "max_eig" errs far more often than 0.1, as directions in which little varies look best to
    it, and 1 helps on some sets and ruins others. Choose it by validation. With more samples, a
    shrunk LDA on vectors is as good or better. Of vectors it is :class:`DSDC`.

    Cost: for each sweep over the modes O(n p q) with p entries of a tensor and the most components
    q of a mode; before the first one O(n p d) with the longest mode d. X is read in blocks.

    Parameters
    ----------
    n_components : int, tuple of int or None, default=None
        Dimension of the output: of each mode. An integer is the most in any mode, a tuple has one
        number for each. None leaves it to ``energy`` or ``dim_rule``.
    zeta : float or {"max_eig", "trace_ratio", "sum_eig"}, default=0.1
        Weight of the scatter within classes: a number, or chosen anew at each step as the largest
        eigenvalue of :math:`W_k^{-1} B_k`, as the largest ratio of the traces of both, or as the
        sum of the leading eigenvalues. Then steps may lower the objective.
    energy : float, default=0.97
        Share of the energy that each mode keeps on its own: where ``n_components`` and ``dim_rule``
        are None. It is the energy of all samples about their mean.
    order : {"algebraic", "magnitude"}, default="algebraic"
        Which eigenvalues lead: the largest, or the largest in magnitude, as a singular value
        decomposition has them. The latter are those of the largest scatter within classes where
        :math:`\zeta` is large; it is here because the work can be read so.
    dim_rule : {"eigenvalue_mass", "abs_mass", "positive_mass"} or None, default=None
        Choose the dimensions at each step: as many leading eigenvalues as make up at most the share
        ``delta`` of the sum of all, of all in magnitude, or of the positive ones. The first is that
        of the work, and of use only while most eigenvalues are positive.
    delta : float or None, default=None
        Share of eigenvalues for ``dim_rule``; None is ``energy``.
    init : {"hosvd", "random"}, default="hosvd"
        Where to start: "hosvd" are the leading eigenvectors of each mode alone.
    max_iter : int, default=50
        Steps at most: sweeps over all modes. 0 is the direct form, the start "hosvd" and no sweep.
    tol : float, default=1e-6
        Stops when a sweep changes the projectors of all modes by less in sum.
    ridge : float, default=1e-8
        What is added to variances: this share of their mean, to :math:`W_k` in the rules for
        ``zeta``.
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
    zeta_ : ndarray of shape (n_modes,)
        The weight used last in each mode.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    history_ : dict
        "objective" and "zeta", after every step of a mode; "step", the change of projectors, and
        "seconds", after every sweep.
    n_iter_ : int
        Sweeps.
    converged_ : bool
        Whether the last sweep changed projectors by less than ``tol``.

    See Also
    --------
    GTA, DSDC, LDA

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
    settings = ({"zeta": 0.3}, {"zeta": 1.0})
    parameters: ClassVar = {
        "n_components": N_COMPONENTS_OF_MODES,
        "zeta": [real(), one_of("max_eig", "trace_ratio", "sum_eig")],
        "energy": [real(0, 1, open_low=True)],
        "order": [one_of("algebraic", "magnitude")],
        "dim_rule": [none, one_of("eigenvalue_mass", "abs_mass", "positive_mass")],
        "delta": [none, real(0, 1, open_low=True)],
        "init": [one_of("hosvd", "random")],
        "max_iter": [integer(0)],
        "tol": [real(0)],
        "ridge": [real(0)],
        **TENSOR_PARAMETERS,
        "flatten": [boolean],
        "random_state": [random_state],
        "verbose": [integer(0)],
    }
    zeta_: Vector
    state = State({"zeta_": optional(floats("modes")), "classes_": optional(labels("c"))})

    def __init__(
        self,
        n_components: int | tuple[int, ...] | None = None,
        *,
        zeta: float | Literal["max_eig", "trace_ratio", "sum_eig"] = 0.1,
        energy: float = 0.97,
        order: Literal["algebraic", "magnitude"] = "algebraic",
        dim_rule: Literal["eigenvalue_mass", "abs_mass", "positive_mass"] | None = None,
        delta: float | None = None,
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
        self.zeta = zeta
        self.energy = energy
        self.order = order
        self.dim_rule = dim_rule
        self.delta = delta
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.ridge = ridge
        self.tensor_shape = tensor_shape
        self.flatten = flatten
        self.random_state = random_state
        self.verbose = verbose

    def _needs_digits(self) -> bool:
        # Rules divide by the scatter within classes.
        return isinstance(self.zeta, str)

    def _learn(self, scatters: ModeScatters, classes: NDArray[Any], dtype: np.dtype[Any]) -> None:
        """Learn from whatever knows the scatters of each mode."""
        self._check_dimension_rule()
        shape = scatters.mean.shape
        modes = range(len(shape))
        wanted = self._wanted_components(shape)
        alone = [(scatters.between_scatter(k), scatters.within_scatter(k)) for k in modes]
        if not np.trace(alone[0][0]) + np.trace(alone[0][1]) > 0:
            raise ValueError("GTDA: all samples are equal in X, so that there is nothing to learn.")
        spread = [ordered_eigh(B + W) for B, W in alone]
        # Where nothing varies there is no scatter within classes to pay for: it comes last.
        empty = 1e-12 if dtype == np.float64 else 1e-6
        bases = [V[:, values > empty * values[0]] for values, V in spread]
        kept = wanted or [n_for_share(values, self.energy) for values, _ in spread]
        self.classes_, self.zeta_ = classes, np.zeros(len(shape))
        noted: list[float] = []
        magnitude = self.order == "magnitude"

        def difference(mode: int, B: Matrix, W: Matrix) -> Matrix:
            Q = bases[mode]
            self.zeta_[mode] = self._weight(Q.T @ B @ Q, Q.T @ W @ Q, kept[mode])
            return B - self.zeta_[mode] * W

        def matrix_of(mode: int, factors: Sequence[Matrix] | None) -> Matrix:
            B = scatters.between_scatter(mode, factors)
            # A weight of zero needs no pass over the data.
            W = scatters.within_scatter(mode, factors) if self.zeta != 0 else np.zeros_like(B)
            M = difference(mode, B, W)
            noted.append(float(self.zeta_[mode]))
            return M

        def n_kept(mode: int, values: Vector) -> int:
            if self.dim_rule is not None:
                kept[mode] = self._n_by_rule(values)
            return kept[mode]

        start = []
        for mode, (B, W) in enumerate(alone):
            values, V = ordered_eigh(difference(mode, B, W), magnitude, bases[mode])
            start.append(signed_columns(V[:, : n_kept(mode, values)]))
        if self.init == "random" and self.max_iter > 0:
            start = random_factors(shape, kept, check_random_state(self.random_state))
        self._learn_modes(
            matrix_of,
            start,
            n_kept,
            scatters.mean,
            dtype,
            by_magnitude=magnitude,
            bases=bases,
            history={"zeta": noted},
        )

    def _check_dimension_rule(self) -> None:
        if self.dim_rule is None and self.delta is not None:
            raise ValueError(
                f"GTDA: delta={self.delta} is for a dim_rule, which is None; energy is the share "
                "that is kept without."
            )
        if self.dim_rule is not None and self.n_components is not None:
            raise ValueError(
                f"GTDA: n_components={self.n_components!r} leaves nothing for "
                f"dim_rule={self.dim_rule!r} to choose; give one of them."
            )

    def _weight(self, B: Matrix, W: Matrix, n_components: int) -> float:
        """The weight of W for so many components, both where anything varies."""
        if not isinstance(self.zeta, str):
            return float(self.zeta)
        trace = np.trace(W)
        if not trace > 1e-20 * np.trace(B):  # what rounding leaves
            raise ValueError(
                f"GTDA: in every class all samples are equal, so that zeta={self.zeta!r} divides "
                "by zero. Give a number."
            )
        regular = W + self.ridge * trace / len(W) * np.eye(len(W))
        n_components = min(n_components, len(W))
        return difference_weight(self.zeta, B, regular, n_components, np.finfo(float).eps)

    def _n_by_rule(self, values: Vector) -> int:
        """The largest number of leading eigenvalues whose share is at most delta."""
        rule, share = self.dim_rule, self.energy if self.delta is None else self.delta
        mass = {
            "eigenvalue_mass": values,
            "abs_mass": np.abs(values),
            "positive_mass": np.maximum(values, 0),
        }[str(rule)]
        total = mass.sum()
        if rule == "eigenvalue_mass" and not values[0] > 1e-6 * np.abs(values).max():
            warn(
                "GTDA: no eigenvalue is positive, so that dim_rule='eigenvalue_mass' keeps nearly "
                "all of them. Use n_components, a smaller zeta, or dim_rule='abs_mass'."
            )
        if total == 0:
            return 1
        within = np.flatnonzero(np.cumsum(mass) / total <= share + 1e-12)
        return int(within[-1]) + 1 if len(within) else 1
