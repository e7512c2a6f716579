"""
How good is the solution? A bound says it
=========================================

LMNN is a convex problem in M, so there is a best value, and a fit can be compared with it. A dual
bound is a loss that no map goes below. Where the loss reached meets it, nothing is left to gain;
where it does not, you know by how much at most.
"""

# %%
# Wine: 13 features of 178 wines. To see the bound on its way the fit is stopped after more and more
# iterations. The targets are those of standardised features; below the same problem is posed in
# other units, and then the targets must be the same.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from nearfar import LMNN

raw, y = load_wine(return_X_y=True)
standard = StandardScaler().fit_transform(raw)
# The problem of the thesis: all impostors count, one pass, to the end.
published = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0}
best = LMNN(**published).fit(standard, y)
targets = best.target_neighbors_


def stopped(X, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LMNN(**published, **options).fit(X, y, target_neighbors=targets)


stops = [1, 2, 3, 5, 8, 13, 20, 30, 45, best.n_iter_]
fits = [stopped(standard, max_iter=stop) for stop in stops]
loss = np.array([fit.objective_ for fit in fits])
bound = np.array([fit.dual_bound_ for fit in fits])

sizes = np.bincount(y)
n_hinges = best.n_neighbors * int((sizes * (len(y) - sizes)).sum())
print(f"loss {best.objective_:.1f}, bound {best.dual_bound_:.1f}, gap {best.duality_gap_:.1%}")
print(f"{best.n_active_} of {n_hinges:,} hinges are active at the solution")

# %%
# Left: the loss falls to the best value within a few iterations, and the bound closes in from
# below. Right: the number of hinges that are active, which alone enter the gradient. (A few more
# than at the solution, since the solver rounds their kinks.) That is why large problems are
# feasible: all other hinges need only be known to be inactive.

blue, orange, green = "#0072B2", "#D55E00", "#009E73"
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.1), layout="constrained")
left.fill_between(stops, bound, loss, color="0.9", label="the optimum is in here")
left.plot(stops, loss, color=blue, marker="o", label="loss (objective_)")
left.plot(stops, bound, color=orange, marker="s", linestyle="--", label="bound (dual_bound_)")
left.set(xscale="log", xlabel="iterations", ylabel="loss", ylim=(0, None))
left.set_xticks(stops[::2] + stops[-1:], [str(stop) for stop in stops[::2] + stops[-1:]])
left.minorticks_off()
left.legend(frameon=False, loc="upper right")
right.plot(np.arange(1, best.n_iter_ + 1), best.history_["active"], color=green)
right.set(xlabel="iteration", ylabel='active hinges (history_["active"])', ylim=(0, None))
plt.show()

# %%
# Units and the step rule
# -----------------------
# With the targets fixed, the best loss does not depend on the units of the features: a factor in a
# column is undone by one in M. Solvers do depend on them. The thesis' projected subgradient takes
# steps in M and halves them at every kink. Here it is with standardised and with raw columns, whose
# standard deviations differ by a factor of 2500, beside L-BFGS. What is shown is how far the
# smallest loss so far is above the bound.

runs = {}
for solver, iterations in (("lbfgs", 1000), ("projected_subgradient", 500)):
    for units, X in (("standardised", standard), ("raw", raw)):
        runs[solver, units] = stopped(X, solver=solver, max_iter=iterations)

names = {"lbfgs": "L-BFGS", "projected_subgradient": "subgradient"}
lines = {"standardised": "-", "raw": "--"}
figure, ax = plt.subplots(figsize=(7.6, 4.4), layout="constrained")
for (solver, units), fit in runs.items():
    # The solver may see a little less than the loss: hinges are rounded, some not yet found.
    history = np.minimum.accumulate(fit.history_["objective"])
    above = np.maximum(history, fit.objective_) / best.dual_bound_ - 1
    ax.plot(
        np.arange(1, len(above) + 1),
        above,
        color=blue if solver == "lbfgs" else orange,
        linestyle=lines[units],
        linewidth=4 if (solver, units) == ("lbfgs", "standardised") else 2,
        alpha=0.5 if (solver, units) == ("lbfgs", "standardised") else 1,
        label=f"{names[solver]}, {units} columns",
    )
    print(
        f"{names[solver]:>11}, {units:>12}: loss {fit.objective_:9.1f}, "
        f"gap by its own bound {fit.duality_gap_:7.2%}"
    )
ax.axhline(best.duality_gap_, color="0.5", linewidth=1, linestyle=":")
ax.set(xscale="log", yscale="log", xlabel="iteration", ylabel="loss above the bound, relative")
ax.legend(frameon=False)
plt.show()

# %%
# On standardised columns the subgradient comes close, in ten times the iterations. On raw columns
# it comes to rest at two thousand times the optimum. Without a bound it would look converged; its
# ``duality_gap_`` of nearly 100 % tells. L-BFGS runs in whitened coordinates, and its two curves
# are one. Units still matter for the targets, which are neighbours in the space you give.
