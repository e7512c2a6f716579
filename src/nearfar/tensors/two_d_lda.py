"""Two-dimensional linear discriminant analysis: LDA of the rows and of the columns of images."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.utils import check_random_state

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, MultilinearLearner
from nearfar.base.progress import report_of
from nearfar.base.tensor_input import N_COMPONENTS_OF_MODES, TENSOR_PARAMETERS
from nearfar.parameters import boolean, integer, one_of, random_state, real
from nearfar.solvers.eigen import definite_factor
from nearfar.solvers.mode_subspaces import (
    n_for_share,
    ordered_eigh,
    random_factors,
    signed_columns,
)
from nearfar.state import State, labels, whole
from nearfar.summaries.mode_scatters import StackScatters

# What each mode keeps of the energy on its own where n_components is None, as in GTA.
_SHARE = 0.97
# Scatter of a worse condition than one over this is singular but for rounding.
_EMPTY = 1e-12


class TwoDLDA(MultilinearLearner):
    r"""Two-dimensional LDA of matrices: a map of the rows and one of the columns, by turns.

    The aim is the ratio of traces

    .. math:: \frac{D_b}{D_w} =
        \frac{\sum_c n_c \|U^T (M_c - M) V\|^2}{\sum_i \|U^T (X_i - M_{c(i)}) V\|^2} ,

    and the way to it: given V, the columns of U are the leading eigenvectors of
    :math:`A_w^{-1} A_b`, with :math:`A_b = \sum_c n_c (M_c - M) V V^T (M_c - M)^T` and
    :math:`A_w = \sum_i (X_i - M_{c(i)}) V V^T (X_i - M_{c(i)})^T`; given U likewise V. Columns are
    of length one.

    Such a step maximises the *trace of the ratio* :math:`\mathrm{tr}((U^T A_w U)^{-1} U^T A_b U)`,
    not the ratio of traces, which may fall; only for one column in either map the two are the
    same. There is nothing for it to converge to, so it runs ``n_iter`` times and stops; once is
    usual. :class:`GTDA` is for any order, and has steps of one objective.

    Use it on images with few samples a class where the light or the background varies more than
    what matters: it whitens rows and columns, which GTDA does not. Where it helps, LDA with a
    shrunk covariance on the flat images helps as a rule too; compare both.

    Cost: for each iteration O(n p q) with p entries of a matrix and the most components q of a
    mode; before the first one O(n p d) with the longest mode d. X is read in blocks.

    Parameters
    ----------
    n_components : int, tuple of int or None, default=None
        Dimension of the output: of each mode. An integer is the most in any mode, a tuple has one
        number for each. None is what keeps 97 % of the energy in each mode on its own. With c
        classes no mode has more than c - 1 times the number of the other.
    n_iter : int, default=1
        How often both maps are computed.
    init : {"identity", "random"}, default="identity"
        Where to start: V are the first columns of the identity, or random orthonormal ones.
    keep : {"last", "best"}, default="last"
        Which iteration is kept: the last, or that of the largest ratio.
    ridge : float, default=1e-6
        What is added to variances: this share of their mean, to :math:`A_w` of each mode.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample if X contains flat rows, in C order (the last mode varies fastest).
    flatten : bool, default=True
        Whether ``transform`` returns flat rows. False returns tensors.
    random_state : int, RandomState or None, default=0
        Seed of the random start.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    factors_ : list of ndarray of shape (d_k, q_k)
        U and V; columns of length one, not orthogonal.
    components_ : ndarray of shape (n_features_out, n_features)
        Projection of flat rows: the Kronecker product of the factors, computed on access.
    mean_ : ndarray of shape (n_features,)
        Mean of the training tensors, as a flat row.
    n_components_ : tuple of int
        Number of components in each mode.
    tensor_shape_ : tuple of int
        Shape of a sample.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    history_ : dict
        "objective", the trace of the ratio, and "ratio", the ratio of traces, after every step of a
        mode; "seconds" since the start, after every iteration.
    n_iter_ : int
        The iteration that was kept, from 1.

    See Also
    --------
    GTDA, LDA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 3.5.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import TwoDLDA
    >>> images, y = load_digits(return_X_y=True)
    >>> images = images.reshape(-1, 8, 8)
    >>> twodlda = TwoDLDA(n_components=(4, 5), n_iter=3, keep="best").fit(images, y)
    >>> twodlda.transform(images).shape
    (1797, 20)
    >>> len(twodlda.history_["ratio"])
    6
    """

    learner_tags = LearnerTags(reads="supervision", input="tensors")
    settings = ({"n_iter": 5, "keep": "best"},)
    parameters: ClassVar = {
        "n_components": N_COMPONENTS_OF_MODES,
        "n_iter": [integer(1)],
        "init": [one_of("identity", "random")],
        "keep": [one_of("last", "best")],
        "ridge": [real(0)],
        **TENSOR_PARAMETERS,
        "flatten": [boolean],
        "random_state": [random_state],
        "verbose": [integer(0)],
    }
    state = State({"classes_": labels("c"), "n_iter_": whole(low=1)})

    def __init__(
        self,
        n_components: int | tuple[int, ...] | None = None,
        *,
        n_iter: int = 1,
        init: Literal["identity", "random"] = "identity",
        keep: Literal["last", "best"] = "last",
        ridge: float = 1e-6,
        tensor_shape: tuple[int, ...] | None = None,
        flatten: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_iter = n_iter
        self.init = init
        self.keep = keep
        self.ridge = ridge
        self.tensor_shape = tensor_shape
        self.flatten = flatten
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn from matrices and labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, d2) or (n_samples, n_features)
            Matrices, or flat rows with ``tensor_shape``.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        object
            The learner itself.
        """
        self._check_parameters()
        T = self._check_tensors(X, reset=True, min_samples=2)
        shape = T.shape[1:]
        if len(shape) != 2:
            self._forget()
            raise ValueError(
                f"TwoDLDA is for matrices, tensors of order 2; those of X have shape {shape}, of "
                f"order {len(shape)}. Use GTDA, which takes any order."
            )
        classes, codes = self._check_labels(y, len(T))
        # Steps divide by the scatter within classes, which takes more digits than float32 has.
        scatters = StackScatters(T, codes, exact=True)
        kept = self._kept(scatters, len(classes))
        if self.init == "identity":
            start = [np.eye(d, q) for d, q in zip(shape, kept, strict=True)]
        else:
            start = random_factors(shape, kept, check_random_state(self.random_state))
        steps, interrupt = self._steps(scatters, start, kept)
        ends = steps[1::2]  # of the iterations, when both maps are new
        best = len(ends) - 1
        if self.keep == "best":
            best = int(np.argmax([step.ratio for step in ends]))
        self.classes_ = classes
        self.n_iter_ = best + 1
        self.history_ = {
            "objective": [step.objective for step in steps],
            "ratio": [step.ratio for step in steps],
            "seconds": [step.seconds for step in ends],
        }
        self._keep_factors(ends[best].factors, scatters.mean, T.dtype)
        if interrupt is not None:
            raise interrupt  # Ctrl-C as usual, after the best so far was left here
        return self

    def _kept(self, scatters: StackScatters, n_classes: int) -> list[int]:
        """How many columns the maps have."""
        shape = scatters.mean.shape
        wanted = self._wanted_components(shape)
        totals = [scatters.between_scatter(k) + scatters.within_scatter(k) for k in (0, 1)]
        if not np.trace(totals[0]) > 0:
            raise ValueError(
                "TwoDLDA: all samples are equal in X, so that there is nothing to learn."
            )
        kept = wanted or [n_for_share(ordered_eigh(S)[0], _SHARE) for S in totals]
        most = [(n_classes - 1) * q for q in reversed(kept)]
        if isinstance(self.n_components, tuple | list) and any(
            q > limit for q, limit in zip(kept, most, strict=True)
        ):
            raise ValueError(
                f"TwoDLDA: n_components={self.n_components!r} asks for directions in which no "
                f"class mean differs: of {n_classes} classes no mode has more than "
                f"{n_classes - 1} times the number of the other."
            )
        return [min(q, limit) for q, limit in zip(kept, most, strict=True)]

    def _steps(
        self, scatters: StackScatters, start: Sequence[Matrix], kept: Sequence[int]
    ) -> tuple[list[_Step], KeyboardInterrupt | None]:
        """One map after the other, each from the one before; whole iterations, and what ended them.

        Ctrl-C before the end of the first is raised.
        """
        steps: list[_Step] = []
        factors = list(start)
        report, begun = report_of(self), perf_counter()
        try:
            for mode in [0, 1] * self.n_iter:
                between = scatters.between_scatter(mode, factors)
                within = scatters.within_scatter(mode, factors)
                objective, U = _leading_quotients(between, within, kept[mode], self.ridge)
                factors = [U if k == mode else other for k, other in enumerate(factors)]
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratio = float(np.sum(U * (between @ U)) / np.sum(U * (within @ U)))
                steps.append(_Step(factors, objective, ratio, perf_counter() - begun))
                if mode == 1 and report is not None:
                    report({"objective": objective, "ratio": ratio, "seconds": steps[-1].seconds})
        except KeyboardInterrupt as interrupt:
            if len(steps) < 2:
                raise
            return steps[: len(steps) // 2 * 2], interrupt
        return steps, None


class _Step(NamedTuple):
    """Both maps after a step, the trace of the ratio and the ratio of traces, and when it was."""

    factors: list[Matrix]
    objective: float
    ratio: float
    seconds: float


def _leading_quotients(
    between: Matrix, within: Matrix, n_kept: int, ridge: float
) -> tuple[float, Matrix]:
    """The sum of the leading eigenvalues of W⁻¹B, and their vectors of length one."""
    d = len(within)
    # Where every class is a point, all directions cost the same.
    level = np.trace(within) / d or 1.0
    regular = within + ridge * level * np.eye(d)
    try:
        definite_factor(regular, _EMPTY)
        values, vectors = linalg.eigh(between, regular, subset_by_index=[d - n_kept, d - 1])
    except linalg.LinAlgError:
        raise ValueError(
            "TwoDLDA: the scatter within classes is singular, as some rows or columns of the "
            f"matrices do not vary within classes; ridge={ridge} is too little."
        ) from None
    U = vectors[:, ::-1]
    return float(values.sum()), signed_columns(U / linalg.norm(U, axis=0))
