# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dataclasses for XML elements: each field declares the place of its value once; reading and writing follow from it.

A field is declared with ``at("path")``. The path is relative to the element: ``@type`` is an attribute of it,
``driver/@name`` one of a child, ``serial`` the text of a child, ``.`` the element's own text. Fields are written in
the order of their declaration, so the same value always gives the same text. None and empty texts are not
written; a missing value reads as the field's default.

from_xml ignores everything that a class does not declare: a config has the properties this collection sets, not
everything that libvirt knows.
"""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ...errors import InvalidInput
from ...optional import Lazy, require

# The controller may plan, and a host stop guests, without XML, so lxml is only imported when XML is made or read.
etree: t.Any = Lazy("lxml.etree")

E = t.TypeVar("E", bound="Element")

_PLACE = "bootflow"


@dataclasses.dataclass(frozen=True)
class _Place:
    path: str
    kind: str  # str, int, bool (yes/no), switch (on/off), flag (present or not), one, many
    cls: t.Any = None  # an Element subclass for one and many, or str for many texts


_field = functools.partial(dataclasses.field)  # made here, used in the classes of the elements


def at(path: str, kind: str = "str", default: t.Any = None) -> t.Any:
    """A scalar field. ``kind``: str, int, bool (yes/no), switch (on/off) or flag (an empty element, present or not)."""
    if kind == "flag" and default is None:
        default = False
    return _field(default=default, metadata={_PLACE: _Place(path, kind)})


def one(cls: t.Any, path: str | None = None) -> t.Any:
    """A field with another config, or None. ``path``: the place of an element that is not a direct child."""
    return _field(default=None, metadata={_PLACE: _Place(path or cls.TAG, "one", cls)})


def many(cls: t.Any, path: str | None = None) -> t.Any:
    """A field with a tuple of configs, or of values: ``cls`` str with ``path`` ``boot/@dev`` is one per element."""
    return _field(default=(), metadata={_PLACE: _Place(path or cls.TAG, "many", cls)})


class Element:
    """Base of all configs. A subclass is a frozen dataclass with TAG, and optionally NAMESPACE and PREFIX."""

    TAG: t.ClassVar[str] = ""
    NAMESPACE: t.ClassVar[str | None] = None
    PREFIX: t.ClassVar[str | None] = None

    def to_xml(self) -> t.Any:
        """An lxml element.

        :raises InvalidInput: a value has a character that XML does not allow.
        :raises MissingLibrary: lxml is not installed.
        """
        _require_lxml()
        nsmap = {self.PREFIX: self.NAMESPACE} if self.NAMESPACE else None
        root = etree.Element(self._qname(self.TAG), nsmap=nsmap)
        for field in dataclasses.fields(t.cast(t.Any, self)):
            place: _Place = field.metadata[_PLACE]
            value = getattr(self, field.name)
            try:
                self._write(root, place, value)
            except ValueError as error:
                raise InvalidInput(
                    reason="%s of the %s element cannot be written as XML: %s" % (field.name, self.TAG, error)
                ) from error
        return root

    @classmethod
    def from_xml(cls: type[E], node: t.Any) -> E:
        """The config of an lxml element, with what the class declares.

        :raises InvalidInput: another element, or an invalid number.
        """
        if node.tag != cls._qname(cls.TAG):
            raise InvalidInput(reason="expected the element %s, found %s" % (cls.TAG, node.tag))
        values: dict[str, t.Any] = {}
        for field in dataclasses.fields(t.cast(t.Any, cls)):
            value = cls._read(node, field.metadata[_PLACE])
            values[field.name] = field.default if value is None else value
        return cls(**values)

    @classmethod
    def _qname(cls, tag: str) -> str:
        return "{%s}%s" % (cls.NAMESPACE, tag) if cls.NAMESPACE else tag

    # --- writing

    def _write(self, root: t.Any, place: _Place, value: t.Any) -> None:
        if value is None or (value == "" and "@" not in place.path):
            return
        if place.kind == "one":
            self._parent(root, place.path).append(value.to_xml())
        elif place.kind == "many":
            for item in value:
                self._write_item(root, place, item)
        elif place.kind == "flag":
            if value:
                self._descend(root, place.path.split("/"))
        else:
            self._write_text(root, place.path, _to_text(place.kind, value))

    def _write_item(self, root: t.Any, place: _Place, item: t.Any) -> None:
        if isinstance(item, Element):
            self._parent(root, place.path).append(item.to_xml())
            return
        path, dummy, attribute = place.path.partition("/@")
        node = etree.SubElement(self._parent(root, path), self._qname(path.rpartition("/")[2]))
        if attribute:
            node.set(attribute, str(item))
        else:
            node.text = str(item)

    def _write_text(self, root: t.Any, path: str, text: str) -> None:
        steps = path.split("/")
        if steps[-1].startswith("@"):
            self._descend(root, steps[:-1]).set(steps[-1][1:], text)
        elif path == ".":
            root.text = text
        else:
            self._descend(root, steps).text = text

    def _parent(self, root: t.Any, path: str) -> t.Any:
        return self._descend(root, path.split("/")[:-1])

    def _descend(self, root: t.Any, steps: t.Sequence[str]) -> t.Any:
        node = root
        for step in steps:
            child = node.find(self._qname(step))
            node = etree.SubElement(node, self._qname(step)) if child is None else child
        return node

    # --- reading

    @classmethod
    def _find(cls, node: t.Any, steps: t.Sequence[str]) -> t.Any:
        for step in steps:
            node = node.find(cls._qname(step))
            if node is None:
                return None
        return node

    @classmethod
    def _read(cls, node: t.Any, place: _Place) -> t.Any:
        steps = place.path.split("/")
        if place.kind == "many":
            return cls._read_many(node, place)
        if place.kind == "one":
            parent = cls._find(node, steps[:-1])
            element = None if parent is None else parent.find(place.cls._qname(place.cls.TAG))
            return None if element is None else place.cls.from_xml(element)
        if place.kind == "flag":
            return cls._find(node, steps) is not None
        if steps[-1].startswith("@"):
            holder = cls._find(node, steps[:-1])
            text = None if holder is None else holder.get(steps[-1][1:])
        else:
            holder = node if place.path == "." else cls._find(node, steps)
            # An empty element has no text: <loader secure='yes'/> has no path.
            text = (holder.text or None) if holder is not None else None
        return None if text is None else _from_text(place, text)

    @classmethod
    def _read_many(cls, node: t.Any, place: _Place) -> tuple[t.Any, ...]:
        path, dummy, attribute = place.path.partition("/@")
        steps = path.split("/")
        parent = cls._find(node, steps[:-1])
        if parent is None:
            return ()
        if place.cls is not str:
            return tuple(place.cls.from_xml(item) for item in parent.findall(place.cls._qname(place.cls.TAG)))
        items = parent.findall(cls._qname(steps[-1]))
        if attribute:
            return tuple(item.get(attribute) for item in items if item.get(attribute) is not None)
        return tuple(item.text or "" for item in items)


def _require_lxml() -> None:
    require(etree, "lxml", "python3-lxml (pip: lxml)")


def _to_text(kind: str, value: t.Any) -> str:
    if kind == "bool":
        return "yes" if value else "no"
    if kind == "switch":
        return "on" if value else "off"
    return str(value)


def _from_text(place: _Place, text: str) -> t.Any:
    if place.kind == "int":
        try:
            return int(text.strip(), 0)
        except ValueError:
            raise InvalidInput(reason="%s must be a number, got %r" % (place.path, text)) from None
    if place.kind in ("bool", "switch"):
        return text in ("yes", "on")
    return text


def parse(text: str | bytes) -> t.Any:
    """The root element of XML text. Entities are not expanded, nothing is fetched.

    :raises InvalidInput: the text is not well-formed XML.
    """
    _require_lxml()
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        remove_blank_text=True,
        remove_comments=True,
        remove_pis=True,
        huge_tree=True,
    )
    try:
        return etree.fromstring(text.encode("utf-8") if isinstance(text, str) else text, parser)
    except (etree.XMLSyntaxError, TypeError, ValueError) as error:
        raise InvalidInput(reason="the XML cannot be parsed: %s" % error) from error


def to_text(node: t.Any) -> str:
    """Indented XML text of an element; the same element always gives the same text."""
    return str(etree.tostring(node, pretty_print=True, encoding="unicode"))
