"""Margin functional of a weighted sum of kernels, as a convex function of the weights."""

from __future__ import annotations

import numpy as np

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.kernel_set import KernelSet
from nearfar.kernels.margin_value import MarginSolution, check_separable, solve_margin
from nearfar.solvers.level_method import Answer, Model, Multipliers
from nearfar.solvers.norm_ball import compute_dual_norm, mix_forms

# Tolerance of the first SVMs.
_INITIAL_TOL = 5e-3
# The tolerance of the SVMs is reduced if the gap of an SVM is more than this fraction of the gap
# between the best value and the bound.
_MAX_OPEN_FRACTION = 0.1
# The value is infinite if the weighted sum of kernels does not separate the classes. The dual
# variables are then scaled so that the lower bound is this multiple of the best value so far.
_BOUND_MULTIPLE = 10.0


class MarginProgram:
    r"""Margin functional of :math:`c \sum_i x_i K_i / \mathrm{tr} K_i` as a function of x.

    .. math:: F(x) = \sum_k w_{C,\tau}\Bigl(c \sum_i x_i K_i / \mathrm{tr} K_i; y^k\Bigr),

    where :math:`y^k` are the labels of class k against the rest. For two classes, the sum has one
    term.

    `evaluate` stores the dual variables of each point. Convex combinations of dual variables prove
    lower bounds.
    """

    #: Limits of the weights for `run_level_method`. None means nonnegative weights.
    limits: Vector | None = None

    def __init__(
        self,
        kernels: KernelSet,
        signs: Matrix,
        C: float | None,
        dual_ridge: float,
        total: float,
        tol: float,
        norm: float = 1.0,
    ) -> None:
        self.kernels, self.signs, self.C, self.dual_ridge, self.norm = (
            kernels,
            signs,
            C,
            dual_ridge,
            norm,
        )
        self.n, self.scale = signs.shape[1], total / kernels.traces
        self.bound = -np.inf
        self.value = np.inf
        self._tol, self._svm_tol = tol, _INITIAL_TOL
        self._last: list[MarginSolution | None] = [None] * len(signs)
        # Dual variables at each evaluated point x, multiplied by the labels. Each array has shape
        # (n, n_classes).
        self._betas: list[Matrix] = []
        self._mix = np.empty(0)
        # Planes of the model. Each plane is defined by the weights with which it combines the dual
        # variables.
        self._planes: list[Vector] = []
        # Linear term 2 e'alpha of the dual objective, for each set of dual variables.
        self.linear = np.empty(0)
        # Quadratic term of the ridge, for each pair of sets of dual variables.
        self.ridge = np.empty((0, 0))
        # Quadratic term of each kernel, for each pair of sets of dual variables.
        self.forms = np.empty((kernels.n_kernels, 0, 0))

    def evaluate(self, x: Vector) -> Answer:
        """Solve the SVMs at the point x. Return the value and a plane that is a lower bound."""
        K = self.kernels.compute_weighted_sum(self.scale * x, self.n)
        solutions = [
            solve_margin(K, y, self.C, self.dual_ridge, tol=self._svm_tol, start=last)
            for y, last in zip(self.signs, self._last, strict=True)
        ]
        del K
        if not self._betas:
            # If equal weights do not separate the classes, no weights do.
            check_separable(solutions)
        value = float(sum(solution.value for solution in solutions))
        if np.isfinite(value):
            self._last = list(solutions)
        alphas = [s.alpha if np.isfinite(s.value) else self._scale_dual(s) for s in solutions]
        intercept, slope = self._store_dual((self.signs * np.array(alphas)).T)
        self._planes.append(np.eye(1, len(self._betas), len(self._betas) - 1)[0])
        bound_at_x = intercept - float(slope @ x)
        self.value = min(self.value, value)
        allowed_gap = max(self.value - self.bound, self._tol * abs(self.value))
        if np.isfinite(value) and value - bound_at_x > _MAX_OPEN_FRACTION * allowed_gap:
            self._svm_tol = max(self._svm_tol / 4, 1e-10)
        return Answer(x, value, intercept, slope, np.empty((0, len(x))))

    def certify(self, multipliers: Multipliers, model: Model) -> float:
        """Combine all dual variables so far, add the resulting plane, and return its bound.

        The combined dual variables prove a better bound than the combination of their planes. No
        further SVM is fitted.
        """
        mix = np.zeros(len(self._betas))
        for fraction, plane in zip(multipliers.planes, self._planes, strict=True):
            mix[: len(plane)] += fraction * plane
        model.add_plane(float(self.linear @ mix - mix @ self.ridge @ mix), self._compute_slope(mix))
        self._planes.append(mix)
        return self.prove(mix)

    def prove(self, mix: Vector) -> float:
        """Return the bound of a combination of dual variables. The best bound is stored."""
        q = self._compute_slope(mix)
        bound = float(self.linear @ mix - mix @ self.ridge @ mix) - compute_dual_norm(q, self.norm)
        if bound > self.bound:
            self.bound, self._mix = bound, mix.copy()
        return bound

    def _compute_slope(self, mix: Vector) -> Vector:
        return mix_forms(self.forms, mix)

    def compute_alpha(self) -> Matrix:
        """Return the dual variables that prove the bound, with one row per class."""
        beta = sum(fraction * beta for fraction, beta in zip(self._mix, self._betas, strict=False))
        return np.clip(self.signs * np.asarray(beta).T, 0.0, self.C)

    def compute_psd_cuts(self) -> Matrix | None:
        """Return None, because the bound is proved by the dual variables alone."""
        return None

    def _store_dual(self, beta: Matrix) -> tuple[float, Vector]:
        """Store dual variables, and return the intercept and slope of their plane."""
        n_old = len(self._betas)
        self._betas.append(beta)
        products = self.scale[:, None] * self.kernels.compute_products(beta, self._betas)
        self._check_nonnegative(products[:, -1])
        forms = np.empty((len(products), n_old + 1, n_old + 1))
        forms[:, :n_old, :n_old] = self.forms
        forms[:, n_old, :] = forms[:, :, n_old] = products
        self.forms = forms
        ridge = np.empty((n_old + 1, n_old + 1))
        ridge[:n_old, :n_old] = self.ridge
        ridge[n_old] = ridge[:, n_old] = [
            self.dual_ridge * np.vdot(beta, other_beta) for other_beta in self._betas
        ]
        self.ridge = ridge
        self.linear = np.append(self.linear, 2 * np.abs(beta).sum())
        return float(self.linear[-1] - ridge[-1, -1]), products[:, -1]

    def _scale_dual(self, solution: MarginSolution) -> Vector:
        """Scale the dual variables of an SVM whose value is infinite, to prevent overflow."""
        total = float(solution.alpha.sum())
        goal = _BOUND_MULTIPLE * self.value if np.isfinite(self.value) else _BOUND_MULTIPLE
        return solution.alpha * (goal / (2 * total)) if total > 0 else solution.alpha

    def _check_nonnegative(self, forms: Vector) -> None:
        worst = int(np.argmin(forms))
        if forms[worst] < -1e-6 * max(float(np.abs(forms).max()), 1e-300):
            raise ValueError(
                f"kernels[{worst}] must be positive semi-definite; it has a negative eigenvalue. "
                "Use nearfar.distributions.repair_kernel to get the nearest kernel."
            )
