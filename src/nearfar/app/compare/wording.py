"""How the numbers of a comparison are said: as errors, or as shares of which more is better."""

from __future__ import annotations

from dataclasses import dataclass

from nearfar.words import percent, points


@dataclass(frozen=True)
class Wording:
    """An error in words.

    >>> say = Wording("balanced error")
    >>> say.whole(0.123), say.short(0.123), say.beside(-0.02)
    ('12.3 % balanced error', '12.3 %', '2.0 points more')
    """

    measure: str = "error"
    #: What a method does with it.
    makes: str = "makes"
    #: Of what lacks nothing.
    perfect: str = "it makes no mistakes that a learner could remove."
    #: Of the best of several.
    most: str = "makes the fewest mistakes"
    #: Of numbers that are too good to be true.
    doubted: str = "every error above is too low"
    #: What is predicted.
    predicts: str = "labels"

    def short(self, error: float) -> str:
        """The number alone."""
        return percent(error)

    def whole(self, error: float) -> str:
        """The number, and what it is."""
        return f"{self.short(error)} {self.measure}"

    def beside(self, gain: float) -> str:
        """What has no gain, beside the reference."""
        return "as many" if gain == 0 else f"{points(-gain)} points more"


class ShareWording(Wording):
    """What an error lacks of one: the higher, the better.

    >>> say = ShareWording("AUC of held-out pairs", "reaches")
    >>> say.whole(0.047), say.beside(-0.02), say.beside(0.0)
    ('95.3 % AUC of held-out pairs', '2.0 points less', 'as much')
    """

    def short(self, error: float) -> str:
        """The share."""
        return percent(1.0 - error)

    def beside(self, gain: float) -> str:
        """What has no gain, beside the reference."""
        return "as much" if gain == 0 else f"{points(-gain)} points less"
