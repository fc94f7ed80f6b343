"""HTML components from which the sections are built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fcac.report.markup import Child, Markup, tag


def shortened(text: str, most: int = 17) -> str:
    """Shorten a long name in the middle, since names often differ at the end.

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
    """Return a section that can be linked to."""
    return tag(
        "section",
        tag("h2", title, id=f"{name}-title"),
        tag("p", intro) if intro else None,
        *content,
        id=name,
        aria_labelledby=f"{name}-title",
    )


def table(head: Sequence[str], body: Iterable[Sequence[Child]], *, caption: str, class_: str | None = None) -> Markup:
    """Return a table that scrolls sideways if it is too wide, also by keyboard."""
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
    """Return content that can be unfolded."""
    return tag("details", tag("summary", summary), *content)


def plot(picture: Markup, alt: str, *, id_: str | None = None) -> Markup:
    """Return a picture whose marks can be visited with the arrow keys, with a text alternative."""
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
