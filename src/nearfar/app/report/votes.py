"""How ties of the vote are broken, and what scikit-learn's rule would give."""

from __future__ import annotations

from statistics import fmean

from nearfar.app.report.comparison import Comparison, Method
from nearfar.app.report.words import number, percent, points, unbroken


def plain_error(comparison: Comparison, method: Method) -> tuple[float, float] | None:
    """A method's error, and that by the plain vote, over the same folds; None where unknown."""
    results = {result["fold"]: result for result in method["results"]}
    common = [fold for fold in comparison["common_folds"] if fold in results]
    used = common if len(common) == method["folds_used"] else list(results)
    pairs = [
        (number(results[fold].get("error")), number(results[fold].get("error_plain_vote")))
        for fold in used
    ]
    known = [(own, plain) for own, plain in pairs if own is not None and plain is not None]
    if not known or len(known) < len(pairs) or len(used) != method["folds_used"]:
        return None
    return fmean(own for own, _ in known), fmean(plain for _, plain in known)


def note(comparison: Comparison) -> str:
    """What is said of ties below the leaderboard; nothing where no error by both votes is known."""
    found = []
    for method in comparison.methods:
        errors = None if method["status"] == "failed" else plain_error(comparison, method)
        if errors is not None:
            found.append((abs(errors[1] - errors[0]), method["name"], *errors))
    if not found:
        return ""
    most, name, own, plain = max(found)
    rule = (
        "Ties: k-NN here breaks ties by shrinking k. scikit-learn's KNeighborsClassifier lets the "
        "first class win; with the same neighbors and the same k "
    )
    if most < 1e-12:
        return rule + "it makes the same errors for all methods shown."
    return unbroken(
        f"{rule}its error differs most for {comparison.label(name)}: {percent(plain)} instead of "
        f"{percent(own)} ({points(own - plain, unit=True)}, positive where it makes fewer errors)."
    )
