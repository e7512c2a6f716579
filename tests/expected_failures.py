"""Checks of scikit-learn that a learner is allowed to fail, each with its reason.

At most two a learner.
"""

EXPECTED_FAILURES: dict[str, dict[str, str]] = {}
