# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of a host: inventory variables, read in place, each with the default that holds where it is not set.

source: 1 (reserved); docs/variables.md lists them for people.
"""

from __future__ import annotations

import json
import math
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import MEDIA
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import reserved_pages
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.spec import parse_device_specs
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_backends import BACKENDS, ON_LVM
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.instance_volumes import CLEARS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm.lvm_tags import checked_name

# column of the ledger's compute_nodes <- (inventory variable, kind, default)
CONFIGURATION: dict[str, tuple[str, str, t.Any]] = {
    "ram_allocation_ratio": ("bootflow_ram_allocation_ratio", "number", 1.5),
    "disk_allocation_ratio": ("bootflow_disk_allocation_ratio", "number", 1.0),
    "cpu_allocation_ratio": ("bootflow_cpu_allocation_ratio", "number", 16.0),
    "reserved_memory_mb": ("bootflow_reserved_memory_mb", "integer", 512),
    "reserved_disk_gb": ("bootflow_reserved_disk_gb", "integer", 0),
    "reserved_vcpus": ("bootflow_reserved_vcpus", "integer", 0),
    "availability_zone": ("bootflow_availability_zone", "text", "nova"),
    "disabled": ("bootflow_disabled", "boolean", False),
    "disabled_reason": ("bootflow_disabled_reason", "text", ""),
    "pci_device_spec": ("bootflow_pci_device_spec", "PCI devices", ()),
    "isolated_disks": ("bootflow_isolated_disks", "absolute paths", ()),
    "reserved_huge_pages": ("bootflow_reserved_huge_pages", "huge pages", ()),
    "metrics": ("bootflow_metrics", "numbers by name", None),
}
# What shapes the guests of a host (guest_of_build.GuestSettings) and has a form to check.
GUEST_KINDS = {
    "bootflow_vif_plugging_timeout": "number",
    "bootflow_vif_plugging_is_fatal": "boolean",
    "bootflow_max_concurrent_builds": "integer",
    "bootflow_shutdown_timeout": "number",
    "bootflow_wait_timeout": "number",
    "bootflow_wait_guest_timeout": "number",
    "bootflow_wait_address": "boolean",
    "bootflow_wait_agent": "boolean",
    "bootflow_instances_path": "absolute path",
    "bootflow_disk_volume_group": "volume group",
    "bootflow_disk_volume_clear_size_mb": "integer",
}
CHOICES = {
    "bootflow_virt_type": ("auto", "kvm", "qemu"),
    "bootflow_disk_backend": BACKENDS,
    "bootflow_disk_medium": ("", *MEDIA),
    "bootflow_disk_volume_clear": CLEARS,
    "bootflow_config_drive_format": ("iso9660", "vfat"),
    "bootflow_whole_disk_clear": ("zero", "none"),
    "bootflow_volume_attach": ("kernel", "qemu"),
}

MOST_NAMED = 5

TRUE_WORDS = ("true", "yes", "on", "1")
FALSE_WORDS = ("false", "no", "off", "0", "")


def configuration(variables: t.Mapping[str, t.Any], host: str) -> dict[str, t.Any]:
    """The settings of ``host`` as columns of the ledger, plain data.

    pci_device_spec and isolated_disks are what the host is asked to look for; reserved_huge_pages is a list of {node,
    size (kB), count}; metrics is name -> number.

    :raises InvalidRequest: every value that is not of its kind, or is negative.
    """
    found = {}
    problems = Problems()
    for column, (name, kind, default) in CONFIGURATION.items():
        value = variables.get(name)
        found[column] = {} if kind == "numbers by name" else list(default) if default == () else default
        if value is not None:
            with problems.collect("host %s" % host):
                found[column] = _read(name, kind, value)
    problems.raise_if_any()
    for column in ("ram_allocation_ratio", "disk_allocation_ratio", "cpu_allocation_ratio"):
        found[column] = found[column] or CONFIGURATION[column][2]  # 0.0 means unset, as in Nova
    return found


def check(hostvars: t.Mapping[str, t.Mapping[str, t.Any]], hosts: t.Iterable[str], problems: Problems) -> None:
    """Add to ``problems`` whatever of the hosts' settings a boot could not work with, once for all hosts that have it."""
    kinds = {name: kind for name, kind, _default in CONFIGURATION.values()}
    found: dict[tuple[str, str], list[str]] = {}
    for host in hosts:
        variables = hostvars[host]
        for name, kind in {**kinds, **GUEST_KINDS, **dict.fromkeys(CHOICES, "choice")}.items():
            value = variables.get(name)
            if value is not None:
                try:
                    _read(name, kind, value)
                except errors.InvalidInput as e:
                    found.setdefault((e.message, e.remedy), []).append(host)
        lacking = _without_group(variables)
        if lacking is not None:
            found.setdefault((lacking.message, lacking.remedy), []).append(host)
    for (message, remedy), affected in found.items():
        more = ", and %d more" % (len(affected) - MOST_NAMED) if len(affected) > MOST_NAMED else ""
        path = "host%s %s%s" % ("" if len(affected) == 1 else "s", ", ".join(affected[:MOST_NAMED]), more)
        problems.add(path, errors.InvalidInput(message=message, remedy=remedy))


def _without_group(variables: t.Mapping[str, t.Any]) -> errors.InvalidInput | None:
    backend = str(variables.get("bootflow_disk_backend") or "")
    if backend not in ON_LVM or variables.get("bootflow_disk_volume_group"):
        return None
    return errors.InvalidInput(
        message="bootflow_disk_backend is %s, and bootflow_disk_volume_group is not set" % backend,
        remedy="Name the volume group in the inventory (host_vars, group_vars) or where -e sets it.",
    )


def _read(name: str, kind: str, value: t.Any) -> t.Any:
    """``value`` as its kind; InvalidInput where it is none."""
    if kind in _STRUCTURES:
        return _STRUCTURES[kind](name, _loaded(value))
    text = str(value)
    if kind == "boolean":
        if text.lower() not in TRUE_WORDS + FALSE_WORDS:
            raise _wrong(name, "true or false", value)
        return text.lower() in TRUE_WORDS
    if kind == "choice":
        if text not in CHOICES[name]:
            raise _wrong(name, "one of %s" % ", ".join(CHOICES[name]), value)
    elif kind == "volume group":
        try:
            checked_name(text, name)
        except errors.InvalidInput:
            raise _wrong(name, "a name that LVM takes (letters, digits, + _ . -)", value) from None
    elif kind == "absolute path":
        if not text.startswith("/"):
            raise _wrong(name, "an absolute path", value)
    elif kind != "text":
        wanted = "a whole number" if kind == "integer" else "a number"
        try:
            number = int(text) if kind == "integer" else float(text)
        except ValueError:
            raise _wrong(name, wanted, value) from None
        if not 0 <= number < math.inf:
            raise _wrong(name, wanted + " from 0 up", value)
        return number
    return text


def _loaded(value: t.Any) -> t.Any:
    """Extra vars on a command line bring lists and mappings as JSON text."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _items(name: str, wanted: str, value: t.Any) -> list[t.Any]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(name, wanted, value)
    return list(value)


def _pci_devices(name: str, value: t.Any) -> list[t.Any]:
    entries = _items(name, "a list of mappings", value)
    try:
        parse_device_specs(entries)
    except errors.BootflowError as e:
        raise errors.InvalidInput(
            message="%s: %s" % (name, e.message), remedy=e.remedy or "Correct it in the inventory."
        ) from e
    return [dict(e) if isinstance(e, t.Mapping) else e for e in entries]


def _absolute_paths(name: str, value: t.Any) -> list[str]:
    paths = _items(name, "a list of absolute paths", value)
    for path in paths:
        if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise _wrong(name, "a list of absolute paths", path)
    twice = sorted({str(p) for p in paths if paths.count(p) > 1})
    if twice:
        raise _wrong(name, "a list without doubles", ", ".join(twice))
    return [str(p) for p in paths]


def _huge_pages(name: str, value: t.Any) -> list[dict[str, int]]:
    wanted = "a list of {node, size (kB, or such as 2MB), count}"
    entries = _items(name, wanted, value)
    found: dict[tuple[int, int], int] = {}
    for entry in entries:
        if isinstance(entry, t.Mapping) and set(entry) != {"node", "size", "count"}:
            raise _wrong(name, wanted, dict(entry))
        try:
            pages = reserved_pages([entry])
        except errors.BootflowError:
            raise _wrong(name, wanted, entry) from None
        if any(node < 0 or size <= 0 for node, size in pages) or set(pages) & set(found):
            raise _wrong(name, wanted + ", each node and size once", entry)
        found.update(pages)
    return [{"node": node, "size": size, "count": count} for (node, size), count in found.items()]


def _numbers_by_name(name: str, value: t.Any) -> dict[str, float]:
    if not isinstance(value, t.Mapping):
        raise _wrong(name, "a mapping of names to numbers", value)
    found = {}
    for key, item in value.items():
        number = to_number(item)
        if number is None:
            raise _wrong(name, "a mapping of names to numbers", "%s: %s" % (key, item))
        found[str(key)] = number
    return found


def to_number(value: t.Any) -> float | None:
    """A finite number, or the text of one; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


_STRUCTURES: dict[str, t.Callable[[str, t.Any], t.Any]] = {
    "PCI devices": _pci_devices,
    "absolute paths": _absolute_paths,
    "huge pages": _huge_pages,
    "numbers by name": _numbers_by_name,
}


def _wrong(name: str, wanted: str, value: t.Any) -> errors.InvalidInput:
    return errors.InvalidInput(
        message="%s must be %s, not %s" % (name, wanted, str(value)[:60]),
        remedy="Correct it in the inventory (host_vars, group_vars) or where -e sets it.",
    )


def libvirt_uri(action: t.Any) -> str:
    return str(action.variable("bootflow_libvirt_uri", "qemu:///system"))


def instances_path(action: t.Any) -> str:
    return str(action.variable("bootflow_instances_path", "/var/lib/bootflow/instances")).rstrip("/")


def whole_disk_clear(action: t.Any) -> str:
    """What becomes of a whole disk that a guest had."""
    return str(action.variable("bootflow_whole_disk_clear", "zero"))


def disk_backend(action: t.Any) -> str:
    """What keeps the local disks of the host's guests."""
    return str(action.variable("bootflow_disk_backend", "qcow2"))


def volume_group(action: t.Any) -> str:
    """Where it keeps them; "" for files."""
    return str(action.variable("bootflow_disk_volume_group", "")) if disk_backend(action) in ON_LVM else ""


def cleanup_arguments(action: t.Any) -> dict[str, t.Any]:
    """What the module instance_cleanup is told of the current host, beside the instances."""
    return {
        "libvirt_uri": libvirt_uri(action),
        "instances_path": instances_path(action),
        "whole_disk_clear": whole_disk_clear(action),
        "volume_group": volume_group(action),
        "volume_clear": str(action.variable("bootflow_disk_volume_clear", "zero")),
        "volume_clear_size_mb": int(action.variable("bootflow_disk_volume_clear_size_mb", 0)),
    }


def volume_attach(variables: t.Mapping[str, t.Any]) -> str:
    """How the host's guests get their volumes: by the kernel's initiator, or by QEMU's own."""
    way = str(variables.get("bootflow_volume_attach") or "kernel")
    if way not in CHOICES["bootflow_volume_attach"]:
        raise _wrong("bootflow_volume_attach", "one of kernel, qemu", way)
    return way


def node_info_arguments(action: t.Any, configuration: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What the module compute_node_info is asked on the current host. :arg configuration: see configuration()."""
    return {
        "libvirt_uri": libvirt_uri(action),
        "instances_path": instances_path(action),
        "virt_type": str(action.variable("bootflow_virt_type", "auto")),
        "pci_device_spec": configuration["pci_device_spec"],
        "isolated_disks": configuration["isolated_disks"],
        "disk_backend": disk_backend(action),
        "volume_group": volume_group(action),
        "disk_medium": str(action.variable("bootflow_disk_medium", "")),
    }


def workers(action: t.Any, builds: int) -> int:
    """How many builds a host works on at once: Nova's max_concurrent_builds, 0 for all."""
    most = int(action.variable("bootflow_max_concurrent_builds", 10))
    return max(1, min(most, builds) if most > 0 else builds)
