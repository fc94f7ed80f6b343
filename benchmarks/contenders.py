"""Whom the clusterers are measured against: plain NumPy, plain C, scikit-learn's k-means, river's DBSTREAM."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np

from fcac.art.network import Network, Rules
from plain_numpy import PlainNetwork

SOURCE = Path(__file__).with_name("brute_force.c")


class BruteForce:
    """CA+ in C, compiled on the spot: every point against every node, with a vectorised exponential."""

    def __init__(self) -> None:
        self.compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if self.compiler is None:
            raise FileNotFoundError("no C compiler")
        flags = ["-O3", "-ffast-math", "-shared", "-fPIC"]
        if platform.machine() in ("x86_64", "AMD64"):
            flags += ["-mavx2", "-mfma"]
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "brute_force.so"
            subprocess.run([self.compiler, *flags, "-o", library, SOURCE, "-lm"], check=True)
            self._library = ctypes.CDLL(str(library))
        self._library.ca_plus.restype = ctypes.c_long
        self.flags = " ".join(flags)

    def fit(self, X: np.ndarray) -> np.ndarray:
        """Learn the rows and return the winning counts."""
        counts, threshold = ctypes.POINTER(ctypes.c_long)(), ctypes.c_double()
        pointer = X.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
        size = [ctypes.c_long(n) for n in X.shape]
        n_nodes = self._library.ca_plus(pointer, *size, ctypes.byref(counts), ctypes.byref(threshold))
        result = np.ctypeslib.as_array(counts, (n_nodes,)).copy()
        self._library.release(counts)
        return result


def ca_plus(X: np.ndarray) -> Network:
    """Learn the rows with the package's CA+."""
    network = Network(X.shape[1], Rules(False))
    network.learn(X)
    return network


def cae_fc(X: np.ndarray) -> Network:
    """Learn the rows with the package's CAE_FC."""
    network = Network(X.shape[1], Rules(True))
    network.learn(X)
    return network


def plain_numpy(X: np.ndarray) -> PlainNetwork:
    """Learn the rows with CA+ as NumPy programmers write it."""
    return PlainNetwork(False).fit(X)


def mini_batch_k_means(X: np.ndarray, n_clusters: int):
    """One pass of scikit-learn's MiniBatchKMeans over the rows, in batches of its usual size."""
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(n_clusters, init="random", n_init=1, random_state=0)
    size = max(1024, n_clusters)  # its first batch must hold as many rows as there are clusters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start in range(0, len(X), size):
            model.partial_fit(X[start : start + size])
    return model


def k_means(nodes: np.ndarray):
    """A KMeans whose centres are these nodes, for its predict."""
    from sklearn.cluster import KMeans

    model = KMeans(len(nodes), init=nodes, n_init=1, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(nodes)


def dbstream(X: np.ndarray):
    """One pass of river's DBSTREAM, a stream clusterer that keeps micro-clusters, over the rows."""
    from river.cluster import DBSTREAM

    model = DBSTREAM()
    for row in X.tolist():
        model.learn_one(dict(enumerate(row)))
    return model
