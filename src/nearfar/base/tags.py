"""What an estimator is, what it takes and what it reads of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reads = Literal["statistics", "graph", "supervision", "instances"]
Role = Literal["map", "classifier", "regressor", "clusterer", "kernel"]
Input = Literal["vectors", "tensors", "sets", "pairs"]
Guide = Literal["labels", "values", "pairs", "triplets", "quadruplets", "chunklets"]


@dataclass(frozen=True)
class LearnerTags:
    """What kind of estimator it is; all that lists or sorts estimators asks these.

    Parameters
    ----------
    reads : {"statistics", "graph", "supervision", "instances"}
        What it learns from: ``ClassStatistics`` alone; a neighbour graph, or labels, pairs,
        triplets or chunklets, together with X; or training rows that it keeps.
    role : {"map", "classifier", "regressor", "clusterer", "kernel"}
        What it gives: new coordinates, labels, numbers, clusters or a kernel.
    input : {"vectors", "tensors", "sets", "pairs"}
        What one sample is.
    supervised : bool
        Whether it needs labels or another supervision.
    learns_from : tuple of str
        What may tell it which points are alike, one of which is enough: "labels", "values" (numbers
        to predict), "pairs", "triplets", "quadruplets", "chunklets". Empty for what needs nothing.
    """

    reads: Reads
    role: Role = "map"
    input: Input = "vectors"
    supervised: bool = True
    learns_from: tuple[Guide, ...] = ("labels",)

    @property
    def maps(self) -> bool:
        """Whether it gives coordinates by ``transform``: learners of maps and of kernels do."""
        return self.role in ("map", "kernel")

    def __post_init__(self) -> None:
        if not self.supervised:
            object.__setattr__(self, "learns_from", ())
