"""Names for the kinds of arrays that cross module borders."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
#: Row numbers, as NumPy indexes with them.
Positions = NDArray[np.intp]
