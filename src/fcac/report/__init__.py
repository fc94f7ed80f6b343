"""The report: one self-contained HTML file that shows what the clusters are, how sure they are and what was done."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from fcac import persistence
from fcac.federation import Server
from fcac.federation.replay import rounds_to_show
from fcac.model.fcac import FCAC
from fcac.report.page import page
from fcac.report.report_data import gather

__all__ = ["render_report", "snapshot", "write_report"]


def snapshot(server: Server) -> Server:
    """Return all that a report of a server needs, in memory, so that it can be written while the federation goes on.

    This is quick: nothing is computed, and of earlier rounds at most six kept states are read. What comes back is for
    :func:`write_report` and absorbs nothing.
    """
    return server.extract(rounds_to_show(server.n_rounds))


def render_report(model: FCAC | Server, X: Any = None, *, title: str | None = None, **options: Any) -> str:
    """Return the report as text; for the options see :func:`write_report`."""
    return page(gather(model, X, **options), title)


def write_report(
    model: FCAC | Server,
    path: str | os.PathLike[str] = "report.html",
    X: Any = None,
    *,
    title: str | None = None,
    compare: FCAC | Server | None = None,
    feature_names: Sequence[str] | None = None,
    federation: bool | None = None,
    schema: Any = None,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write one HTML file that explains the clusters: a map, a profile of each, the tree, how sure, what was done.

    The file needs nothing else: no network, no fonts, no scripts from elsewhere. Everything in it is computed from the
    contributions that the server keeps. Panels that need rows (novelty, exact sizes) appear only if `X` is given,
    which is allowed only for in-process runs without privacy. The file never contains a row: pictures show the server's
    own nodes to three digits and, where the clusters consist of the sites' own nodes, dots that stand for at least five
    rows each. Under `NodeRelease` sizes and means come with the error that the known noise causes.

    Parameters
    ----------
    model : FCAC or Server
        A fitted model. A Server is assumed to be the server of a federation.
    path : path-like, default="report.html"
        Written atomically.
    X : array-like, dict of site to rows, or iterator of (site, rows), optional
        Rows to be counted by cluster and in the histogram of novelty; read once, block by block.
    title : str, optional
    compare : FCAC or Server, optional
        Another read-out of the same contributions, shown beside this one.
    feature_names : sequence of str, optional
        By default the names with which the model was fitted.
    federation : bool, optional
        Whether contributions were sent from sites to a server; by default, whether `model` is a Server.
    schema : Schema, optional
        What turned tables into rows: values are then shown in the tables' units. By default the model's own.
    facts : mapping, optional
        What else is known of the run, for the section "What was done": ``rows_read``, ``rows_dropped``, ``seconds``;
        anything else is listed as it is.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from fcac import FCAC
    >>> from fcac.report import write_report
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.1, size=(1000, 2)) for c in (0.0, 5.0)])
    >>> model = FCAC(random_state=0).fit(X, groups=rng.integers(2, size=len(X)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "report.html")
    ...     write_report(model, path, X)
    ...     os.path.getsize(path) < 1_000_000
    True
    """
    shown = {"compare": compare, "feature_names": feature_names, "federation": federation, "schema": schema}
    text = render_report(model, X, title=title, facts=facts, **shown)
    persistence.write_atomic(path, text.encode())
