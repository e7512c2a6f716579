"""Numbers that the classifiers of tensors are to meet: errors in % of the first prototype."""

from __future__ import annotations

_METHODS = ("STM", "SVM", "TMPM", "MPM", "nearest mean")
_BY_SIZE = {
    10: (20.9, 27.4, 24.0, 27.4, 26.8, 30.3, 28.3, 32.4, 28.3, 27.5),
    20: (14.4, 22.5, 23.9, 22.4, 19.5, 18.3, 22.4, 25.1, 22.4, 19.8),
    40: (11.3, 18.9, 18.3, 19.5, 14.5, 15.0, 18.2, 21.1, 19.1, 14.7),
    80: (8.6, 16.6, 10.3, 20.2, 11.0, 11.9, 16.3, 13.7, 19.6, 11.1),
    160: (8.2, 14.5, 8.0, 16.2, 8.8, 10.6, 14.5, 10.8, 15.8, 8.9),
    320: (7.1, 11.5, 6.8, 10.7, 7.5, 9.9, 11.5, 9.7, 10.5, 7.4),
    640: (6.6, 9.3, 6.4, 8.2, 6.8, 9.1, 9.2, 8.9, 8.1, 6.6),
    1280: (6.3, 7.9, 6.2, 7.1, 6.5, 8.8, 7.8, 8.6, 7.1, 6.2),
}
# By the mix of the weight and the number of samples.
FIGURE_4_1 = {
    (mix, n): dict(zip(_METHODS, row[at : at + 5], strict=True))
    for n, row in _BY_SIZE.items()
    for mix, at in ((0.0, 0), (0.6, 5))
}
# Digits 3 and 8, ten splits, by the number of samples of each class.
DIGITS = {
    (method, n): value
    for method, row in {
        "ridge": (6.3, 4.8, 3.5, 2.6),
        "MPM": (6.5, 4.7, 3.5, 2.9),
        "SVC": (6.5, 5.1, 4.3, 3.2),
        "LSSTM": (7.6, 4.7, 4.3, 3.6),
        "TMPM": (8.0, 4.7, 4.2, 3.4),
        "STM": (8.5, 5.3, 4.6, 3.4),
        "STM, rank 2": (6.3, 4.8, 4.4, 4.0),
    }.items()
    for n, value in zip((5, 10, 20, 30), row, strict=True)
}
_BY_NUMBERS = {
    "PCA": (19.4, 10.7, 8.7, 8.5),
    "TR1A": (26.9, 11.8, 8.9, 8.5),
    "TR1DA, zeta 0.01": (18.2, 10.9, 8.7, 8.3),
    "TR1DA, zeta 0.1": (18.8, 10.8, 9.1, 8.5),
    "TR1DA, zeta 0.3": (18.0, 10.3, 9.0, 8.8),
    "TR1DA, zeta 1": (17.6, 11.3, 10.2, 10.0),
}
# Ten digits, ten of each, the nearest neighbour; by the number of numbers.
TR1DA_ERRORS: dict[tuple[str, int | None], float] = {
    ("raw", None): 8.5,
    ("PCA 40 + LDA 9", None): 14.4,
    ("shrinkage LDA 9", None): 11.7,
} | {
    (method, n): value
    for method, row in _BY_NUMBERS.items()
    for n, value in zip((5, 10, 20, 40), row, strict=True)
}
