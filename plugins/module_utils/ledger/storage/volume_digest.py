# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was asked of a volume, kept beside it, to tell whether a later request asks for the same.

It is what was written down, not what became of it: a source that is gone meanwhile, or another default type, makes no
difference. A size may be what was asked, or what the volume was extended to.
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.model import Image
from ...core.reading.formats import to_boolean
from ...core.volumes.catalogue import VolumeTypes

# Under each of them the value where nothing was asked.
_FIELDS: dict[str, t.Any] = {
    "size": None,
    "description": "",
    "volume_type": None,
    "metadata": {},
    "snapshot_id": None,
    "source_volid": None,
    "image_id": None,
    "availability_zone": None,
    "scheduler_hints": {},
    "multiattach": False,
}
_WORDS = {"snapshot_id": "snapshot", "source_volid": "source volume", "image_id": "image"}


class VolumeDigest:
    """``data`` is plain JSON, the fields of a request."""

    def __init__(self, data: t.Mapping[str, t.Any]):
        self.data = dict(data)

    @classmethod
    def of(cls, asked: t.Mapping[str, t.Any]) -> VolumeDigest:
        """:arg asked: create_request.fields_of() of an entry."""
        return cls({name: _plain(name, asked.get(name)) for name in _FIELDS})

    def differences(
        self,
        row: t.Any,
        asked: t.Mapping[str, t.Any],
        resolved: t.Mapping[str, t.Any],
        types: VolumeTypes,
        image: t.Callable[[str], Image],
    ) -> list[str]:
        """What the volume in ``row`` is other than asked, in words.

        :arg resolved: the same entry with the ids of what it names.
        """
        wanted = VolumeDigest.of(asked).data
        found = []
        for name, before in self.data.items():
            now = wanted.get(name)
            if now == before or self._means(name, now, resolved.get(name), row, types, image):
                continue
            if name == "size" and isinstance(now, int):
                hint = " (volume_extend makes it larger)" if now > row.size else ""
                found.append("its size is %d GB, not %d%s" % (row.size, now, hint))
            else:
                found.append("its %s is %s, not %s" % (_WORDS.get(name, name), _shown(before), _shown(now)))
        return found

    @staticmethod
    def _means(
        name: str, now: t.Any, resolved: t.Any, row: t.Any, types: VolumeTypes, image: t.Callable[[str], Image]
    ) -> bool:
        """Whether another word means what the volume is."""
        if now is None:
            return False
        if name == "size":
            return bool(now == row.size)
        if name in ("snapshot_id", "source_volid"):
            return getattr(row, name) in (now, resolved)
        try:
            if name == "image_id":
                return bool(row.image_id == image(now).id)
            if name == "volume_type":
                return bool(row.volume_type == types.get(now).name)
        except errors.NotFound:
            pass
        return False


def _plain(name: str, value: t.Any) -> t.Any:
    if name == "multiattach":
        try:
            return to_boolean(value) if value is not None else False
        except ValueError:
            return str(value)
    if name == "size" and isinstance(value, str) and value.isdigit():
        return int(value)
    if name == "description" and isinstance(value, str):
        return value.strip()
    if value is None or value == "" or value == 0:
        return _FIELDS[name]
    if isinstance(value, t.Mapping):
        return {str(k): v for k, v in value.items()}
    return value


def _shown(value: t.Any) -> str:
    return "none" if value in (None, "", {}) else str(value)
