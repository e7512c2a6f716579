"""Array types used in annotations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: User data in float64 or float32.
Floats = NDArray[np.floating[Any]]
#: Internal data in float64.
Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
#: Row indices, neighbor lists and class codes.
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
