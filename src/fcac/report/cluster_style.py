"""How clusters are distinguished: eight colours that suit colour-blind readers, six shapes, and always a number."""

from __future__ import annotations

from dataclasses import dataclass

from fcac.report.markup import Markup, tag

#: Okabe and Ito's colours, in an order that keeps the first few far apart; the last is a grey.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#7A7A7A")
SHAPES = ("circle", "square", "diamond", "triangle", "wedge", "hexagon")
N_STYLES = len(PALETTE) * len(SHAPES)

# Corners of the shapes around (0, 0), sized to appear about as large as a circle of radius 1.
_CORNERS = {
    "square": ((-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)),
    "diamond": ((0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)),
    "triangle": ((0.0, -1.25), (1.15, 0.8), (-1.15, 0.8)),
    "wedge": ((0.0, 1.25), (1.15, -0.8), (-1.15, -0.8)),
    "hexagon": ((0.55, -1.0), (1.1, 0.0), (0.55, 1.0), (-0.55, 1.0), (-1.1, 0.0), (-0.55, -1.0)),
}


@dataclass(frozen=True)
class ClusterStyle:
    """Colour and shape of a cluster.

    Parameters
    ----------
    rank : int
        0 for the largest cluster. From `N_STYLES` on, clusters share one plain style and differ only by number.
    """

    rank: int

    @property
    def colour(self) -> str:
        """CSS class of the colour."""
        return f"c{self.rank % len(PALETTE)}" if self.rank < N_STYLES else "cx"

    @property
    def shape(self) -> str:
        """Name of the shape."""
        return SHAPES[self.rank // len(PALETTE)] if self.rank < N_STYLES else SHAPES[0]

    def mark(self, radius: float, place: tuple[float, float], **attributes: object) -> Markup:
        """Return the mark at a position, as SVG; it is drawn around (0, 0) and then moved, so that it can move on."""
        moved = f"translate({_short(place[0])},{_short(place[1])})"
        if self.shape == "circle":
            return tag("circle", r=_short(radius), transform=moved, **attributes)
        corners = " ".join(f"{_short(radius * dx)},{_short(radius * dy)}" for dx, dy in _CORNERS[self.shape])
        return tag("polygon", points=corners, transform=moved, **attributes)

    def chip(self) -> Markup:
        """Return a small mark to be shown beside a name."""
        mark = self.mark(5.5, (8, 8))
        return tag("svg", mark, class_=f"chip {self.colour}", viewBox="0 0 16 16", aria_hidden="true")


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
