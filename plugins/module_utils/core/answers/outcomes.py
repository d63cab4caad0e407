# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of modules that work on many items: an outcome of each, by its key."""

from __future__ import annotations

import typing as t

from ..disks.stores.registry import RECORD_FORMATS
from ..instances.power_states import POWER_STATES
from ..instances.progress import FIELDS
from .shapes import (
    LARGEST_BIG,
    Shape,
    choice,
    count,
    error,
    flag,
    items,
    mapping,
    maybe,
    message,
    name,
    names,
    number,
    path,
    record,
    size,
    text,
    whole,
)

_always: dict[str, Shape] = {"changed": flag, "error": error}


def _outcomes(required: dict[str, Shape] | None = None, optional: dict[str, Shape] | None = None) -> Shape:
    """:arg required: of an item that did not fail"""
    done = record(required or {}, {**_always, **(optional or {})})
    failed = record({}, {**_always, **(required or {}), **(optional or {})})

    def outcome(value: t.Any, where: str) -> None:
        bad = isinstance(value, t.Mapping) and value.get("error") is not None
        (failed if bad else done)(value, where)

    return mapping(name, outcome)


ANY: Shape = _outcomes()
NETWORKS: Shape = _outcomes({}, {"defined": flag})
_power_state = choice(*POWER_STATES)
_place: Shape = record({"type": choice("disk", "nic")}, {n: text(32) for n in ("name", "mac", "bus", "address")})
DOMAINS: Shape = _outcomes({"power_state": _power_state}, {"devices": items(_place), "name": name, "forced": flag})
DOMAIN_POWER: Shape = _outcomes(
    {"power_state": _power_state}, {"forced": flag, "restarted": flag, "vifs_missing": names}
)
DOMAIN_PASSWORD: Shape = _outcomes({"power_state": _power_state})
DOMAIN_RESCUE: Shape = _outcomes({"power_state": _power_state}, {"ran": flag, "forced": flag, "vifs_missing": names})
_vnc: Shape = record({"listen": name, "port": whole(1, 65535)})
CONSOLES: Shape = _outcomes({"power_state": _power_state, "console": items(message, most=10_000)}, {"vnc": maybe(_vnc)})
INSTANCE_DISKS: Shape = _outcomes({}, {"pending": names})
VOLUMES: Shape = _outcomes({}, {"name": name, "path": path, "size": size, "action": text(), "copying": flag})
TARGETS: Shape = _outcomes(
    {}, {"iqn": name, "lun": count, "portals": names, "initiators": names, "sessions": names, "path": path}
)
CONNECTIONS: Shape = _outcomes(
    {}, {"path": path, "device": path, "size": maybe(whole(0, LARGEST_BIG)), "warnings": items(message)}
)
EVICTED: Shape = items(record({"name": name}))
_bytes = whole(0, LARGEST_BIG)


def _disk_of(*formats: str) -> Shape:
    """A disk's record in disk.info."""
    more: dict[str, Shape] = {"kind": name, "image_id": text(), "base": text(), "volume_group": text()}
    return record({"format": choice(*formats), "virtual_size": _bytes}, more)


_disk_record: Shape = _disk_of(*RECORD_FORMATS)
_offered: dict[str, Shape] = {"record": maybe(_disk_record), "mounted": flag}
_file: Shape = record({"name": name, "size": _bytes, "allocated": _bytes}, _offered)
OFFERED: Shape = _outcomes({"files": items(_file)})
FETCHED: Shape = _outcomes({}, {"disks": items(record({"name": name, "size": _bytes, "sha256": text(64)}))})
_leaving_disk: Shape = record(
    {"name": name, "target": text(32), "allocated": _bytes, "record": _disk_record}, {"mounted": flag}
)
_leaving: Shape = record(
    {
        "name": name,
        "power_state": _power_state,
        "cpu": message,
        "cpu_of_host": flag,
        "virt_type": text(32),
        "arch": text(64),
        "machine": text(),
        "hypervisor_version": count,
        "libvirt_version": count,
        "disks": items(_leaving_disk, unique="name"),
        "drive": flag,
    },
    {"drive_target": text(32)},
)
LEAVING: Shape = _outcomes({"guest": _leaving})
_device: Shape = record({"path": path, "size": _bytes})
PREPARED: Shape = _outcomes({}, {"devices": mapping(text(32), _device)})
_seconds: Shape = number(most=LARGEST_BIG)
MIGRATED: Shape = _outcomes(
    {"left": flag, "power_state": _power_state},
    {"stays": flag, "seconds": _seconds, "downtime": _seconds, "transferred": _bytes, "forced": flag},
)
#: What a host tells of guests that leave it, while they do.
PROGRESS: Shape = mapping(name, record(dict.fromkeys(FIELDS, _bytes)), most=1000)
INTERVENED: Shape = _outcomes({}, {"total": _bytes, "remaining": _bytes})
