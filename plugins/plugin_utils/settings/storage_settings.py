# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of a storage host: bootflow_storage_backends and what goes with it, read, checked, with all defaults.

source: Cinder's [backend] sections (Queens); docs/variables.md lists them for people
"""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.reading.fields import Fields, entries_of
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.reading.setting import Values, is_address
from ...module_utils.core.settings.run import RUN
from ...module_utils.core.settings.storage import BACKEND, STORAGE, THICK, THIN
from ...module_utils.core.volumes import names
from ...module_utils.core.volumes.drivers.registry import DEFAULT, DRIVER_TYPES, driver_of
from ...module_utils.core.volumes.pool_hosts import append_host
from ..run import host_settings, host_variables

BACKENDS = "bootflow_storage_backends"


def storage_hosts(action: host_settings.OnHost) -> list[str]:
    """The storage hosts of the inventory, in its order."""
    group = host_settings.values(action, RUN).storage_group
    return list((action.task_vars.get("groups") or {}).get(group, []))


def backends(variables: t.Mapping[str, t.Any], host: str) -> list[dict[str, t.Any]]:
    """The backends of ``host``, plain data: the fields of an entry with their defaults, ``pool_host`` and ``pool``.

    ``max_over_subscription_ratio`` is None where the entry has none: bootflow_max_over_subscription_ratio holds then.
    :raises InvalidRequest: all errors, the paths beginning with the host.
    """
    problems = Problems()
    host_backends = _read(variables, host, problems)
    problems.raise_if_any()
    return host_backends


def of_host(action: host_settings.OnHost, host: str) -> list[dict[str, t.Any]]:
    """The backends of any storage host, see backends()."""
    return backends(host_variables.of_host(action.task_vars["hostvars"], host), host)


def check(hostvars: t.Mapping[str, t.Any], hosts: t.Iterable[str], problems: Problems) -> None:
    """Add to ``problems`` all settings of the storage hosts that no volume could be made with."""
    for host in hosts:
        _read(host_variables.of_host(hostvars, host), host, problems)


def read_current_host(action: host_settings.OnHost) -> Values:
    """The settings of the current storage host."""
    return host_settings.values(action, STORAGE)


def workers(action: host_settings.OnHost, volumes: int) -> int:
    """Return how many volumes the current host copies or wipes at once; 0 for all."""
    return host_settings.at_once(read_current_host(action).max_concurrent_volumes, volumes)


def rbd_arguments(action: host_settings.OnHost, host: str, configuration: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The arguments that identify a pool to the host-side modules, with the key of its user: for options that are no_log only.

    :raises InvalidInput: the host has no key for the backend.
    """
    return {
        "pool": configuration["rbd_pool"],
        "monitors": list(configuration["rbd_monitors"]),
        "user": configuration["rbd_user"],
        "key": rbd_key(action, host, configuration["name"]),
    }


def rbd_key(action: host_settings.OnHost, host: str, backend: str) -> str:
    """The key of the user of a backend. :raises InvalidInput: the storage host has none, or is not in the inventory."""
    hostvars = action.task_vars["hostvars"]
    keys = STORAGE.named("rbd_keys").read(
        host_variables.of_host(hostvars, host).get("bootflow_rbd_keys") if host in hostvars else None
    )
    if backend not in keys:
        raise errors.InvalidInput(
            reason="storage host %s has no key for backend %s" % (host, backend),
            remedy="Add it to bootflow_rbd_keys of that host: {%s: KEY}." % backend,
        )
    return str(keys[backend])


def lvm_arguments(configuration: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The arguments of the host-side modules that identify a backend."""
    return {name: configuration[name] for name in ("volume_group", "provisioning", "thin_pool")}


# --- one host ----------------------------------------------------------------------------------------------------------


def _read(variables: t.Mapping[str, t.Any], host: str, problems: Problems) -> list[dict[str, t.Any]]:
    where = "%s.%s" % (host, BACKENDS)
    for setting in STORAGE:
        if setting.variable != BACKENDS:
            with problems.collect("%s.%s" % (host, setting.variable)):
                setting.read(variables.get(setting.variable))
    entries: list[Fields] = []
    with problems.collect(where):
        entries = entries_of(where, STORAGE.named("storage_backends").read(variables.get(BACKENDS)), problems)
    if not entries and not any(e["path"].startswith(where) for e in problems.errors):
        problems.add(
            where,
            errors.InvalidInput(
                message="storage host %s has no backend" % host,
                remedy="Set %s in its host_vars (docs/variables.md), or take it out of the group of storage hosts."
                % BACKENDS,
            ),
        )
    host_backends: list[dict[str, t.Any]] = []
    for fields in entries:
        backend = _backend(fields, variables, host)
        fields.unknown()
        for other in host_backends:
            if backend["name"] and backend["name"] == other["name"]:
                fields.wrong("name", "%r is used twice" % backend["name"], "Give each backend a unique name.")
            elif _room(backend) == _room(other):
                fields.wrong(
                    "volume_group" if driver_of(backend) is DEFAULT else "rbd_pool",
                    "of backend %s is that of %s: its capacity would be counted twice"
                    % (backend["name"], other["name"]),
                    "Give each backend a separate volume group or pool.",
                )
        host_backends.append(backend)
    return host_backends


def _room(backend: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    driver = driver_of(backend)
    lacking = any(backend.get(name) is None for name in driver.required)
    return (driver.name, *(() if lacking else driver.room(backend)), backend["name"] if lacking else "")


def _backend(fields: Fields, variables: t.Mapping[str, t.Any], host: str) -> dict[str, t.Any]:
    values = {}
    for setting in BACKEND:
        values[setting.name] = setting.default
        value = fields.raw(setting.name)
        if setting.required and value is None:
            fields.wrong(setting.name, "is missing", "Add %s." % setting.name)
        with fields.problems.collect(fields.at(setting.name)):
            values[setting.name] = setting.read(value, called=setting.name)
    del values["devices"]  # the role storage_host reads it
    name = values["name"] = values["name"] or ""
    driver = DRIVER_TYPES[values["driver"]]
    for other in DRIVER_TYPES.values():
        for field in other.fields:
            given = fields.raw(field) is not None
            if other is driver and field in other.required and not given:
                fields.wrong(field, "is missing", "Add %s: the driver %s needs it." % (field, driver.name))
            if other is not driver:
                fields.refuse(
                    field, given, "is of the driver %s" % other.name, "Leave it out, or set driver: %s." % other.name
                )
    thin = values["provisioning"] == THIN
    if values["volume_clear"] == names.DISCARD and not thin:
        fields.wrong(
            "volume_clear",
            "discard does not clear thick volumes: many devices return the old data afterwards",
            "Use zero, shred or none.",
        )
    if not thin:
        refused = "is set, but provisioning is thick"
        fields.refuse("thin_pool", bool(values["thin_pool"]), refused, "Set provisioning: thin, or leave it out.")
    pool = values["volume_backend_name"] or name or "pool"
    zone = variables.get("bootflow_availability_zone")
    values.update(
        pool=pool,
        pool_host=append_host("%s@%s" % (host, name), pool),
        volume_backend_name=pool,
        thin_pool=(values["thin_pool"] or "%s-pool" % values["volume_group"]) if thin else "",
        availability_zone=values["availability_zone"] or (str(zone) if zone is not None else "nova"),
        portals=(list(values["portals"]) or _portals(fields, variables, host)) if driver.has_portals else [],
    )
    for other in DRIVER_TYPES.values():
        if other is not driver:
            values = {field: value for field, value in values.items() if field not in other.fields}
    values["provisioning"] = THIN if driver.is_thin(values) else THICK
    return values


def _portals(fields: Fields, variables: t.Mapping[str, t.Any], host: str) -> list[str]:
    """Return the portals of the entry, or one at the host's address if it names none."""
    if fields.raw("portals"):
        return []
    for address in (variables.get("bootflow_storage_ip"), variables.get("ansible_host"), host):
        if address is not None and is_address(address):
            return [names.portal(str(address))]
    fields.wrong(
        "portals",
        "are missing, and %s has neither bootflow_storage_ip nor an IP address as its ansible_host" % host,
        'Set bootflow_storage_ip, or portals: ["192.0.2.10:3260"].',
    )
    return []
