"""How a fitted model shows itself: pictures, and what a notebook displays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.utils import estimator_html_repr

if TYPE_CHECKING:
    from fcac.federation import Server


class Shown:
    """Pictures of a fitted federation, for `fcac.FCAC`; drawn by :mod:`fcac.report`, which is loaded when needed."""

    server_: Server

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Settings and, once there are clusters, how columns were made comparable."""
        text: str = super().__repr__(N_CHAR_MAX)  # type: ignore[call-arg]
        fitted = hasattr(self, "server_") and self.server_.n_rounds
        return f"{text}  # {self.server_.scaling}" if fitted else text

    def plot(self, kind: str = "map", ax: Any = None) -> Any:
        """Draw the clusters with Matplotlib (extra ``plot``).

        Parameters
        ----------
        kind : {"map", "pca", "tree", "profiles"}, default="map"
            A map in which clusters are apart, the principal components, the tree of clusters, or the clusters' means.
        ax : matplotlib Axes, optional

        Returns
        -------
        ax : matplotlib Axes
        """
        from fcac.report.plots import plot

        return plot(self, kind, ax)  # type: ignore[arg-type]

    def _html_repr(self) -> str:
        """What a notebook displays: clusters once there are some, before that scikit-learn's diagram of settings."""
        if not hasattr(self, "server_") or not self.server_.n_rounds:
            diagram: str = estimator_html_repr(self)
            return diagram
        from fcac.report.notebook import notebook_html

        return notebook_html(self)  # type: ignore[arg-type]
