"""Tags that describe an estimator: its role, its input and its supervision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reads = Literal["statistics", "graph", "supervision", "instances"]
Role = Literal["map", "classifier", "regressor", "clusterer", "kernel"]
Input = Literal["vectors", "tensors", "sets", "pairs"]
SupervisionKind = Literal["labels", "values", "pairs", "triplets", "quadruplets", "chunklets"]


@dataclass(frozen=True)
class LearnerTags:
    """Tags of an estimator, which are used to select, list and sort estimators.

    Parameters
    ----------
    reads : {"statistics", "graph", "supervision", "instances"}
        Data that the estimator needs: ``ClassStatistics`` alone ("statistics"), X with a neighbor
        graph ("graph"), X with supervision ("supervision"), or stored training rows ("instances").
    role : {"map", "classifier", "regressor", "clusterer", "kernel"}
        Output of the estimator: new coordinates, labels, numbers, clusters or a kernel.
    input : {"vectors", "tensors", "sets", "pairs"}
        Type of one sample.
    supervised : bool
        Whether the estimator needs labels or other supervision.
    supervision : tuple of str
        Accepted types of supervision: "labels", "values" (numbers to predict), "pairs", "triplets",
        "quadruplets", "chunklets". ``fit`` needs one of these types. The tuple is empty for
        unsupervised estimators.
    """

    reads: Reads
    role: Role = "map"
    input: Input = "vectors"
    supervised: bool = True
    supervision: tuple[SupervisionKind, ...] = ("labels",)

    @property
    def maps(self) -> bool:
        """Whether ``transform`` returns coordinates, as for the roles "map" and "kernel"."""
        return self.role in ("map", "kernel")

    def __post_init__(self) -> None:
        if not self.supervised:
            object.__setattr__(self, "supervision", ())
