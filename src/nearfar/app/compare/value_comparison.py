"""The result of a comparison with a numeric target."""

from __future__ import annotations

from nearfar.app.compare.comparison import Comparison


class ValueComparison(Comparison):
    """The result of :func:`nearfar.compare` with ``task="regression"``.

    ``answer``, ``verdict``, ``best``, ``table``, ``folds``, ``code``, ``pipeline``, ``fit``,
    ``to_html`` and ``to_json`` are those of :class:`nearfar.app.compare.comparison.Comparison`. An
    ``error`` is a relative RMSE, see :class:`nearfar.evaluation.measures.RelativeRMSE`, and
    ``rmse`` is the same in the units of the target.
    """

    _of_each_method = f"{Comparison._of_each_method} rmse"
    _heads = ("rel. RMSE", "gain")
    _blocks = (*Comparison._blocks[:2], ("Other regressors (for context)", ("context",)))
