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
from nearfar.base.progress import get_reporter
from nearfar.base.tensor_input import N_COMPONENTS_OF_MODES, TENSOR_PARAMETERS
from nearfar.parameters import boolean, integer, one_of, random_state, real
from nearfar.solvers.eigen import factor_definite
from nearfar.solvers.mode_subspaces import (
    count_leading_values,
    draw_random_factors,
    fix_column_signs,
    ordered_eigh,
)
from nearfar.state import State, integer_value, labels
from nearfar.summaries.mode_scatters import StackScatters

# Fraction of the energy that each mode keeps if n_components is None, as in general tensor
# analysis (GTA).
_ENERGY_FRACTION = 0.97
# Reciprocal condition number below which the scatter within classes is treated as singular.
_MIN_RECIPROCAL_CONDITION = 1e-12


class TwoDLDA(MultilinearLearner):
    r"""Two-dimensional LDA: supervised projections of the rows and columns of matrices.

    The projections U of the rows and V of the columns should maximize the ratio of traces

    .. math:: \frac{D_b}{D_w} =
        \frac{\sum_c n_c \|U^T (M_c - M) V\|^2}{\sum_i \|U^T (X_i - M_{c(i)}) V\|^2} ,

    where :math:`M_c` and :math:`n_c` are the mean and the size of class c, M is the mean of all
    samples and c(i) is the class of sample i.

    The algorithm alternates between U and V. For fixed V, the columns of U are the leading
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
    the features that separate the classes: TwoDLDA whitens rows and columns, and GTDA does not.
    On such data, LDA with shrinkage on the flat images usually helps too. Compare both.

    Cost: O(n p q) per iteration, where p is the number of entries of a matrix and q the largest
    number of components of a mode, plus O(n p d) before the first iteration, where d is the length
    of the longest mode. X is read in blocks.

    Parameters
    ----------
    n_components : int, tuple of int or None, default=None
        Dimension of the output: number of components per mode. An integer applies to every mode, up
        to the mode's length. A tuple has one entry per mode. None keeps 97% of the energy of each
        mode. With c classes, one mode has at most c - 1 times as many components as the other.
    n_iter : int, default=1
        Number of iterations. Each iteration computes U and V once.
    init : {"identity", "random"}, default="identity"
        Starting point: V contains the first columns of the identity matrix ("identity") or random
        orthonormal columns ("random").
    selection : {"last", "best"}, default="last"
        Iteration whose projections are used: the last one, or the one with the largest ratio of
        traces.
    ridge : float, default=1e-6
        Value added to the variances: in each mode, ``ridge`` times the mean diagonal element of
        :math:`A_w` is added to all diagonal elements.
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
        U and V. Their columns have length one and are not orthogonal.
    components_ : ndarray of shape (n_features_out, n_features)
        Projection matrix for flat rows: the Kronecker product of the factors. It is computed on
        access.
    mean_ : ndarray of shape (n_features,)
        Mean of the training tensors, as a flat row.
    n_components_ : tuple of int
        Number of components in each mode.
    tensor_shape_ : tuple of int
        Shape of a sample.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    history_ : dict
        Lists of progress values. "objective" (the trace of the ratio) and "ratio" (the ratio of
        traces) have one value per update of a mode. "seconds" (the time since the start) has one
        value per iteration.
    n_iter_ : int
        Number of the iteration whose result was kept. The first iteration has number 1.

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
    >>> twodlda = TwoDLDA(n_components=(4, 5), n_iter=3, selection="best").fit(images, y)
    >>> twodlda.transform(images).shape
    (1797, 20)
    >>> len(twodlda.history_["ratio"])
    6
    """

    learner_tags = LearnerTags(reads="supervision", input="tensors")
    renamed: ClassVar = {"keep": "selection"}
    settings = ({"n_iter": 5, "selection": "best"},)
    parameters: ClassVar = {
        "n_components": N_COMPONENTS_OF_MODES,
        "n_iter": [integer(1)],
        "init": [one_of("identity", "random")],
        "selection": [one_of("last", "best")],
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
        selection: Literal["last", "best"] = "last",
        ridge: float = 1e-6,
        tensor_shape: tuple[int, ...] | None = None,
        flatten: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_iter = n_iter
        self.init = init
        self.selection = selection
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
        # The updates invert the scatter within classes, which needs float64.
        scatters = StackScatters(T, codes, exact=True)
        n_components = self._choose_n_components(scatters, len(classes))
        if self.init == "identity":
            initial_factors = [np.eye(d, q) for d, q in zip(shape, n_components, strict=True)]
        else:
            initial_factors = draw_random_factors(
                shape, n_components, check_random_state(self.random_state)
            )
        steps, interrupt = self._run_iterations(scatters, initial_factors, n_components)
        iteration_ends = steps[1::2]  # An iteration ends after the second mode.
        selected_index = len(iteration_ends) - 1
        if self.selection == "best":
            selected_index = int(np.argmax([step.ratio for step in iteration_ends]))
        self.classes_ = classes
        self.n_iter_ = selected_index + 1
        self.history_ = {
            "objective": [step.objective for step in steps],
            "ratio": [step.ratio for step in steps],
            "seconds": [step.seconds for step in iteration_ends],
        }
        self._keep_factors(iteration_ends[selected_index].factors, scatters.mean, T.dtype)
        if interrupt is not None:
            raise interrupt  # The attributes contain the best result before Ctrl-C.
        return self

    def _choose_n_components(self, scatters: StackScatters, n_classes: int) -> list[int]:
        """Return the number of components of each mode."""
        shape = scatters.mean.shape
        n_requested = self._resolve_n_components(shape)
        total_scatters = [scatters.between_scatter(k) + scatters.within_scatter(k) for k in (0, 1)]
        if not np.trace(total_scatters[0]) > 0:
            raise ValueError("TwoDLDA: all samples in X are equal. At least two must differ.")
        n_components = n_requested or [
            count_leading_values(ordered_eigh(S)[0], _ENERGY_FRACTION) for S in total_scatters
        ]
        max_components = [(n_classes - 1) * q for q in reversed(n_components)]
        if isinstance(self.n_components, tuple | list) and any(
            q > limit for q, limit in zip(n_components, max_components, strict=True)
        ):
            raise ValueError(
                f"TwoDLDA: n_components={self.n_components!r} is not possible with {n_classes} "
                f"classes: a mode can have at most {n_classes - 1} times as many components as "
                "the other."
            )
        return [min(q, limit) for q, limit in zip(n_components, max_components, strict=True)]

    def _run_iterations(
        self,
        scatters: StackScatters,
        initial_factors: Sequence[Matrix],
        n_components: Sequence[int],
    ) -> tuple[list[_Step], KeyboardInterrupt | None]:
        """Return the steps of all complete iterations, and the KeyboardInterrupt that stopped them.

        The second value is None if all iterations were completed. A KeyboardInterrupt during the
        first iteration is raised.
        """
        steps: list[_Step] = []
        factors = list(initial_factors)
        report, start_time = get_reporter(self), perf_counter()
        try:
            for mode in [0, 1] * self.n_iter:
                between_scatter = scatters.between_scatter(mode, factors)
                within_scatter = scatters.within_scatter(mode, factors)
                objective, U = _solve_mode(
                    between_scatter, within_scatter, n_components[mode], self.ridge
                )
                factors = [U if k == mode else factor for k, factor in enumerate(factors)]
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratio = float(
                        np.sum(U * (between_scatter @ U)) / np.sum(U * (within_scatter @ U))
                    )
                steps.append(_Step(factors, objective, ratio, perf_counter() - start_time))
                if mode == 1 and report is not None:
                    report({"objective": objective, "ratio": ratio, "seconds": steps[-1].seconds})
        except KeyboardInterrupt as interrupt:
            if len(steps) < 2:
                raise
            return steps[: len(steps) // 2 * 2], interrupt
        return steps, None


class _Step(NamedTuple):
    """Factors, objective, ratio and elapsed time after the update of one mode."""

    factors: list[Matrix]
    objective: float
    ratio: float
    seconds: float


def _solve_mode(
    between_scatter: Matrix, within_scatter: Matrix, n_components: int, ridge: float
) -> tuple[float, Matrix]:
    """Return the sum of the leading eigenvalues of W⁻¹B, and their unit eigenvectors."""
    d = len(within_scatter)
    # If all samples of each class are equal, the ridge replaces the scatter within classes.
    mean_diagonal = np.trace(within_scatter) / d or 1.0
    regularized_scatter = within_scatter + ridge * mean_diagonal * np.eye(d)
    try:
        factor_definite(regularized_scatter, _MIN_RECIPROCAL_CONDITION)
        values, vectors = linalg.eigh(
            between_scatter, regularized_scatter, subset_by_index=[d - n_components, d - 1]
        )
    except linalg.LinAlgError:
        raise ValueError(
            "TwoDLDA: the scatter within classes is singular because some rows or columns of the "
            f"matrices do not vary within classes. Use a ridge larger than {ridge}."
        ) from None
    U = vectors[:, ::-1]
    return float(values.sum()), fix_column_signs(U / linalg.norm(U, axis=0))
