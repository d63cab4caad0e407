# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every answer of a host is checked here, before anything reads it: a host that answers nonsense counts as one that did not answer."""

from __future__ import annotations

import reprlib
import typing as t

from ..errors import InvalidAnswer
from ..legible import legible
from . import compute, outcomes, storage
from .shapes import Misshapen, Shape, flag, items, maybe, message, name, names, number, prose, record, text, whole

# Module, with a dot and its step where it has several -> what its answer has, and what it may have.
_ANSWERS: dict[str, tuple[dict[str, Shape], dict[str, Shape]]] = {
    "compute_node_info": ({"compute_node": compute.NODE}, {"iscsi": compute.ISCSI, "dhcp": compute.DHCP}),
    "storage_backend_info": (
        {"backends": storage.BACKENDS},
        {"targets": storage.TARGETS, "guest_content": items(message)},
    ),
    "instance_disks_offer": (
        {"outcomes": outcomes.OFFERED, "port": whole(0, 65535), "fingerprint": text(64)},
        {},
    ),
    "instance_disks_fetch": ({"outcomes": outcomes.FETCHED}, {}),
    "instance_disks": ({"outcomes": outcomes.INSTANCE_DISKS}, {"missing_images": names}),
    "compute_unused": ({"images": compute.UNUSED_IMAGES, "networks": names}, {"failed_items": compute.KEPT_UNUSED}),
    "virtual_network": ({"outcomes": outcomes.NETWORKS}, {"reservations": outcomes.ANY}),
    "domain": ({"outcomes": outcomes.DOMAINS}, {}),
    "domain_info": ({"power_states": compute.POWER_STATES, "boot_id": compute.BOOT_ID}, {"at_work": compute.AT_WORK}),
    "domain_migration.describe": ({"outcomes": outcomes.LEAVING}, {}),
    "domain_migration.prepare": (
        {"outcomes": outcomes.PREPARED, "port": whole(0, 65535), "fingerprint": text(64)},
        {},
    ),
    "domain_migration.migrate": ({"outcomes": outcomes.MIGRATED}, {}),
    "domain_migration.close": ({"outcomes": outcomes.ANY}, {}),
    "domain_migration.intervene": ({"outcomes": outcomes.INTERVENED}, {}),
    "domain_power": ({"outcomes": outcomes.DOMAIN_POWER}, {}),
    "domain_password": ({"outcomes": outcomes.DOMAIN_PASSWORD}, {}),
    "domain_rescue": ({"outcomes": outcomes.DOMAIN_RESCUE}, {}),
    "domain_console": ({"outcomes": outcomes.CONSOLES}, {}),
    "volume_lvm": ({"outcomes": outcomes.VOLUMES, "backend": maybe(storage.backend)}, {"evicted": outcomes.EVICTED}),
    "iscsi_target": ({"outcomes": outcomes.TARGETS}, {}),
    "iscsi_initiator": ({"outcomes": outcomes.CONNECTIONS}, {}),
    **dict.fromkeys(
        ("config_drive", "domain_disk", "instance_cleanup", "instance_disks_resize", "iscsi_secret"),
        ({"outcomes": outcomes.ANY}, {}),
    ),
}
_PARTS = {"networks": "virtual_network", "disks": "instance_disks", "drives": "config_drive", "domains": "domain"}


def _part(module: str) -> Shape:
    required, optional = _ANSWERS[module]
    return record(required, {**optional, "seconds": number()})


_ANSWERS["instance_build"] = (
    {"parts": record({part: _part(module) for part, module in _PARTS.items()})},
    {"uploads_removed": flag},
)
_WARNINGS: dict[str, Shape] = {"warnings": maybe(items(message))}


def _list_fields(required: dict[str, Shape], optional: dict[str, Shape]) -> list[tuple[str, Shape, bool]]:
    return [(n, s, True) for n, s in required.items()] + [(n, s, False) for n, s in {**optional, **_WARNINGS}.items()]


_SHAPES = {module: _list_fields(*shapes) for module, shapes in _ANSWERS.items()}
_OTHERS = _list_fields({}, {"outcomes": outcomes.ANY})
_FAILED = _list_fields(
    {"error_code": name},
    {
        "msg": prose,
        "status": whole(100, 599),
        "remedy": prose,
        "retryable": flag,
        "traceback": prose,
        "changed": flag,
        **dict.fromkeys(("errors", "failed_items"), items(record({}))),
    },
)


def check(module: str, host: str, result: t.Mapping[str, t.Any], step: str = "") -> None:
    """Check what ``module`` answered on ``host``. What Ansible adds to a result is not looked at.

    :arg step: of a module with several steps, its option ``step``.
    :raises InvalidAnswer: naming the first field that does not fit, what it must be, and its value.
    """
    _check(module, host, result, _SHAPES.get(_entry(module, step), _OTHERS))


def check_failure(module: str, host: str, result: t.Mapping[str, t.Any], step: str = "") -> None:
    """The same for the result of a module that failed with an error of ours. It may have what it did nevertheless.

    :raises InvalidAnswer: see check().
    """
    own = _SHAPES.get(_entry(module, step), [])
    _check(module, host, result, [*_FAILED, *((field, shape, False) for field, shape, _required in own)])


def _entry(module: str, step: str) -> str:
    return "%s.%s" % (module, step) if step else module


def _check(module: str, host: str, result: t.Mapping[str, t.Any], shapes: t.Iterable[tuple[str, Shape, bool]]) -> None:
    try:
        for field, shape, required in shapes:
            if field in result:
                shape(result[field], field)
            elif required:
                raise Misshapen(field, "given", None)
    except Misshapen as wrong:
        raise InvalidAnswer(
            host=host, module=module, path=wrong.path, expects=wrong.expects, got=legible(reprlib.repr(wrong.got))
        ) from None
