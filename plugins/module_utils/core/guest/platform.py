# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guest's machine, firmware, CPU, clock and features. source: Nova's libvirt driver"""

from __future__ import annotations

import typing as t

from ..disks.disk_names import is_q35
from ..errors import HostLacksHardware, InvalidInput, UnsupportedHardware
from ..reading.nearest import suggestion
from . import constraints, cpu_topology, values
from .constraints import CPU_MODES, is_true
from .domain.cpu import CpuConfig, CpuFeatureConfig, CpuTuneConfig
from .domain.platform import (
    ClockConfig,
    FeaturesConfig,
    FirmwareFeatureConfig,
    OsConfig,
    SysinfoConfig,
    SysinfoEntryConfig,
    TimerConfig,
)
from .names import cpu_flag_name
from .spec import GuestSpec, HostCapabilities

_DEFAULT_MACHINES = {
    "x86_64": "pc",
    "i686": "pc",
    "aarch64": "virt",
    "armv7l": "virt",
    "riscv64": "virt",
    "ppc64le": "pseries",
    "s390x": "s390-ccw-virtio",
}
_FIRMWARE_FEATURES_SINCE = 7002000  # libvirt 7.2: <firmware><feature/>
_MAXIMUM_SINCE = 7001000  # libvirt 7.1: cpu mode maximum
HYPERV_SPINLOCK_RETRIES = 8191
# Drivers that refuse a hypervisor look for Hyper-V's vendor. source: Nova's SPOOFED_VENDOR_ID
HYPERV_VENDOR_ID = "1234567890ab"


def machine_type(image_properties: t.Mapping[str, t.Any], of_setting: str | None, host: HostCapabilities) -> str | None:
    """The image's hw_machine_type, else the setting, else the architecture's default; None: libvirt's default.

    :raises HostLacksHardware: the host's QEMU lacks the requested machine.
    """
    wanted = image_properties.get("hw_machine_type") or of_setting
    machine = str(wanted or _DEFAULT_MACHINES.get(host.arch, ""))
    if host.machine_types and machine not in host.machine_types:
        if wanted:
            raise HostLacksHardware(
                host=host.host or "chosen",
                model="machine type %s" % machine,
                reason="the machine types of the host are %s" % ", ".join(sorted(host.machine_types)[:20]),
                remedy="Change the image's hw_machine_type or bootflow_machine_type.",
            )
        return None
    return machine or None


def check_architecture(guest: GuestSpec, host: HostCapabilities) -> None:
    """
    :raises InvalidInput: the image names no known architecture.
    :raises UnsupportedHardware: the image is for another architecture.
    """
    wanted = values.architecture(guest.image_properties)
    if wanted and wanted != host.arch and not (wanted == "i686" and host.arch == "x86_64"):
        raise UnsupportedHardware(
            model="architecture %s" % wanted,
            virt=host.virt_type,
            remedy="The architecture of the host is %s." % host.arch,
        )


def os_config(guest: GuestSpec, host: HostCapabilities, machine: str | None, boot_devs: t.Sequence[str]) -> OsConfig:
    """The ``<os>`` element.

    :raises UnsupportedHardware: an unknown firmware, or secure boot without support for it.
    :raises HostLacksHardware: UEFI without firmware on the host.
    """
    firmware = firmware_type(guest, host)
    secure = constraints.secure_boot(guest.flavor, guest.image_properties)
    features: tuple[FirmwareFeatureConfig, ...] = ()
    if secure and (firmware != "uefi" or (host.is_x86 and not is_q35(machine))):
        raise UnsupportedHardware(
            model="secure boot",
            virt=host.virt_type,
            remedy="Secure boot needs hw_firmware_type: uefi, and hw_machine_type: q35 on x86.",
        )
    if firmware == "uefi" and host.is_x86 and host.libvirt_version >= _FIRMWARE_FEATURES_SINCE:
        # Written in both cases: without it libvirt may choose a build that requires SMM.
        features = (FirmwareFeatureConfig(enabled=secure, name="secure-boot"),)
        if secure:
            features = (FirmwareFeatureConfig(enabled=True, name="enrolled-keys"),) + features
    menu = guest.requested("boot_menu")
    return OsConfig(
        firmware="efi" if firmware == "uefi" else None,
        arch=host.arch,
        machine=machine,
        firmware_features=features,
        loader_secure=True if secure else None,
        nvram=guest.nvram if firmware == "uefi" else None,
        boot_devs=tuple(boot_devs),
        bootmenu=True if menu is not None and is_true(menu) else None,
        smbios_mode="sysinfo" if host.is_x86 or host.arch == "aarch64" else None,
    )


def firmware_type(guest: GuestSpec, host: HostCapabilities) -> str:
    """bios or uefi: the image's hw_firmware_type, else the setting, else UEFI on aarch64 and BIOS elsewhere."""
    firmware = wanted_firmware(guest.image_properties, guest.options.firmware, host.arch)
    values.one_of("firmware", firmware, values.FIRMWARE_TYPES, host.virt_type)
    if firmware == "uefi" and not host.uefi:
        raise HostLacksHardware(
            host=host.host or "chosen",
            model="UEFI firmware",
            reason="libvirt offers none",
            remedy="Install ovmf (aarch64: qemu-efi-aarch64) on the host, or boot another image.",
        )
    return firmware


def wanted_firmware(image_properties: t.Mapping[str, t.Any], of_setting: str | None, arch: str) -> str:
    """The same, whether the host has it or not. :arg of_setting: bootflow_firmware"""
    wanted = image_properties.get("hw_firmware_type") or of_setting
    return str(wanted or ("uefi" if arch == "aarch64" else "bios"))


def features_config(guest: GuestSpec, host: HostCapabilities) -> FeaturesConfig:
    """ACPI and APIC; Hyper-V enlightenments for Windows on KVM (TCG has none)."""
    hyperv = values.is_windows(guest.image_properties) and host.virt_type == "kvm" and host.is_x86
    enlightened = True if hyperv else None
    secure = constraints.secure_boot(guest.flavor, guest.image_properties)
    hide = host.virt_type == "kvm" and hides_hypervisor(guest)
    return FeaturesConfig(
        acpi=host.is_x86 or host.arch == "aarch64",
        apic=host.is_x86,
        hyperv_relaxed=enlightened,
        hyperv_vapic=enlightened,
        hyperv_spinlocks=enlightened,
        hyperv_spinlock_retries=HYPERV_SPINLOCK_RETRIES if hyperv else None,
        hyperv_vpindex=enlightened,
        hyperv_runtime=enlightened,
        hyperv_synic=enlightened,
        hyperv_reset=enlightened,
        hyperv_vendor_id=True if hyperv and hide else None,
        hyperv_vendor_id_value=HYPERV_VENDOR_ID if hyperv and hide else None,
        hyperv_frequencies=enlightened,
        hyperv_tlbflush=enlightened,
        hyperv_ipi=enlightened,
        kvm_hidden=True if hide else None,
        pmu=constraints.pmu(guest.flavor, guest.image_properties),
        smm=True if secure and host.is_x86 else None,
    )


def hides_hypervisor(guest: GuestSpec) -> bool:
    """Whether flavor (hw:hide_hypervisor_id, or its former name hide_hypervisor_id) or image (img_hide_hypervisor_id) want it."""
    specs, properties = guest.extra_specs, guest.image_properties
    return any(
        is_true(value)
        for value in (
            specs.get("hw:hide_hypervisor_id"),
            specs.get("hide_hypervisor_id"),
            properties.get("img_hide_hypervisor_id"),
        )
    )


def clock_config(guest: GuestSpec, host: HostCapabilities) -> ClockConfig:
    """UTC, local time for Windows; the timers that Nova gives x86 guests."""
    timers: tuple[TimerConfig, ...] = ()
    if host.is_x86:
        hpet = guest.image_properties.get("hw_time_hpet")
        timers = (
            TimerConfig(name="pit", tickpolicy="delay"),
            TimerConfig(name="rtc", tickpolicy="catchup"),
            TimerConfig(name="hpet", present=hpet is not None and is_true(hpet)),
        )
        if values.is_windows(guest.image_properties) and host.virt_type == "kvm":
            timers += (TimerConfig(name="hypervclock", present=True),)
    return ClockConfig(offset="localtime" if values.is_windows(guest.image_properties) else "utc", timers=timers)


def cpu_config(guest: GuestSpec, host: HostCapabilities) -> CpuConfig | None:
    """The ``<cpu>`` element; None for the default.

    host-model by default on KVM, host-passthrough on ARM, for which libvirt has no host-model. On TCG the default is QEMU's own model,
    also with the settings host-model and host-passthrough, which need hardware virtualisation.

    :raises InvalidInput: an unknown mode, custom without a model; see cpu_topology for the topology.
    """
    options = guest.options
    # source: Nova's _get_guest_cpu_model_config
    of_kvm = "host-passthrough" if host.arch == "aarch64" else "host-model"
    mode = options.cpu_mode or (of_kvm if host.virt_type == "kvm" else "none")
    if mode not in CPU_MODES:
        raise InvalidInput(
            reason="cpu_mode %r is unknown" % mode, remedy="bootflow_cpu_mode is one of %s." % ", ".join(CPU_MODES)
        )
    if mode == "custom" and not options.cpu_model:
        raise InvalidInput(reason="cpu_mode custom has no cpu_model", remedy="Set bootflow_cpu_model.")
    if mode == "custom" and host.cpu_models and options.cpu_model not in host.cpu_models:
        raise HostLacksHardware(
            host=host.host or "chosen",
            model="CPU model %s" % options.cpu_model,
            reason="libvirt does not know it there",
            remedy="Correct bootflow_cpu_model. %s"
            % suggestion(str(options.cpu_model), host.cpu_models, "virsh domcapabilities"),
        )
    if host.virt_type != "kvm" and mode in ("host-model", "host-passthrough"):
        mode = "none"
    if mode == "maximum" and host.libvirt_version and host.libvirt_version < _MAXIMUM_SINCE:
        mode = "none"
    wanted = cpu_topology.topology_wanted(guest.extra_specs, guest.image_properties)
    # Always checked: an unsupported request is an error.
    topology = cpu_topology.best_topology(guest.vcpus, guest.extra_specs, guest.image_properties)
    if mode == "none" and not wanted:
        return None
    flags = () if mode == "none" else tuple(_cpu_feature(flag) for flag in options.cpu_model_extra_flags)
    unknown = sorted({flag.name for flag in flags}.intersection(host.unknown_cpu_flags))
    if unknown:
        raise HostLacksHardware(
            host=host.host or "chosen",
            model="CPU feature %s" % ", ".join(unknown),
            reason="libvirt does not know it there",
            remedy="Correct bootflow_cpu_model_extra_flags.",
        )
    return CpuConfig(
        mode=None if mode == "none" else mode,
        match="exact" if mode == "custom" else None,
        model=options.cpu_model if mode == "custom" else None,
        sockets=topology.sockets,
        cores=topology.cores,
        threads=topology.threads,
        features=flags,
    )


def _cpu_feature(flag: str) -> CpuFeatureConfig:
    policy = "disable" if flag.strip().startswith("-") else "require"
    return CpuFeatureConfig(policy=policy, name=cpu_flag_name(flag))


def cputune_config(guest: GuestSpec) -> CpuTuneConfig | None:
    """The flavor's quota:cpu_shares, _period and _quota; None without them, as the cgroup may be missing.

    0 is libvirt's default, and any negative quota is none: its schema has neither 0 nor a number below -1.
    """
    given: dict[str, t.Any] = {
        name: values.quota_number(guest.flavor, "cpu_%s" % name) or None for name in ("shares", "period", "quota")
    }
    if given["quota"] is not None:
        given["quota"] = max(given["quota"], -1)
    return CpuTuneConfig(**given) if any(value is not None for value in given.values()) else None


def sysinfo_config(guest: GuestSpec, host: HostCapabilities) -> SysinfoConfig | None:
    """The guest's DMI data. Nova's product name is not used: it makes cloud-init wait for a metadata service."""
    if not (host.is_x86 or host.arch == "aarch64"):
        return None
    entries = [("manufacturer", "bootflow.compute"), ("product", "bootflow.compute")]
    if guest.package_version:
        entries.append(("version", guest.package_version))
    entries += [("serial", guest.uuid), ("uuid", guest.uuid), ("family", "Virtual Machine")]
    return SysinfoConfig(system=tuple(SysinfoEntryConfig(name=name, value=value) for name, value in entries))
