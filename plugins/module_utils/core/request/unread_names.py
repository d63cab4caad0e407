# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of extra specs and image properties that shape a guest, and similar names that nothing here reads."""

from __future__ import annotations

import re
import typing as t

from ..model import Flavor, Image
from ..reading.nearest import nearest
from ..scheduler.filters.compute_capabilities_filter import FACTS

_NUMA = ("numa_nodes", "numa_cpus.N", "numa_mem.N", "mem_page_size", "pci_numa_affinity_policy")
_CPUS = tuple("cpu_" + prefix + name for prefix in ("", "max_") for name in ("sockets", "cores", "threads"))
_BOTH = (
    *_CPUS,
    *_NUMA,
    *("cpu_policy", "cpu_thread_policy", "cpu_realtime_mask", "boot_menu", "locked_memory", "maxphysaddr_bits", "pmu"),
    *("serial_port_count", "vif_multiqueue_enabled", "watchdog_action"),
)
_DISK_LIMITS = tuple(
    "disk_%s_%s_sec%s" % (way, what, burst)
    for way in ("total", "read", "write")
    for what in ("bytes", "iops")
    for burst in ("", "_max")
)
_VIF_LIMITS = tuple(
    "vif_%s_%s" % (way, what) for way in ("inbound", "outbound") for what in ("average", "peak", "burst")
)

#: extra specs; N: a number
EXTRA_SPECS = frozenset(
    (
        *("hw:" + name for name in (*_BOTH, "cpu_realtime", "emulator_threads_policy", "hide_hypervisor_id")),
        *("hw_rng:allowed", "hw_rng:rate_bytes", "hw_rng:rate_period", "hw_video:ram_max_mb", "os:secure_boot"),
        *("quota:" + name for name in ("cpu_shares", "cpu_period", "cpu_quota", "disk_size_iops_sec")),
        *("quota:" + name for name in (*_DISK_LIMITS, *_VIF_LIMITS)),
        *("pci_passthrough:alias", "bootflow:whole_disks", "bootflow:whole_disk_min_gb", "bootflow:whole_disk_medium"),
    )
)
#: properties of images; N: a number
IMAGE_PROPERTIES = frozenset(
    (
        *("hw_" + name for name in (*_BOTH, "architecture", "machine_type", "firmware_type", "vm_mode", "time_hpet")),
        *("hw_disk_bus", "hw_cdrom_bus", "hw_floppy_bus", "hw_lun_bus", "hw_scsi_model", "hw_vif_model"),
        *("hw_rescue_bus", "hw_rescue_device"),
        *("hw_video_model", "hw_video_ram", "hw_rng_model", "hw_pointer_model", "hw_input_bus", "hw_qemu_guest_agent"),
        *(
            "bootflow:config_drive_datasource",
            "img_config_drive",
            "img_hide_hypervisor_id",
            "img_hv_type",
            "img_hv_requested_version",
        ),
        *("os_admin_user", "os_secure_boot", "os_shutdown_timeout", "os_type"),
    )
)
#: properties that only describe an image; Glance's clients write some of them unasked
DESCRIPTIONS = frozenset(("os_distro", "os_hash_algo", "os_hash_value", "os_hidden", "os_version"))

#: Former names of properties that Nova reads for every hypervisor, and nothing here.
_FORMER = frozenset(("ipxe_boot", "vmware_adaptertype"))

_SCOPED = re.compile(r"(hw|hw_rng|hw_video|os|quota|pci_passthrough|bootflow):|(hw|os|img|quota)_")
_NUMBERED = re.compile(r"(numa_(?:cpus|mem)\.)\d+\Z")


def unread_names(
    flavors: t.Iterable[Flavor], images: t.Iterable[Image], read_elsewhere: t.Container[str] = ()
) -> list[str]:
    """Return a sentence for each flavor and image that has names similar to names that shape a guest, and that nothing reads.

    :arg read_elsewhere: names that aggregates compare.
    """
    strangers_by_thing = {
        ("extra specs of flavor", flavor.name): _strangers(flavor.extra_specs, EXTRA_SPECS, read_elsewhere, frozenset())
        for flavor in flavors
    }
    for image in images:
        known = IMAGE_PROPERTIES | DESCRIPTIONS
        strangers_by_thing["properties of image", image.name] = _strangers(
            image.properties, known, read_elsewhere, _FORMER
        )
    return [
        "The %s %s have names that nothing reads: %s." % (of_what, name, ", ".join(strangers))
        for (of_what, name), strangers in strangers_by_thing.items()
        if strangers
    ]


#: Scopes of extra specs that something reads, or that a request is refused for.
_SCOPES = (
    *("capabilities", "aggregate_instance_extra_specs", "hw", "hw_rng", "hw_video", "os", "quota", "pci_passthrough"),
    *("bootflow", "trait", "resources", "accel"),
)
#: Former name of hw:hide_hypervisor_id, which is read, too.
_UNSCOPED = frozenset(("hide_hypervisor_id",))
_OF_AGGREGATES, _OF_FACTS = "AggregateInstanceExtraSpecsFilter", "ComputeCapabilitiesFilter"


def unread_requirements(flavors: t.Iterable[Flavor], filters: t.Collection[str], own_filters: bool) -> list[str]:
    """A sentence for each flavor that has extra specs for the choice of a host which no enabled filter reads, with what would read them.

    Nova's ComputeCapabilitiesFilter ignores an unscoped name that no fact of the host has; its AggregateInstanceExtraSpecsFilter reads all of them.

    :arg filters: names of the enabled ones. :arg own_filters: some are the user's own, and may read any name.
    """
    sentences = []
    for flavor in flavors:
        unread_specs = []
        for name in sorted(n for n, value in flavor.extra_specs.items() if str(value) != ""):
            scope, colon, rest = name.partition(":")
            if own_filters or _SCOPED.match(name) or name in _UNSCOPED:
                continue
            if colon:
                near = "" if scope in _SCOPES else nearest(scope, _SCOPES)
                unread_specs += ["%s (did you mean %s:%s?)" % (name, near, rest)] if near else []
            elif _OF_AGGREGATES not in filters and (name not in FACTS or _OF_FACTS not in filters):
                unread_specs.append("%s (%s)" % (name, _would_read(name)))
        if unread_specs:
            text = "The extra specs of flavor %s have names that no enabled filter reads: %s. Add the filter to bootflow_enabled_filters, or"
            sentences.append((text + " remove the names.") % (flavor.name, ", ".join(unread_specs)))
    return sentences


def _would_read(name: str) -> str:
    if name in FACTS:
        return "%s would, as a fact of hosts" % _OF_FACTS
    near = nearest(name, FACTS)
    meant = "did you mean %s? " % near if near else ""
    return "%s%s would, in the metadata of aggregates" % (meant, _OF_AGGREGATES)


def _strangers(
    names: t.Iterable[str], known: frozenset[str], read_elsewhere: t.Container[str], former: frozenset[str]
) -> list[str]:
    """The unread names, each with the nearest of the known ones.

    :arg former: names without a scope that count, too.
    """
    strangers = []
    for name in sorted(names):
        if (
            not (name in former or _SCOPED.match(name))
            or name in read_elsewhere
            or _NUMBERED.sub(r"\1N", name) in known
        ):
            continue
        near = _nearest_name(name, known - DESCRIPTIONS)
        strangers.append(name + " (did you mean %s?)" % near if near else name)
    return strangers


def _nearest_name(name: str, known: t.Iterable[str]) -> str:
    """The nearest of the names that begin with the same word, else the same name behind another one; "" if there is none."""
    word, rest = _divided(name)
    of_words: dict[str, dict[str, str]] = {}
    for other in sorted(known):
        other_word, other_rest = _divided(other)
        of_words.setdefault(other_word, {})[other_rest] = other
    same = of_words.get(word, {})
    near = nearest(rest, same)
    return same[near] if near else next((names[rest] for names in of_words.values() if rest in names), "")


def _divided(name: str) -> tuple[str, str]:
    """The word of a scope (hw, os, quota, ...) and what follows it. Flavors have hw:boot_menu, images hw_boot_menu."""
    match = re.match(r"[a-z]+[:_]", name)
    return (match.group()[:-1], name[match.end() :]) if match else ("", name)
