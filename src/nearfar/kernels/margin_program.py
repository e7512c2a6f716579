"""The margin functional of weighted kernels as a convex function of the weights."""

from __future__ import annotations

import numpy as np

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.kernel_set import KernelSet
from nearfar.kernels.margin_value import MarginSolution, refuse_inseparable, solve_margin
from nearfar.solvers.level_method import Answer, Model, Multipliers
from nearfar.solvers.norm_ball import compute_dual_norm, mix_forms

# Tolerance of the first SVMs, and the fraction of the gap that an SVM may leave open before the
# tolerance is reduced.
_ROUGH, _OPEN = 5e-3, 0.1
# At a point without a hard margin, the lower bound is scaled to this many times the best value.
_STEEP = 10.0


class MarginProgram:
    r"""The function :math:`F(x) = \sum_k w_{C,\tau}(c \sum_i x_i K_i / \mathrm{tr} K_i; y^k)`.

    `evaluate` stores the dual variables of each point. Their convex combinations prove bounds.
    """

    #: Limits of the weights for `run_level_method`. None means nonnegative weights.
    limits: Vector | None = None

    def __init__(
        self,
        kernels: KernelSet,
        signs: Matrix,
        C: float | None,
        tau: float,
        total: float,
        tol: float,
        norm: float = 1.0,
    ) -> None:
        self.kernels, self.signs, self.C, self.tau, self.norm = kernels, signs, C, tau, norm
        self.n, self.scale = signs.shape[1], total / kernels.traces
        self.bound = -np.inf
        self.value = np.inf
        self._tol, self._machine_tol = tol, _ROUGH
        self._last: list[MarginSolution | None] = [None] * len(signs)
        self._betas: list[Matrix] = []  # (n, n_classes) each
        self._mix = np.empty(0)
        # For each plane of the model, the combination of dual variables that defines it.
        self._planes: list[Vector] = []
        # Terms of the objective of combinations: the linear term 2 e'alpha, the products with the
        # ridge, and those with each kernel.
        self.linear = np.empty(0)
        self.ridge = np.empty((0, 0))
        self.forms = np.empty((kernels.n_kernels, 0, 0))

    def evaluate(self, x: Vector) -> Answer:
        """Solve the SVMs at a point."""
        K = self.kernels.weighted(self.scale * x, self.n)
        solutions = [
            solve_margin(K, y, self.C, self.tau, tol=self._machine_tol, start=last)
            for y, last in zip(self.signs, self._last, strict=True)
        ]
        del K
        if not self._betas:
            # If equal weights do not separate the rows, no weights do.
            refuse_inseparable(solutions)
        value = float(sum(solution.value for solution in solutions))
        if np.isfinite(value):
            self._last = list(solutions)
        alphas = [s.alpha if np.isfinite(s.value) else self._tempered(s) for s in solutions]
        intercept, slope = self._keep((self.signs * np.array(alphas)).T)
        self._planes.append(np.eye(1, len(self._betas), len(self._betas) - 1)[0])
        reached = intercept - float(slope @ x)
        self.value = min(self.value, value)
        allowed = max(self.value - self.bound, self._tol * abs(self.value))
        if np.isfinite(value) and value - reached > _OPEN * allowed:
            self._machine_tol = max(self._machine_tol / 4, 1e-10)
        return Answer(x, value, intercept, slope, np.empty((0, len(x))))

    def certify(self, multipliers: Multipliers, model: Model) -> float:
        """Return the bound of a combination of all dual variables so far, and add its plane.

        The combined dual variables prove a better bound than the combination of their planes, and
        they need no further SVM.
        """
        mix = np.zeros(len(self._betas))
        for share, plane in zip(multipliers.planes, self._planes, strict=True):
            mix[: len(plane)] += share * plane
        model.add_plane(float(self.linear @ mix - mix @ self.ridge @ mix), self._slope(mix))
        self._planes.append(mix)
        return self.prove(mix)

    def prove(self, mix: Vector) -> float:
        """Return the bound of a combination of dual variables, and store it if it is the best."""
        q = self._slope(mix)
        bound = float(self.linear @ mix - mix @ self.ridge @ mix) - compute_dual_norm(q, self.norm)
        if bound > self.bound:
            self.bound, self._mix = bound, mix.copy()
        return bound

    def _slope(self, mix: Vector) -> Vector:
        return mix_forms(self.forms, mix)

    def alpha(self) -> Matrix:
        """Return the dual variables that prove the bound, (n_classes, n)."""
        beta = sum(share * beta for share, beta in zip(self._mix, self._betas, strict=False))
        return np.clip(self.signs * np.asarray(beta).T, 0.0, self.C)

    def psd_cuts(self) -> Matrix | None:
        """Return None, as the dual variables alone prove the bound."""
        return None

    def _keep(self, beta: Matrix) -> tuple[float, Vector]:
        """Store dual variables, and return the intercept and slope of their plane."""
        old = len(self._betas)
        self._betas.append(beta)
        products = self.scale[:, None] * self.kernels.products(beta, self._betas)
        self._refuse_negative(products[:, -1])
        forms = np.empty((len(products), old + 1, old + 1))
        forms[:, :old, :old] = self.forms
        forms[:, old, :] = forms[:, :, old] = products
        self.forms = forms
        ridge = np.empty((old + 1, old + 1))
        ridge[:old, :old] = self.ridge
        ridge[old] = ridge[:, old] = [self.tau * np.vdot(beta, other) for other in self._betas]
        self.ridge = ridge
        self.linear = np.append(self.linear, 2 * np.abs(beta).sum())
        return float(self.linear[-1] - ridge[-1, -1]), products[:, -1]

    def _tempered(self, solution: MarginSolution) -> Vector:
        """Return scaled dual variables that prove, without overflow, that no hard margin exists."""
        total = float(solution.alpha.sum())
        goal = _STEEP * self.value if np.isfinite(self.value) else _STEEP
        return solution.alpha * (goal / (2 * total)) if total > 0 else solution.alpha

    def _refuse_negative(self, forms: Vector) -> None:
        worst = int(np.argmin(forms))
        if forms[worst] < -1e-6 * max(float(np.abs(forms).max()), 1e-300):
            raise ValueError(
                f"kernels[{worst}] must be positive semi-definite; it has a negative eigenvalue. "
                "Use nearfar.distributions.repair_kernel to get the nearest kernel."
            )
