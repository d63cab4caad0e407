# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volume types: the catalogue of the inventory variable bootflow_volume_types."""

from __future__ import annotations

import typing as t

from ..errors import VolumeTypeNotFound, VolumeTypeNotFoundByName
from ..reading.fields import Fields, catalogue_id, entries_of
from ..reading.nearest import suggestion
from ..reading.problems import Problems
from .model import VolumeType

PROVISIONING = ("thin", "thick")


class VolumeTypes:
    """The types, by name or id. Iterates over the names."""

    def __init__(self, types: t.Iterable[VolumeType] = ()):
        self._by_name = {volume_type.name: volume_type for volume_type in types}
        self._by_id = {volume_type.id: volume_type for volume_type in self._by_name.values() if volume_type.id}

    def __iter__(self) -> t.Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name_or_id: str, project: str | None = None) -> VolumeType:
        """:raises VolumeTypeNotFound: (404) unknown, or not available to that project."""
        volume_type = None
        if isinstance(name_or_id, str):
            volume_type = self._by_id.get(name_or_id) or self._by_name.get(name_or_id)
        if volume_type is None:
            raise VolumeTypeNotFoundByName(
                volume_type_name=ascii(name_or_id)[1:-1],
                remedy=suggestion(ascii(name_or_id)[1:-1], self, "bootflow_volume_types"),
            )
        if project is not None and not volume_type.open_to(project):
            raise VolumeTypeNotFound(
                volume_type_id=volume_type.name,
                remedy="The volume type is not public: add %s to its projects." % project,
            )
        return volume_type


def read_volume_types(data: t.Any) -> VolumeTypes:
    """The types from bootflow_volume_types: a list of {name, extra_specs, description, is_public, projects, id}, or a mapping
    keyed by name. provisioning:type is thin or thick; Cinder treats any other word as thin.

    :raises InvalidRequest: all errors, the paths beginning with volume_types.
    """
    problems = Problems()
    types: list[VolumeType] = []
    for fields in entries_of("volume_types", data, problems):
        made = _read(fields)
        fields.unknown()
        if made.name and any(made.name == other.name for other in types):
            fields.wrong("name", "%r is used twice" % made.name, "Give each volume type a unique name.")
        if any(made.id == other.id for other in types if other.name != made.name):
            fields.wrong("id", "%r is used twice" % made.id)
        types.append(made)
    problems.raise_if_any()
    return VolumeTypes(types)


def _read(fields: Fields) -> VolumeType:
    name = fields.name("name")
    specs = {key: _spec(fields, key, value) for key, value in fields.mapping("extra_specs").items()}
    provisioning = specs.get("provisioning:type")
    if provisioning is not None and provisioning not in PROVISIONING:
        fields.wrong("extra_specs", "provisioning:type must be one of %s" % ", ".join(PROVISIONING))
    return VolumeType(
        name=name,
        extra_specs=specs,
        id=fields.text("id") or catalogue_id("volume_type", name),
        description=fields.text("description"),
        is_public=fields.boolean("is_public", True),
        projects=tuple(str(project) for project in fields.items("projects")),
    )


def _spec(fields: Fields, key: str, value: t.Any) -> str:
    if not isinstance(value, (str, int, float)) or not 1 <= len(key) <= 255:
        fields.wrong("extra_specs", "%s must be a text" % ascii(key))
    elif isinstance(value, bool):
        # As a text it would match no boolean capability.
        fields.wrong("extra_specs", "%s is not a string" % ascii(key), 'Write "<is> %s".' % value)
    elif len(str(value)) > 255:
        fields.wrong("extra_specs", "%s must have at most 255 characters" % ascii(key))
    return str(value)
