"""The algorithms that the paper compares FCAC with, as scikit-learn estimators.

All four want to be told the number of clusters and end in that many centres; a row belongs to its nearest
centre. They take the raw features and scale nothing. They share one interface: ``fit(X,
groups=site_of_each_row)`` or ``fit({site: rows})``, then ``predict``, ``cluster_centers_`` and ``labels_``.

=====================
==========================================================================================
:class:`KMeansMerged`  k-means on all rows in one place: no federation at all :class:`KFed`          every
site clusters once, the server clusters the sites' centres :class:`FedFCM`        fuzzy c-means at the sites,
the server averages centres of equal number :class:`MUFC`          sites send rounded seeds with counts, the
server clusters points drawn from them; can forget =====================
==========================================================================================

Their papers leave some choices open. The defaults here are those whose results come closest to the figures
that the FCAC paper prints for them.

Examples
--------
>>> import numpy as np
>>> from fcac.paper.rivals import KFed
>>> rng = np.random.default_rng(0)
>>> X = np.concatenate([rng.normal(c, 0.1, size=(60, 2)) for c in (2, 5, 9)])
>>> model = KFed(n_clusters=3, random_state=0).fit(X, groups=np.arange(180) % 4)
>>> np.sort(model.cluster_centers_[:, 0]).round().tolist()
[2.0, 5.0, 9.0]
"""

from fcac.paper.rivals.fedfcm import FedFCM
from fcac.paper.rivals.kfed import KFed
from fcac.paper.rivals.kmeans import KMeansMerged
from fcac.paper.rivals.mufc import MUFC

__all__ = ["MUFC", "FedFCM", "KFed", "KMeansMerged"]
