"""Error rates and the comparison of methods."""

from nearfar.evaluation.cross_validation import cross_validate

__all__ = ["cross_validate"]
