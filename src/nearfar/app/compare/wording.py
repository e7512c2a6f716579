"""How the numbers of a comparison are phrased: as errors, or as scores of which more is better."""

from __future__ import annotations

from dataclasses import dataclass

from nearfar.words import format_percent, format_points


@dataclass(frozen=True)
class Wording:
    """Phrases for a measure of which less is better.

    >>> say = Wording("balanced error")
    >>> say.whole(0.123), say.short(0.123), say.difference(0.02), say.difference(-0.02)
    ('12.3% balanced error', '12.3%', '2.0 points less balanced error', '2.0 points more')
    """

    measure: str = "error"
    #: Reason to keep a standard distance whose error is zero.
    perfect: str = "it makes no errors that a {learned} could remove."
    #: What the best of several methods has.
    most: str = "the lowest error"
    #: What a method predicts.
    predicts: str = "labels"
    #: The noun for a method that is compared with the baseline.
    learned: str = "learned distance"

    def short(self, error: float) -> str:
        """Return the number alone."""
        return format_percent(error)

    def whole(self, error: float) -> str:
        """Return the number with the name of its measure."""
        return f"{self.short(error)} {self.measure}"

    def difference(self, gain: float) -> str:
        """Return a gain as a difference to the baseline; a loss without the measure's name."""
        if gain > 0:
            return f"{format_points(gain)} points less {self.measure}"
        return "the same" if gain == 0 else f"{format_points(-gain)} points more"


class ScoreWording(Wording):
    """Phrases for a score of which more is better; an error is one minus the score.

    >>> say = ScoreWording("AUC of held-out pairs")
    >>> say.whole(0.047), say.difference(-0.02), say.difference(0.02)
    ('95.3% AUC of held-out pairs', '2.0 points less', '2.0 points more AUC of held-out pairs')
    """

    def short(self, error: float) -> str:
        """Return the score."""
        return format_percent(1.0 - error)

    def difference(self, gain: float) -> str:
        """Return a gain as a difference to the baseline; a loss without the measure's name."""
        if gain > 0:
            return f"{format_points(gain)} points more {self.measure}"
        return "the same" if gain == 0 else f"{format_points(-gain)} points less"
