# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The request of a volume, kept with it to find out whether a later request is the same.

The digest is the request as written, not its outcome: a source deleted since, or another default type, makes no
difference. A size may be the requested one, or the one that the volume was extended to.
"""

from __future__ import annotations

import typing as t

from .. import errors
from ..model import Image
from ..reading.formats import to_boolean
from .catalogue import VolumeTypes
from .model import Volume

# Field -> its value if the request leaves it out.
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
    def from_request(cls, requested: t.Mapping[str, t.Any]) -> VolumeDigest:
        """:arg requested: create_request.fields_of() of an entry."""
        return cls({name: _plain(name, requested.get(name)) for name in _FIELDS})

    def differences(
        self,
        volume: Volume,
        requested: t.Mapping[str, t.Any],
        resolved: t.Mapping[str, t.Any],
        types: VolumeTypes,
        image: t.Callable[[str], Image],
    ) -> list[str]:
        """Texts that say how ``volume`` differs from the request.

        :arg resolved: the same entry with ids for the names in it.
        """
        wanted = VolumeDigest.from_request(requested).data
        texts = []
        for name, before in self.data.items():
            now = wanted.get(name)
            if now == before or self._means(name, now, resolved.get(name), volume, types, image):
                continue
            if name == "size" and isinstance(now, int):
                hint = " (volume_extend enlarges it)" if now > volume.size else ""
                texts.append("size is %d GiB, not %d%s" % (volume.size, now, hint))
            else:
                texts.append("%s is %s, not %s" % (_WORDS.get(name, name), _shown(before), _shown(now)))
        return texts

    @staticmethod
    def _means(
        name: str, now: t.Any, resolved: t.Any, volume: Volume, types: VolumeTypes, image: t.Callable[[str], Image]
    ) -> bool:
        """Whether another name refers to what the volume has."""
        if now is None:
            return False
        if name == "size":
            return bool(now == volume.size)
        if name in ("snapshot_id", "source_volid"):
            return getattr(volume, name) in (now, resolved)
        try:
            if name == "image_id":
                return bool(volume.image_id == image(now).id)
            if name == "volume_type":
                return bool(volume.volume_type == types.get(now).name)
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
