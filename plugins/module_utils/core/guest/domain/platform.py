# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guest's machine, firmware, boot devices and SMBIOS; its features and clock."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .element import Element, at, many


@dataclass(frozen=True)
class FirmwareFeatureConfig(Element):
    """``<feature enabled='yes' name='secure-boot'/>``: decides which firmware libvirt selects."""

    TAG: t.ClassVar[str] = "feature"

    enabled: bool = at("@enabled", "bool", default=True)
    name: str = at("@name", default="")


@dataclass(frozen=True)
class OsConfig(Element):
    """``<os>``. ``firmware`` efi lets libvirt choose loader and NVRAM template from those installed on the host."""

    TAG: t.ClassVar[str] = "os"

    firmware: t.Optional[str] = at("@firmware")
    arch: t.Optional[str] = at("type/@arch")
    machine: t.Optional[str] = at("type/@machine")
    type: str = at("type", default="hvm")
    firmware_features: t.Tuple[FirmwareFeatureConfig, ...] = many(FirmwareFeatureConfig, "firmware/feature")
    loader_readonly: t.Optional[bool] = at("loader/@readonly", "bool")
    loader_secure: t.Optional[bool] = at("loader/@secure", "bool")
    loader_type: t.Optional[str] = at("loader/@type")
    loader: t.Optional[str] = at("loader")
    nvram_template: t.Optional[str] = at("nvram/@template")
    nvram: t.Optional[str] = at("nvram")
    kernel: t.Optional[str] = at("kernel")
    initrd: t.Optional[str] = at("initrd")
    cmdline: t.Optional[str] = at("cmdline")
    boot_devs: t.Tuple[str, ...] = many(str, "boot/@dev")
    bootmenu: t.Optional[bool] = at("bootmenu/@enable", "bool")
    smbios_mode: t.Optional[str] = at("smbios/@mode")


@dataclass(frozen=True)
class SysinfoEntryConfig(Element):
    TAG: t.ClassVar[str] = "entry"

    name: str = at("@name", default="")
    value: str = at(".", default="")


@dataclass(frozen=True)
class SysinfoConfig(Element):
    """``<sysinfo type='smbios'>``: the guest's output of dmidecode."""

    TAG: t.ClassVar[str] = "sysinfo"

    type: str = at("@type", default="smbios")
    system: t.Tuple[SysinfoEntryConfig, ...] = many(SysinfoEntryConfig, "system/entry")


@dataclass(frozen=True)
class FeaturesConfig(Element):
    """``<features>``; the hyperv ones are for Windows guests on KVM."""

    TAG: t.ClassVar[str] = "features"

    acpi: bool = at("acpi", "flag")
    apic: bool = at("apic", "flag")
    pae: bool = at("pae", "flag")
    hyperv_relaxed: t.Optional[bool] = at("hyperv/relaxed/@state", "switch")
    hyperv_vapic: t.Optional[bool] = at("hyperv/vapic/@state", "switch")
    hyperv_spinlocks: t.Optional[bool] = at("hyperv/spinlocks/@state", "switch")
    hyperv_spinlock_retries: t.Optional[int] = at("hyperv/spinlocks/@retries", "int")
    hyperv_vpindex: t.Optional[bool] = at("hyperv/vpindex/@state", "switch")
    hyperv_runtime: t.Optional[bool] = at("hyperv/runtime/@state", "switch")
    hyperv_synic: t.Optional[bool] = at("hyperv/synic/@state", "switch")
    hyperv_reset: t.Optional[bool] = at("hyperv/reset/@state", "switch")
    hyperv_vendor_id: t.Optional[bool] = at("hyperv/vendor_id/@state", "switch")
    hyperv_vendor_id_value: t.Optional[str] = at("hyperv/vendor_id/@value")
    hyperv_frequencies: t.Optional[bool] = at("hyperv/frequencies/@state", "switch")
    hyperv_tlbflush: t.Optional[bool] = at("hyperv/tlbflush/@state", "switch")
    hyperv_ipi: t.Optional[bool] = at("hyperv/ipi/@state", "switch")
    kvm_hidden: t.Optional[bool] = at("kvm/hidden/@state", "switch")
    pmu: t.Optional[bool] = at("pmu/@state", "switch")
    smm: t.Optional[bool] = at("smm/@state", "switch")
    vmcoreinfo: t.Optional[bool] = at("vmcoreinfo/@state", "switch")


@dataclass(frozen=True)
class TimerConfig(Element):
    TAG: t.ClassVar[str] = "timer"

    name: str = at("@name", default="")
    tickpolicy: t.Optional[str] = at("@tickpolicy")
    present: t.Optional[bool] = at("@present", "bool")


@dataclass(frozen=True)
class ClockConfig(Element):
    TAG: t.ClassVar[str] = "clock"

    offset: str = at("@offset", default="utc")
    timers: t.Tuple[TimerConfig, ...] = many(TimerConfig)
