"""Growing self-organizing networks as continual clusterers: GNG, GWR, ASOINN and SOINN+.

The paper reviews these four and compares itself with none of them. Here they are scikit-learn estimators with
``partial_fit``; clusters are the connected components of the network. :mod:`fcac.paper.networks.inside` puts them at
the sites and the server of `FCAC`, in place of CA+ and CAE_FC.

- :class:`GNG`: growing neural gas, a node every hundred rows where the error is largest (Fritzke, 1995).
- :class:`GWR`: grow when required, a node wherever a row is matched badly by a node that has learned enough (Marsland,
  Shapiro and Nehmzow, 2002).
- :class:`ASOINN`: adjusted self-organizing incremental neural network, with a similarity threshold for every node (Shen
  and Hasegawa, 2008).
- :class:`SOINNPlus`: the same without parameters to set; idle nodes and old edges are forgotten (Wiwatcharakoses and
  Berrar, 2020).

Each class gives its full reference, and says where it differs from its paper's text.

Examples
--------
>>> import numpy as np
>>> from fcac.paper.networks import ASOINN
>>> rng = np.random.default_rng(0)
>>> X = np.concatenate([rng.normal(c, 0.1, size=(2000, 2)) for c in (0, 5)])
>>> model = ASOINN().fit(rng.permutation(X))
>>> model.n_clusters_
2
"""

from fcac.paper.networks.asoinn import ASOINN
from fcac.paper.networks.gng import GNG
from fcac.paper.networks.gwr import GWR
from fcac.paper.networks.soinn_plus import SOINNPlus

__all__ = ["ASOINN", "GNG", "GWR", "SOINNPlus"]
