# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of a request's instances, and the digest by which two requests are compared."""

from __future__ import annotations

import hashlib
import re
import typing as t
from collections import Counter
from dataclasses import asdict, dataclass

from ..instances.request import ServerRequest
from ..legible import legible
from ..model import Image, InjectedFile

#: Parts of a request that are named; what they contain is the catalogue's.
CATALOGUE = ("flavor", "image", "root_image")
#: Fields that an existing instance can change.
IN_PLACE = ("description", "metadata", "tags")
IS_NOT = "%s: is %s, requested %s"

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


@dataclass(frozen=True)
class Names:
    """The names of the instances of requests: of each request up to its max_count, in the order of the instances."""

    requests: tuple[ServerRequest, ...]
    by_request: tuple[tuple[str, ...], ...]

    @classmethod
    def expand(cls, requests: t.Sequence[ServerRequest]) -> Names:
        """Expand the names of requests: one instance has the name of its request, several are numbered from 1."""
        return cls(tuple(requests), tuple(_numbered(r.name, r.max_count) for r in requests))

    def by_project(self) -> dict[str, list[str]]:
        """Return by project all names that instances may have, and the names of first instances that were made while the count was another one."""
        possible: dict[str, set[str]] = {}
        for request, names in zip(self.requests, self.by_request):
            possible.setdefault(request.project, set()).update(names, _first_names(request.name))
        return {project: sorted(names) for project, names in possible.items()}

    def with_existing(self, existing: t.Mapping[tuple[str, str], t.Container[str]]) -> Names:
        """Return the names with that of each first instance as it is: it was made while the count was another one. A name that another
        request has belongs to that one.

        :arg existing: project and name of a request -> names of instances of it that exist.
        """
        renamed = tuple(
            _with_first(r.name, names, existing.get((r.project, r.name), ()))
            for r, names in zip(self.requests, self.by_request)
        )
        if renamed == self.by_request:
            return self
        times = Counter((r.project, name) for r, names in zip(self.requests, renamed) for name in names)
        return Names(
            self.requests,
            tuple(
                names if times[r.project, others[0]] > 1 and others[0] not in names else others
                for r, names, others in zip(self.requests, self.by_request, renamed)
            ),
        )


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return (name,) if count == 1 else tuple("%s-%d" % (name, number) for number in range(1, count + 1))


def _first_names(name: str) -> tuple[str, str]:
    """Return the names that a first instance may have: alone, and as one of several."""
    return name, _numbered(name, 2)[0]


def _with_first(request_name: str, names: tuple[str, ...], existing: t.Container[str]) -> tuple[str, ...]:
    """Return the names with that of the first instance as it is."""
    first, *others = names
    if first not in existing:
        first = next((name for name in _first_names(request_name) if name in existing), first)
    return (first, *others)


def request_digest(request: ServerRequest) -> dict[str, t.Any]:
    """The request as plain data to store and compare: JSON types only, without secrets and counts.

    The admin password is left out; user data, injected files and the public key are included as sha256. The image is
    included without its source, which may change.
    """
    flavor = request.flavor
    return {
        "name": request.name,
        "project": request.project,
        "user": request.user,
        "description": request.description,
        "flavor": {
            "name": flavor.name,
            "flavorid": flavor.flavorid,
            "memory_mb": flavor.memory_mb,
            "vcpus": flavor.vcpus,
            "root_gb": flavor.root_gb,
            "ephemeral_gb": flavor.ephemeral_gb,
            "swap": flavor.swap,
            "extra_specs": _plain(flavor.extra_specs),
        },
        "image": image_digest(request.image),
        "root_image": image_digest(request.root_image),
        "networks": [asdict(network) for network in request.networks],
        "availability_zone": request.availability_zone,
        "forced_host": request.forced_host,
        "forced_node": request.forced_node,
        "scheduler_hints": _plain(request.scheduler_hints),
        "metadata": _plain(request.metadata),
        "tags": list(request.tags),
        **guest_data_digest(request.user_data, request.injected_files),
        "config_drive": request.config_drive,
        **key_digest(request.key_name, request.key_data),
        "block_device_mapping": [asdict(device) for device in request.block_device_mapping],
        "security_groups": list(request.security_groups),
        "access_ip_v4": request.access_ip_v4,
        "access_ip_v6": request.access_ip_v6,
        "disk_config": request.disk_config,
        "hostname": request.hostname,
        "extra": _plain(request.extra),
    }


def guest_data_digest(user_data: t.Optional[str], files: t.Iterable[InjectedFile]) -> dict[str, t.Any]:
    """Return the digest's fields of user data and injected files: their sha256."""
    return {
        "user_data": _sha256(user_data),
        "injected_files": {file.path: _sha256(file.contents) for file in sorted(files, key=lambda file: file.path)},
    }


def key_digest(name: t.Optional[str], public_key: t.Optional[str]) -> dict[str, t.Any]:
    """Return the digest's fields of a key pair."""
    return {"key_name": name, "key_data": _sha256(public_key)}


@dataclass(frozen=True)
class Difference:
    """Differences of two digests, in words."""

    requested: tuple[str, ...] = ()  # by what was requested: the instance is another one
    in_place: tuple[str, ...] = ()  # fields that an existing instance can change
    drift: tuple[str, ...] = ()  # the catalogue has changed what the request names; the instance keeps what it has

    def __bool__(self) -> bool:
        return bool(self.requested or self.in_place or self.drift)


def difference(
    old: t.Mapping[str, t.Any], new: t.Mapping[str, t.Any], names: t.Mapping[str, str] | None = None
) -> Difference:
    """Compare the digest ``old`` of an instance with the digest of a request.

    :arg names: of ids, for messages: ids of networks and subnets.
    """
    requested, drift = differing(old, new, names)
    return Difference(
        tuple(d.words(IS_NOT) for d in requested if d.field not in IN_PLACE),
        tuple(changed_in_place(old, new)),
        tuple(d.words("%s: was %s, is %s") for d in drift),
    )


class Differing(t.NamedTuple):
    """One thing that two digests differ in."""

    field: str
    path: str  # of what differs within the field
    was: str  # as people read it
    now: str

    def words(self, words: str) -> str:
        return "%s differs" % self.path if self.was == self.now else words % (self.path, self.was, self.now)


def differing(
    old: t.Mapping[str, t.Any], new: t.Mapping[str, t.Any], names: t.Mapping[str, str] | None = None
) -> tuple[list[Differing], list[Differing]]:
    """(what was requested otherwise, what the catalogue has changed since). :arg names: see difference()"""
    requested: list[Differing] = []
    drift: list[Differing] = []
    if old == new:
        return requested, drift
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before == after:  # most of them: a walk through their fields costs ten times as much
            continue
        if name in IN_PLACE and not before and not after:  # the digest of an older version lacks it
            continue
        if name in CATALOGUE and (before or {}).get("name") == (after or {}).get("name"):
            drift += _differences(before, after, name, name, {})
        elif name in CATALOGUE:
            requested += _differences((before or {}).get("name"), (after or {}).get("name"), name, name, {})
        elif name == "key_data" and old.get("key_name") == new.get("key_name"):
            drift += _differences(before, after, name, name, {})
        elif name == "config_drive" and _is_implied(old, new):
            continue
        elif name != "key_data":
            requested += _differences(before, after, name, name, names or {})
    return requested, drift


def _is_implied(old: t.Mapping[str, t.Any], new: t.Mapping[str, t.Any]) -> bool:
    """Whether only one of two requests has a config drive, for what it brings to the guest: that differs, and the drive was not requested."""
    drives = [digest.get("config_drive") for digest in (old, new)]
    if sorted(map(str, drives)) != ["None", "True"]:
        return False
    needing = old if drives[0] else new
    return any(needing.get(name) for name in ("user_data", "injected_files", "key_name"))


def changed_in_place(old: t.Mapping[str, t.Any], new: t.Mapping[str, t.Any]) -> list[str]:
    """The fields of IN_PLACE that differ. The digest of an older version may lack some: then they are empty."""
    return [name for name in IN_PLACE if (old.get(name) or None) != (new.get(name) or None)]


def _differences(old: t.Any, new: t.Any, field: str, path: str, names: t.Mapping[str, str]) -> t.Iterator[Differing]:
    if isinstance(old, t.Mapping) and isinstance(new, t.Mapping):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), field, "%s.%s" % (path, key), names)
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new)):
            yield from _differences(one, other, field, "%s[%d]" % (path, index), names)
    elif old != new:
        yield Differing(field, path, shown(old, names), shown(new, names))


def shown(value: t.Any, names: t.Mapping[str, str]) -> str:
    """A value of a digest as people read it. :arg names: of ids"""
    if value is None or value == "" or value == [] or value == {}:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, t.Mapping):
        filled = [v for v in value.values() if v is not None and v != "" and v is not False]
        return " ".join(shown(v, names) for v in filled)
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(v, names) for v in value)
    text = str(value)
    if text.startswith("sha256:"):
        return "set"
    text = legible(names.get(text, "another id" if _UUID.match(text) else text))
    return text if len(text) <= 80 else text[:77] + "..."


def image_digest(image: t.Optional[Image]) -> t.Optional[dict[str, str]]:
    """Return the digest's fields of an image: not its source, which may change."""
    return None if image is None else {"id": image.id, "name": image.name, "checksum": image.checksum}


def _sha256(text: t.Optional[str]) -> t.Optional[str]:
    return None if text is None else "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def _plain(value: t.Any) -> t.Any:
    """``value`` in JSON's types, so that it compares equal after it was stored in the ledger."""
    if isinstance(value, t.Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value
