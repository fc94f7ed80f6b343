"""Type aliases for the arrays that modules exchange."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
#: Row numbers, in NumPy's index type.
Positions = NDArray[np.intp]
