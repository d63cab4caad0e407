# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HTML and inline SVG from elements: every text and every attribute is escaped, whoever wrote it."""

from __future__ import annotations

import re
import typing as t

from ..legible import legible

# Characters that no document of XML can have, escaped or not.
_FORBIDDEN = re.compile("[\ufffe\uffff]")
#: Elements of HTML without an end tag.
_VOID = frozenset(("meta", "br"))
#: Elements that begin a line, so that a diff of two reports shows what differs.
_LINES = frozenset(
    "article body caption details div footer g h1 h2 h3 h4 head header li main nav p rect section style svg table tr".split()
)


class Markup(str):
    """A text that is markup already."""

    __slots__ = ()


Child = t.Union[str, int, float, None, Markup, t.Iterable[t.Any]]


def escaped(text: t.Any) -> str:
    """Return a text as content or attribute value; what would not be seen is shown as its code."""
    plain = _FORBIDDEN.sub("\ufffd", legible(str(text)))
    return (
        plain.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&quot;")
        .replace("'", "&#39;")
    )


def joined(*children: Child) -> Markup:
    """Return the children as markup: texts are escaped, lists are flattened, None is left out."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, (str, int, float)):
            parts.append(escaped(child))
        else:
            parts.append(joined(*child))
    return Markup("".join(parts))


def tag(element: str, /, *children: Child, **attributes: t.Any) -> Markup:
    """Return an element. An attribute that is None is left out; ``cls`` is class, and ``aria_label`` aria-label."""
    words = [
        ' %s="%s"' % ("class" if key == "cls" else key.replace("_", "-"), escaped(_number(value)))
        for key, value in attributes.items()
        if value is not None
    ]
    begin = "%s<%s%s>" % ("\n" if element in _LINES else "", element, "".join(words))
    if element in _VOID:
        return Markup(begin[:-1] + "/>")
    return Markup("%s%s</%s>" % (begin, joined(*children), element))


def table(
    caption: str, head: t.Sequence[Child], rows: t.Iterable[t.Sequence[Child]], numbers: t.Collection[int] = ()
) -> Markup:
    """Return a table; the first cell of a row is its heading. :arg numbers: columns of numbers, from 0"""
    titles = [tag("th", title, scope="col", cls="number" if i in numbers else None) for i, title in enumerate(head)]
    lines = []
    for row in rows:
        cells = [
            tag("td", cell, cls="number" if i in numbers else None) if i else tag("th", cell, scope="row")
            for i, cell in enumerate(row)
        ]
        lines.append(tag("tr", cells))
    body = (tag("caption", caption), tag("thead", tag("tr", titles)), tag("tbody", lines))
    # A wide table scrolls by itself, also with the keyboard.
    return tag("div", tag("table", *body), cls="scrolls", tabindex=0, role="region", aria_label=caption)


def _number(value: t.Any) -> t.Any:
    """Two decimals are less than a hundredth of a pixel, and the same on every machine."""
    return ("%.2f" % value).rstrip("0").rstrip(".") if isinstance(value, float) else value
