# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of a host: inventory variables, read in place, each with the default that holds where it is not set.

source: semantics 2 (ratios), 1 (reserved); docs/variables.md lists them for people.
"""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

# column of the ledger's compute_nodes <- (inventory variable, type, default)
CONFIGURATION: dict[str, tuple[str, t.Callable[[t.Any], t.Any], t.Any]] = {
    "ram_allocation_ratio": ("bootflow_ram_allocation_ratio", float, 1.5),
    "disk_allocation_ratio": ("bootflow_disk_allocation_ratio", float, 1.0),
    "cpu_allocation_ratio": ("bootflow_cpu_allocation_ratio", float, 16.0),
    "reserved_memory_mb": ("bootflow_reserved_memory_mb", int, 512),
    "reserved_disk_gb": ("bootflow_reserved_disk_gb", int, 0),
    "reserved_vcpus": ("bootflow_reserved_vcpus", int, 0),
    "availability_zone": ("bootflow_availability_zone", str, "nova"),
    "disabled": ("bootflow_disabled", None, False),  # type: ignore[dict-item]
    "disabled_reason": ("bootflow_disabled_reason", str, ""),
}

TRUE_WORDS = ("true", "yes", "on", "1")


def configuration(variables: t.Mapping[str, t.Any], host: str) -> dict[str, t.Any]:
    """The settings of ``host`` as columns of the ledger.

    :raises InvalidInput: a value is not of its type, or a ratio is below zero.
    """
    found = {}
    for column, (name, convert, default) in CONFIGURATION.items():
        value = variables.get(name)
        if value is None:
            found[column] = default
            continue
        try:
            found[column] = (str(value).lower() in TRUE_WORDS) if convert is None else convert(value)
        except (TypeError, ValueError) as e:
            raise errors.InvalidInput(reason="%s of host %s is %r" % (name, host, value), remedy="Correct it in the inventory.") from e
        if isinstance(found[column], (int, float)) and found[column] < 0:
            raise errors.InvalidInput(reason="%s of host %s is negative" % (name, host), remedy="Correct it in the inventory.")
    for column in ("ram_allocation_ratio", "disk_allocation_ratio", "cpu_allocation_ratio"):
        found[column] = found[column] or CONFIGURATION[column][2]  # 0.0 means unset, as in Nova
    return found


def libvirt_uri(action: t.Any) -> str:
    return str(action.variable("bootflow_libvirt_uri", "qemu:///system"))


def instances_path(action: t.Any) -> str:
    return str(action.variable("bootflow_instances_path", "/var/lib/bootflow/instances")).rstrip("/")
