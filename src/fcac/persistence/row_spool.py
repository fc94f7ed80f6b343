"""Rows that are written once and read several times: in memory while they are few, in a file without a name beyond."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from fcac._typing import Floats

#: Rows beyond this many bytes go to a file.
MEMORY_BYTES = 2**25

# As much as is read back at once.
_BLOCK_BYTES = 2**23


class RowSpool:
    """A growing table of numbers that takes little memory, whatever its size.

    The file, made in `folder` if one is needed, has no name: nobody can open it, and the system removes it as soon as
    this process ends, even if it is killed. It holds the rows as they are: only their owner should be able to read the
    folder.

    >>> spool = RowSpool()
    >>> spool.append(np.ones((3, 2)))
    >>> spool.append(np.zeros((1, 2)))
    >>> spool.n_rows, spool.n_features, [len(block) for block in spool.blocks()]
    (4, 2, [3, 1])
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.n_rows = 0
        self.n_features = 0
        self._blocks: list[Floats] = []
        self._file: IO[bytes] | None = None

    def append(self, rows: Floats) -> None:
        """Add rows; they are copied."""
        block = np.array(rows, dtype=np.float64, order="C")
        if self.n_rows and block.shape[1] != self.n_features:
            raise ValueError(f"rows of {self.n_features} features were added before, these have {block.shape[1]}")
        self.n_rows, self.n_features = self.n_rows + len(block), block.shape[1]
        self._blocks.append(block)
        if self.n_rows * self.n_features * block.itemsize > MEMORY_BYTES:
            self._write_out()

    def blocks(self) -> Iterator[Floats]:
        """Yield the rows in the order in which they were added; may be called again and again."""
        if self._file is None:
            yield from self._blocks
            return
        width = 8 * self.n_features
        size, at = self.n_rows * width, 0
        step = max(1, _BLOCK_BYTES // width) * width
        while at < size:
            self._file.seek(at)
            data = self._file.read(min(step, size - at))
            at += len(data)
            yield np.frombuffer(data).reshape(-1, self.n_features)

    def array(self) -> Floats:
        """Return all rows at once."""
        if not self.n_rows:
            return np.empty((0, self.n_features))
        return np.concatenate(list(self.blocks()))

    def close(self) -> None:
        """Forget the rows and remove the file."""
        self._blocks = []
        self.n_rows = 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_out(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115  (closed by close)
        self._file.seek(0, os.SEEK_END)
        for block in self._blocks:
            self._file.write(block.data)
        self._file.flush()
        self._blocks = []
