"""The algorithms with which the paper compares FCAC, as scikit-learn estimators.

The first four must be told the number of clusters and return that many centres; a row belongs to its nearest centre.
They use the features as they are, without scaling. All share one interface: ``fit(X, groups=site_of_each_row)`` or
``fit({site: rows})``, then ``predict``, ``cluster_centers_`` and ``labels_``.

- :class:`KMeansMerged`: k-means on the rows of all sites in one place, no federation at all (Lloyd, 1982; Arthur and
  Vassilvitskii, 2007).
- :class:`KFed`: each site clusters its rows once, the server clusters the sites' centres (Dennis, Li and Smith, 2021).
- :class:`FedFCM`: fuzzy c-means at the sites, the server averages centres with the same index (Stallmann and Wilbik,
  2022).
- :class:`MUFC`: sites send rounded seeds with counts, the server clusters points drawn from them; sites and rows can be
  forgotten (Pan, Sima, Prakash, Rana and Milenkovic, 2023).

The others are not among the paper's rivals:

- :class:`FederatedMixture` finds the number of its Gaussian components by merging and deleting them, at the sites and
  once at the server (after Rao, Crowe, Marshall, Richardson and Kirk, 2026).
- :class:`MergedMicroClusters` sends many small clusters, which the server merges by density until it sees where to stop
  (from known parts, after the design of Zhang, Qiu, Liao and Zhang, 2026).
- :class:`DPLloyd` is k-means under differential privacy, central or at every site, to compare private releases with
  (Blum, Dwork, McSherry and Nissim, 2005; Su et al., 2016).
- :class:`SummedLloyd` is the same over secure sums of several sites (after Diaa, Humphries and Kerschbaum, 2025).
- :class:`FedDPKMeans` starts private k-means from public rows at the server (Scott, Lampert and Saulpic, 2025).

Each class gives its full reference. Where a paper leaves a choice open, the default here is the one whose results come
closest to the numbers that the FCAC paper prints.

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

from fcac.paper.rivals.dp_lloyd import DPLloyd
from fcac.paper.rivals.feddp_kmeans import FedDPKMeans
from fcac.paper.rivals.federated_mixture import FederatedMixture
from fcac.paper.rivals.fedfcm import FedFCM
from fcac.paper.rivals.kfed import KFed
from fcac.paper.rivals.kmeans import KMeansMerged
from fcac.paper.rivals.micro_clusters import MergedMicroClusters
from fcac.paper.rivals.mufc import MUFC
from fcac.paper.rivals.summed_lloyd import SummedLloyd

__all__ = [
    "MUFC",
    "DPLloyd",
    "FedDPKMeans",
    "FedFCM",
    "FederatedMixture",
    "KFed",
    "KMeansMerged",
    "MergedMicroClusters",
    "SummedLloyd",
]
