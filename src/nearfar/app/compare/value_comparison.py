"""The result of a comparison where the target is a number: the same questions, other numbers."""

from __future__ import annotations

from nearfar.app.compare.comparison import Comparison


class ValueComparison(Comparison):
    """What :func:`nearfar.compare` found with ``task="regression"``.

    ``answer``, ``best``, ``table``, ``folds``, ``code``, ``pipeline``, ``fit``, ``to_html`` and
    ``to_json`` are those of :class:`nearfar.app.compare.comparison.Comparison`. An ``error`` is a
    relative RMSE, see :class:`nearfar.evaluation.measures.RelativeRMSE`, and ``rmse`` the same in
    the units of the target.
    """

    _of_each_method = f"{Comparison._of_each_method} rmse"
    _heads = ("rel. RMSE %", "gain")
    _label = 22
