"""Pieces that sections are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fcac.report.markup import Child, Markup, tag


def shortened(text: str, most: int = 17) -> str:
    """A long name without its middle, since names often differ at the end.

    Examples
    --------
    >>> from fcac.report.components import shortened
    >>> shortened("a hospital with a long name 7")
    'a hospit…g name 7'
    """
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail].rstrip()}…{text[-tail:].lstrip()}"


def section(name: str, title: str, intro: Child, *content: Child | Iterable[Child]) -> Markup:
    """A section that can be jumped to."""
    return tag(
        "section",
        tag("h2", title, id=f"{name}-title"),
        tag("p", intro) if intro else None,
        *content,
        id=name,
        aria_labelledby=f"{name}-title",
    )


def table(head: Sequence[str], body: Iterable[Sequence[Child]], *, caption: str, class_: str | None = None) -> Markup:
    """A table that scrolls sideways on its own where it is too wide, by keyboard too."""
    lines = [tag("tr", tag("th", cells[0], scope="row"), [tag("td", cell) for cell in cells[1:]]) for cells in body]
    inner = tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", tag("tr", [tag("th", name, scope="col") for name in head])),
        tag("tbody", lines),
        class_=class_,
    )
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def details(summary: str, *content: Child) -> Markup:
    """Something to unfold."""
    return tag("details", tag("summary", summary), *content)


def plot(picture: Markup, alt: str, *, id_: str | None = None) -> Markup:
    """A picture that the arrow keys walk through; its description stands in for it."""
    return tag(
        "div",
        picture,
        id=id_,
        class_="plot",
        tabindex="0",
        role="application",
        aria_roledescription="chart",
        aria_label=f"{alt} Arrow keys move from mark to mark.",
    )


def image(picture: Markup, alt: str) -> Markup:
    return tag("div", picture, role="img", aria_label=alt)
