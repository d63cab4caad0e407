# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The input of guest.config: the guest, the capabilities of its host, and the operator's settings."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..disks.block_devices import PlannedDisk
from ..model import Flavor
from ..resources.numa.topology import GuestNUMATopology, HostNUMATopology


@dataclass(frozen=True)
class GuestOptions:
    """The operator's settings, with Nova's names if Nova has them."""

    machine_type: str | None = None  # None: pc on x86, virt on aarch64
    firmware: str | None = None  # bios, uefi; None: bios on x86, uefi on aarch64
    # none, host-model, host-passthrough, maximum, custom; None: host-model on KVM, on ARM host-passthrough
    cpu_mode: str | None = None
    cpu_model: str | None = None  # with custom
    cpu_model_extra_flags: t.Sequence[str] = ()  # pcid, +pcid, -vmx
    vnc_enabled: bool = True
    vnc_listen: str = "127.0.0.1"  # without a password on all addresses only if configured
    vnc_keymap: str | None = None
    disk_cachemodes: t.Mapping[str, str] = field(default_factory=dict)  # {file, block, network: mode}
    disk_discard: str | None = None  # unmap, ignore
    rng_dev_path: str = "/dev/urandom"
    mem_stats_period_seconds: int = 10  # 0: no balloon statistics
    num_pcie_ports: int = 0  # of q35 and virt; 0: libvirt decides
    max_queues: int = 8  # of multi-queue interfaces


@dataclass(frozen=True)
class HostCapabilities:
    """The host, as compute_node_info reports it."""

    virt_type: str = "kvm"  # kvm, or qemu for TCG
    arch: str = "x86_64"
    emulator: str | None = None
    machine_types: t.Sequence[str] = ()  # empty: unknown and not checked
    uefi: bool = False
    cpu_models: t.Sequence[str] = ()  # of libvirt; empty: unknown and not checked
    unknown_cpu_flags: t.Collection[str] = ()  # of those in bootflow_cpu_model_extra_flags
    libvirt_version: int = 0  # 9000000 is 9.0.0
    host: str = ""
    numa_topology: HostNUMATopology | None = None  # needed for guests that have one

    @property
    def is_x86(self) -> bool:
        return self.arch in ("x86_64", "i686")


@dataclass(frozen=True)
class GuestSpec:
    """One guest. ``memory_mb`` in MiB; paths are absolute paths on the host."""

    uuid: str
    name: str  # of the libvirt domain: guest.domain_name
    display_name: str
    memory_mb: int
    vcpus: int
    flavor: Flavor
    disks: t.Sequence[PlannedDisk]
    image_properties: t.Mapping[str, t.Any] = field(default_factory=dict)
    config_drive: str | None = None
    config_drive_format: str = "iso9660"
    network_info: t.Sequence[t.Mapping[str, t.Any]] = ()
    console_log: str | None = None
    nvram: str | None = None  # file of the UEFI variables; None: where libvirt has them, by the domain's name
    options: GuestOptions = field(default_factory=GuestOptions)
    pci_devices: t.Sequence[t.Mapping[str, t.Any]] = ()  # {address}: dedicated to this guest
    whole_disks: t.Sequence[t.Mapping[str, t.Any]] = ()  # {path, serial}: physical disks dedicated to this guest
    numa_topology: GuestNUMATopology | None = None  # fitted to the host
    # for the metadata element only
    ledger_id: str | None = None
    image_id: str | None = None
    user: str | None = None
    project: str | None = None
    creation_time: str | None = None
    package_version: str | None = None

    @property
    def extra_specs(self) -> t.Mapping[str, str]:
        return self.flavor.extra_specs

    def requested(self, name: str) -> t.Any:
        """The image's property ``hw_<name>``, else the flavor's extra spec ``hw:<name>``, else None."""
        value = self.image_properties.get("hw_%s" % name)
        return self.extra_specs.get("hw:%s" % name) if value in (None, "") else value
