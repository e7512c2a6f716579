"""Two-dimensional linear discriminant analysis."""

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
from nearfar.state import State, integer_value, labels
from nearfar.summaries.mode_scatters import StackScatters

# Fraction of the energy that each mode keeps if n_components is None, as in GTA.
_SHARE = 0.97
# Reciprocal condition number below which the scatter within classes counts as singular.
_EMPTY = 1e-12


class TwoDLDA(MultilinearLearner):
    r"""Two-dimensional LDA: supervised projections of the rows and columns of matrices.

    The projections U and V should maximize the ratio of traces

    .. math:: \frac{D_b}{D_w} =
        \frac{\sum_c n_c \|U^T (M_c - M) V\|^2}{\sum_i \|U^T (X_i - M_{c(i)}) V\|^2} .

    The algorithm alternates between them. For fixed V, the columns of U are the leading
    eigenvectors of :math:`A_w^{-1} A_b`, scaled to length one, with
    :math:`A_b = \sum_c n_c (M_c - M) V V^T (M_c - M)^T` and
    :math:`A_w = \sum_i (X_i - M_{c(i)}) V V^T (X_i - M_{c(i)})^T`. For fixed U, V is computed in
    the same way.

    Such a step maximizes the *trace of the ratio* :math:`\mathrm{tr}((U^T A_w U)^{-1} U^T A_b U)`,
    not the ratio of traces, which may decrease. The two are equal only if U and V have one column
    each. The iteration therefore need not converge, and runs exactly ``n_iter`` times; one
    iteration is usual. :class:`GTDA` accepts tensors of any order, and its steps share one
    objective.

    Use it on images with few samples per class if the lighting or the background varies more than
    the features that separate the classes: it whitens rows and columns, which GTDA does not. On
    such data, LDA with shrinkage on the flat images usually helps too. Compare both.

    Cost: O(n p q) per iteration, where p is the number of entries of a matrix and q the largest
    number of components of a mode, plus O(n p d) before the first iteration, where d is the length
    of the longest mode. X is read in blocks.

    Parameters
    ----------
    n_components : int, tuple of int or None, default=None
        Dimension of the output: number of components per mode. An integer applies to every mode, up
        to the mode's length. A tuple has one entry per mode. None keeps 97% of the energy of each
        mode. With c classes, a mode has at most c - 1 times as many components as the other.
    n_iter : int, default=1
        Number of iterations. Each computes U and V once.
    init : {"identity", "random"}, default="identity"
        Starting point: V contains the first columns of the identity, or random orthonormal columns.
    keep : {"last", "best"}, default="last"
        Iteration to keep: the last one, or the one with the largest ratio of traces.
    ridge : float, default=1e-6
        Value added to the variances: this fraction of the mean diagonal
        element of :math:`A_w` is added to its diagonal, in each mode.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample if X contains flat rows, in C order (the last mode varies fastest).
    flatten : bool, default=True
        Whether ``transform`` returns flat rows. False returns tensors.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    factors_ : list of ndarray of shape (d_k, q_k)
        U and V. Their columns have length one and are not orthogonal.
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
        Lists: "objective", the trace of the ratio, and "ratio", the ratio of traces, after each
        step of a mode; "seconds" since the start, after each iteration.
    n_iter_ : int
        Number of the iteration that was kept, starting at 1.

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
    state = State({"classes_": labels("c"), "n_iter_": integer_value(low=1)})

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
        """Learn the projections from labeled matrices.

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
                f"TwoDLDA expects matrices (tensors of order 2); the samples of X have shape "
                f"{shape}, of order {len(shape)}. Use GTDA, which accepts any order."
            )
        classes, codes = self._check_labels(y, len(T))
        # The steps divide by the scatter within classes, which needs float64.
        scatters = StackScatters(T, codes, exact=True)
        kept = self._kept(scatters, len(classes))
        if self.init == "identity":
            start = [np.eye(d, q) for d, q in zip(shape, kept, strict=True)]
        else:
            start = random_factors(shape, kept, check_random_state(self.random_state))
        steps, interrupt = self._steps(scatters, start, kept)
        ends = steps[1::2]  # An iteration ends after the second mode.
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
            raise interrupt  # The attributes contain the best result before Ctrl-C.
        return self

    def _kept(self, scatters: StackScatters, n_classes: int) -> list[int]:
        """Return the number of components of each mode."""
        shape = scatters.mean.shape
        wanted = self._wanted_components(shape)
        totals = [scatters.between_scatter(k) + scatters.within_scatter(k) for k in (0, 1)]
        if not np.trace(totals[0]) > 0:
            raise ValueError("TwoDLDA: all samples are equal in X. At least two must differ.")
        kept = wanted or [n_for_share(ordered_eigh(S)[0], _SHARE) for S in totals]
        most = [(n_classes - 1) * q for q in reversed(kept)]
        if isinstance(self.n_components, tuple | list) and any(
            q > limit for q, limit in zip(kept, most, strict=True)
        ):
            raise ValueError(
                f"TwoDLDA: n_components={self.n_components!r} is not possible with {n_classes} "
                f"classes: a mode can have at most {n_classes - 1} times as many components as "
                "the other."
            )
        return [min(q, limit) for q, limit in zip(kept, most, strict=True)]

    def _steps(
        self, scatters: StackScatters, start: Sequence[Matrix], kept: Sequence[int]
    ) -> tuple[list[_Step], KeyboardInterrupt | None]:
        """Return the steps of all complete iterations, and the KeyboardInterrupt or None.

        An interrupt during the first iteration is raised.
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
    """Factors, trace of the ratio, ratio of traces and time after a step."""

    factors: list[Matrix]
    objective: float
    ratio: float
    seconds: float


def _leading_quotients(
    between: Matrix, within: Matrix, n_kept: int, ridge: float
) -> tuple[float, Matrix]:
    """Return the sum of the leading eigenvalues of W⁻¹B, and their eigenvectors of length one."""
    d = len(within)
    # If all samples of each class are equal, the ridge replaces the scatter within classes.
    level = np.trace(within) / d or 1.0
    regular = within + ridge * level * np.eye(d)
    try:
        definite_factor(regular, _EMPTY)
        values, vectors = linalg.eigh(between, regular, subset_by_index=[d - n_kept, d - 1])
    except linalg.LinAlgError:
        raise ValueError(
            "TwoDLDA: the scatter within classes is singular because some rows or columns of the "
            f"matrices do not vary within classes. Use a ridge larger than {ridge}."
        ) from None
    U = vectors[:, ::-1]
    return float(values.sum()), signed_columns(U / linalg.norm(U, axis=0))
