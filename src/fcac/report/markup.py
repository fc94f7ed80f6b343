"""HTML and SVG text that is escaped by construction: plain strings are always escaped, only `Markup` is not."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

_EMPTY_ELEMENTS = frozenset({"meta", "br", "hr", "col", "input"})


class Markup(str):
    """Text that is markup already. Everything else that goes into a tag is escaped.

    Site names, feature names and the texts in a contribution are not trusted; since only this module turns text into
    markup, none of them can become markup.
    """

    __slots__ = ()


Child = str | int | float | None


def tag(name: str, /, *children: Child | Iterable[Child], **attributes: Any) -> Markup:
    """Return one element.

    Parameters
    ----------
    name : str
    *children : str, number, None, or iterables of them
        Strings are escaped unless they are `Markup`; None is left out.
    **attributes
        A trailing underscore is dropped and other underscores become hyphens (``class_``, ``aria_label``). None and
        False leave an attribute out, True gives it without a value.

    Examples
    --------
    >>> from fcac.report.markup import tag
    >>> print(tag("p", "a < b ", tag("b", "bold"), class_="note"))
    <p class="note">a &lt; b <b>bold</b></p>
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY_ELEMENTS:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[Child | Iterable[Child]]) -> Markup:
    """Return children one after another, escaped where they are not markup."""
    return Markup("".join(_text(child) for child in children))


def _text(child: Child | Iterable[Child]) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(_printable(child), quote=True)
    if isinstance(child, int | float):
        return str(child)
    return join(child)


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(_printable(str(value)), quote=True)}"'


def _printable(text: str) -> str:
    # replaces characters that an HTML document must not contain, and lone surrogates, which cannot be encoded
    return "".join(c if c in "\t\n" or (c.isprintable() or c == " ") else "\N{REPLACEMENT CHARACTER}" for c in text)
