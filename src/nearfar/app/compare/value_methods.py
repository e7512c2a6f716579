"""Methods for a numeric target, in addition to the standard distances."""

from __future__ import annotations

from nearfar.app.compare.methods import Method, Setting

#: Learners compared when none are named.
DEFAULT = ("MLKR",)


def value_context(seed: int = 0) -> list[Method]:
    """Regressors that are no distances, to see what the features allow."""
    from sklearn.dummy import DummyRegressor
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import StandardScaler

    mean = Setting("", "passthrough", DummyRegressor())
    ridges = tuple(
        Setting(f"standardized, alpha={alpha:g}", StandardScaler(), Ridge(alpha=alpha))
        for alpha in (1.0, 10.0, 100.0, 1000.0)
    )
    # One setting: they are slow, and here only to show what is possible.
    trees = Setting("", "passthrough", HistGradientBoostingRegressor(random_state=seed))
    return [
        Method("mean", "Mean of the training rows", "context", (mean,)),
        Method("ridge", "Ridge regression", "context", ridges),
        Method("trees", "Gradient-boosted trees", "context", (trees,)),
    ]
