"""Names for the types of arrays, the same everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What users bring: float64 or float32.
Floats = NDArray[np.floating[Any]]
#: What is computed with.
Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
#: Row numbers, neighbour lists, codes of classes.
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
