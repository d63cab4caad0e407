# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of a storage host: bootflow_storage_backends and what goes with it, read, checked, with all defaults.

source: Cinder's [backend] sections (Queens); docs/variables.md lists them for people
"""

from __future__ import annotations

import ipaddress
import re
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.fields import Fields, entries_of
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import names
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.pool_hosts import append_host
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm.lvm_tags import checked_name
from ansible_collections.bootflow.compute.plugins.plugin_utils.host_settings import to_number

GROUP = "bootflow_storage"
BACKENDS = "bootflow_storage_backends"
DEFAULT_VOLUME_GROUP = "cinder-volumes"
DEFAULT_CONVERSION_DIR = "/var/lib/bootflow/conversion"
DEFAULT_WORKERS = 4
THICK, THIN = "thick", "thin"
CLEARS = ("zero", "shred", "none", "discard")
AUTO = "auto"

# A backend's name is a part of host@backend#pool.
_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,128}\Z")
# Of these the backend itself reports; nobody may say otherwise of it.
_REPORTED = ("total_capacity_gb", "free_capacity_gb", "allocated_capacity_gb", "provisioned_capacity_gb")


def storage_hosts(action: t.Any) -> list[str]:
    """The storage hosts of the inventory, in its order."""
    group = action.variable("bootflow_storage_group", GROUP)
    return list((action.task_vars.get("groups") or {}).get(group, []))


def backends(variables: t.Mapping[str, t.Any], host: str) -> list[dict[str, t.Any]]:
    """The backends of ``host``, plain data: the fields of an entry with their defaults, ``pool_host`` and ``pool``.

    ``max_over_subscription_ratio`` is None where the entry has none: bootflow_max_over_subscription_ratio holds then.
    :raises InvalidRequest: all errors, the paths beginning with the host.
    """
    problems = Problems()
    found = _read(variables, host, problems)
    problems.raise_if_any()
    return found


def check(hostvars: t.Mapping[str, t.Any], hosts: t.Iterable[str], problems: Problems) -> None:
    """Add to ``problems`` whatever of the storage hosts' settings no volume could be made with."""
    for host in hosts:
        _read(hostvars[host], host, problems)


def conversion_dir(action: t.Any) -> str:
    """Where the current host puts images while it converts them."""
    return str(action.variable("bootflow_conversion_dir", DEFAULT_CONVERSION_DIR))


def workers(action: t.Any, volumes: int) -> int:
    """How many volumes the current host copies or wipes at once; 0 for all."""
    most = int(action.variable("bootflow_max_concurrent_volumes", DEFAULT_WORKERS))
    return max(1, min(most, volumes) if most > 0 else volumes)


def lvm_arguments(configuration: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What the host-side modules are told of a backend to find it."""
    return {name: configuration[name] for name in ("volume_group", "provisioning", "thin_pool")}


# --- one host ----------------------------------------------------------------------------------------------------------


def _read(variables: t.Mapping[str, t.Any], host: str, problems: Problems) -> list[dict[str, t.Any]]:
    where = "%s.%s" % (host, BACKENDS)
    _check_host(variables, host, problems)
    zone = variables.get("bootflow_availability_zone")
    entries = entries_of(where, variables.get(BACKENDS), problems)
    if not entries and not any(e["path"].startswith(where) for e in problems.errors):
        problems.add(
            where,
            errors.InvalidInput(
                message="storage host %s has no backend" % host,
                remedy="Set %s in its host_vars (docs/variables.md), or take it out of the group %s."
                % (BACKENDS, GROUP),
            ),
        )
    found: list[dict[str, t.Any]] = []
    for fields in entries:
        backend = _backend(fields, variables, host, str(zone) if zone is not None else "nova")
        fields.unknown()
        for other in found:
            if backend["name"] and backend["name"] == other["name"]:
                fields.wrong("name", "%r is used twice" % backend["name"], "Give each backend a name of its own.")
            elif _room(backend) == _room(other):
                fields.wrong(
                    "volume_group",
                    "%s has the same room as %s: what one promises the other would promise again"
                    % (backend["name"], other["name"]),
                    "Give each backend a volume group, or a thin pool, of its own.",
                )
        found.append(backend)
    return found


def _room(backend: t.Mapping[str, t.Any]) -> tuple[str, str]:
    return backend["volume_group"], backend["thin_pool"] if backend["provisioning"] == THIN else ""


def _check_host(variables: t.Mapping[str, t.Any], host: str, problems: Problems) -> None:
    folder = variables.get("bootflow_conversion_dir")
    if folder is not None and not (
        isinstance(folder, str) and folder.startswith("/") and ".." not in folder.split("/")
    ):
        _wrong(problems, host, "bootflow_conversion_dir", "must be an absolute path, not %s" % str(folder)[:60])
    most = variables.get("bootflow_max_concurrent_volumes")
    if most is not None and not str(most).isdigit():
        _wrong(
            problems,
            host,
            "bootflow_max_concurrent_volumes",
            "must be a whole number from 0 up, not %s" % str(most)[:60],
        )
    address = variables.get("bootflow_storage_ip")
    if address is not None and not _is_address(address):
        _wrong(problems, host, "bootflow_storage_ip", "must be an IP address, not %s" % str(address)[:60])


def _wrong(problems: Problems, host: str, name: str, reason: str) -> None:
    problems.add(
        "%s.%s" % (host, name),
        errors.InvalidInput(
            message="%s %s" % (name, reason), remedy="Correct it in the inventory (host_vars, group_vars)."
        ),
    )


def _backend(fields: Fields, variables: t.Mapping[str, t.Any], host: str, zone: str) -> dict[str, t.Any]:
    name = fields.name("name", maximum=128)
    if name and not _NAME.match(name):
        fields.wrong("name", "must have letters, digits and _ . + - only", "It becomes a part of host@backend#pool.")
    provisioning = fields.choice("provisioning", (THICK, THIN), THICK)
    group = _lvm_name(fields, "volume_group", DEFAULT_VOLUME_GROUP)
    pool = fields.name("volume_backend_name", name or "pool")
    if pool != name and ("@" in pool or "#" in pool):
        fields.wrong("volume_backend_name", "must not have @ or #", "It becomes a part of host@backend#pool.")
    fields.raw("devices")  # the role storage_host reads it
    target = fields.choice("target", tuple(sorted(names.LUN_OF_TARGET)), "lio")
    clear = fields.choice("volume_clear", CLEARS, "zero")
    if clear == "discard" and provisioning == THICK:
        fields.wrong(
            "volume_clear",
            "discard does not clear thick volumes: many devices give back old data after it",
            "Use zero, shred or none.",
        )
    return {
        "name": name,
        "pool": pool,
        "pool_host": append_host("%s@%s" % (host, name), pool),
        "volume_group": group,
        "provisioning": provisioning,
        "thin_pool": _lvm_name(fields, "thin_pool", group + "-pool") if provisioning == THIN else _unused(fields),
        "volume_backend_name": pool,
        "availability_zone": fields.name("availability_zone", zone),
        "medium": fields.text("medium"),
        "reserved_percentage": _percentage(fields),
        "max_over_subscription_ratio": _ratio(fields),
        "target": target,
        "portals": _portals(fields, variables, host),
        "iqn_prefix": _iqn_prefix(fields),
        "volume_clear": clear,
        "volume_clear_size_mb": fields.integer("volume_clear_size_mb", 0, 0),
        "image_cache": fields.boolean("image_cache", True),
        "image_cache_max_gb": fields.integer("image_cache_max_gb", 0, 0),
        "image_cache_max_count": fields.integer("image_cache_max_count", 0, 0),
        "verify": fields.boolean("verify", True),
        "disabled": fields.boolean("disabled"),
        "frozen": fields.boolean("frozen"),
        "capabilities": _capabilities(fields),
    }


def _unused(fields: Fields) -> str:
    if fields.raw("thin_pool"):
        fields.wrong("thin_pool", "is given, but provisioning is thick", "Say provisioning: thin, or leave it out.")
    return ""


def _lvm_name(fields: Fields, field: str, default: str) -> str:
    value = fields.text(field) or default
    try:
        checked_name(value, field)
    except errors.InvalidInput as e:
        fields.wrong(field, "is %r: %s" % (value, e.message))
    return value


def _percentage(fields: Fields) -> float:
    value = fields.raw("reserved_percentage")
    number = 0.0 if value is None else to_number(value)
    if number is None or not 0 <= number <= 100:
        fields.wrong("reserved_percentage", "must be a number from 0 to 100, is %s" % ascii(value))
        return 0.0
    return number


def _ratio(fields: Fields) -> t.Any:
    value = fields.raw("max_over_subscription_ratio")
    if value is None:
        return None
    try:
        return read_ratio(value)
    except errors.InvalidInput as e:
        fields.wrong("max_over_subscription_ratio", e.message)
        return None


def read_ratio(value: t.Any) -> t.Any:
    """max_over_subscription_ratio: a number of 1.0 or more, or ``auto``. :raises InvalidInput: neither"""
    if value == AUTO:
        return AUTO
    number = to_number(value)
    if number is None or number < 1:
        raise errors.InvalidInput(
            message="must be a number of 1.0 or more, or auto, is %s" % ascii(value),
            remedy="1.0 promises no more than there is.",
        )
    return number


def _iqn_prefix(fields: Fields) -> str:
    value = fields.text("iqn_prefix") or names.IQN_PREFIX
    try:
        names.target_iqn(names.volume_name("00000000-0000-0000-0000-000000000000"), value)
    except errors.InvalidInput as e:
        fields.wrong("iqn_prefix", "makes no target's name: %s" % e.message, e.remedy)
    return value


def _capabilities(fields: Fields) -> dict[str, t.Any]:
    found = fields.mapping("capabilities")
    for name, value in found.items():
        if name in _REPORTED:
            fields.wrong("capabilities", "%s is what the backend itself reports" % name, "Leave it out.")
        elif not isinstance(value, (str, int, float, list, tuple, dict)):
            fields.wrong("capabilities", "%s must be a text, a number, a boolean, a list or a mapping" % name)
    return found


# --- portals -------------------------------------------------------------------------------------------------------------


def _portals(fields: Fields, variables: t.Mapping[str, t.Any], host: str) -> list[str]:
    given = fields.items("portals")
    found = []
    for text in given:
        try:
            found.append(_portal(str(text)))
        except errors.InvalidInput as e:
            fields.wrong("portals", "%s" % e.message, e.remedy)
    if given:
        if len(set(found)) < len(found):
            fields.wrong("portals", "have one twice", "Name each portal once.")
        return found
    for address in (variables.get("bootflow_storage_ip"), variables.get("ansible_host"), host):
        if address is not None and _is_address(address):
            return [names.portal(str(address))]
    fields.wrong(
        "portals",
        "are missing, and %s has neither bootflow_storage_ip nor an IP address as its ansible_host" % host,
        'Set bootflow_storage_ip, or portals: ["192.0.2.10:3260"].',
    )
    return []


def _portal(text: str) -> str:
    """address:port; without a port it is 3260."""
    if _is_address(text):
        return names.portal(text)
    return names.portal(*names.split_portal(text))


def _is_address(value: t.Any) -> bool:
    text = str(value)
    try:
        ipaddress.ip_address(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    except ValueError:
        return False
    return "%" not in text
