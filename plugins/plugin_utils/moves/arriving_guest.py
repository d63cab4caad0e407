# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits for the definition of a guest that arrives running on its target host, by the ledger: its source host may have been taken over."""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils.core.guest import constraints, devices, platform
from ...module_utils.core.guest.spec import GuestSpec
from ...module_utils.core.guest.values import VIF_LIMITS
from ...module_utils.core.model import Flavor
from ...module_utils.core.networks.network import Network
from ...module_utils.core.networks.network_info import PortRecord, build_network_info
from ...module_utils.core.reading.setting import Values
from ...module_utils.core.resources.numa.realtime import is_realtime
from ...module_utils.flows.boot.builds import Build
from ...module_utils.flows.moves.local_disks import largest
from ..builds import domain_builder

Ports = t.Sequence[t.Tuple[PortRecord, Network]]


def limits_of(
    build: Build,
    guest_settings: Values,
    ports: Ports,
    pins: t.Mapping[str, t.Any],
) -> dict[str, t.Any]:
    """Return the option ``limits`` of an arriving guest for the module domain_migration.

    :arg guest_settings: the settings GUEST of the new host. :arg ports: of the guest, also ports that it is losing.
    :arg pins: see core.guest.numa.pins().
    """
    spec, image = build.row.spec, build.row.spec["image"] or {}
    guest = GuestSpec(
        uuid=build.uuid,
        name=build.row.domain_name,
        display_name=build.row.display_name,
        memory_mb=build.row.memory_mb,
        vcpus=build.row.vcpus,
        flavor=Flavor(**spec["flavor"]),
        disks=(),
        image_properties=image.get("properties") or {},
        network_info=build_network_info([p for p, _n in ports], {n.id: n for _p, n in ports}, build.row.project),
    )
    tune = platform.cputune_config(guest)
    disk_limits = devices.disk_limits(guest)
    realtime = is_realtime(guest.extra_specs)
    return {
        "ledger_id": build.ledger_id,
        "memory_mb": guest.memory_mb,
        "vcpus": guest.vcpus,
        "cpu_shares": None if tune is None else tune.shares,
        "cpu_period": None if tune is None else tune.period,
        "cpu_quota": None if tune is None else tune.quota,
        "realtime": realtime,
        "locked": realtime or constraints.locked_memory(guest.flavor, guest.image_properties),
        "hugepages": bool(pins),
        "pins": dict(pins),
        "disks": largest(build.disks, spec["image"]),
        "iotune": {} if disk_limits is None else dataclasses.asdict(disk_limits),
        "interfaces": {
            str(interface.mac): {
                **interface.place,
                "dev": interface.target_dev,
                "bandwidth": {name: getattr(interface, name) for name in VIF_LIMITS},
            }
            for interface in devices.interface_configs(guest, domain_builder.host_capabilities(build).virt_type)
        },
        "vnc_listen": guest_settings.vnc_listen,
        "rng_dev_path": guest_settings.rng_dev_path,
    }
