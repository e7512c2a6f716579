"""The result of a comparison by pairs."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline

from nearfar.app.compare.comparison import Comparison


class PairComparison(Comparison):
    """The result of :func:`nearfar.compare` with pairs.

    ``answer``, ``verdict``, ``best``, ``table``, ``folds``, ``code``, ``pipeline``, ``to_html`` and
    ``to_json`` are those of :class:`nearfar.app.compare.comparison.Comparison`. Numbers are areas
    under the curve of held-out pairs: more is better.
    """

    _of_each_method = (
        "label role status auc interval gain gain_interval p_holm recommended threshold missed "
        "false_alike folds_done fit_seconds peak_mb not_converged reason"
    )
    _of_each_fold = "error inner_error setting threshold missed false_alike fit_seconds peak_mb"
    _measured, _heads = "auc", ("AUC", "gain")

    def fit(self, X: Any, supervision: Any = None) -> Pipeline:
        """Fit the recommended chain to all rows and pairs, and calibrate its threshold.

        Parameters
        ----------
        X : as in :func:`nearfar.compare`
            Rows with the columns that were compared.
        supervision : Pairs
            Which of them are alike or different.

        Returns
        -------
        Pipeline
            Fitted; its last step is a :class:`nearfar.PairClassifier`, which takes pairs of rows
            that the steps before it mapped. :func:`nearfar.save` writes it into a file.
        """
        if supervision is None:
            raise ValueError("supervision is None: give the pairs that say what is alike.")
        return self._chain().fit(X, supervision)
