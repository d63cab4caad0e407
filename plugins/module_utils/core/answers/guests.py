# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of modules that work on domains and their migrations."""

from __future__ import annotations

import typing as t

from ..disks.stores.registry import RECORD_FORMATS
from ..instances.power_states import POWER_STATES
from .outcomes import outcomes
from .shapes import (
    LARGEST_BIG,
    TEXT,
    Field,
    Fields,
    Shape,
    choice,
    count,
    error,
    flag,
    items,
    mapping,
    maybe,
    message,
    name,
    names,
    number,
    path,
    record,
    size,
    text,
    uuid,
    whole,
)

power_state = choice(*POWER_STATES)
_states: Shape = mapping(uuid, power_state)
BOOT_ID: Shape = text(64)
AT_WORK: Shape = items(uuid)
_vnc: Shape = record({"listen": name, "port": whole(1, 65535)})
_place: Shape = record(
    {"type": Field(choice("disk", "nic"), "V(disk) or V(nic).", returned="always")},
    {
        "name": Field(text(32), "Name of the disk in the definition.", returned="for a disk", sample="vda"),
        "mac": Field(text(32), "MAC address of the interface.", returned="for an interface"),
        "bus": Field(text(32), "V(pci), V(scsi), V(ide) or V(usb).", returned="if the device has one of these"),
        "address": Field(
            text(32), "PCI address in the guest.", returned="with RV(outcomes.devices[].bus=pci)", sample="0000:00:03.0"
        ),
    },
)
seconds: Shape = number(most=LARGEST_BIG)


def disk_record(*formats: str) -> Shape:
    """Return the shape of a disk's record in disk.info."""
    more: dict[str, Shape] = {
        "kind": name,
        **dict.fromkeys(("image_id", "base", "volume_group", "pool", "fsid"), text()),
    }
    return record({"format": choice(*formats), "virtual_size": size}, more)


DISK_RECORD: Shape = disk_record(*RECORD_FORMATS)
_leaving_disk: Shape = record(
    {"name": name, "target": text(32), "allocated": size, "record": DISK_RECORD}, {"mounted": flag}
)
_leaving: Shape = record(
    {
        "name": name,
        "power_state": power_state,
        "cpu": message,
        "cpu_of_host": flag,
        "virt_type": text(32),
        "arch": text(64),
        "machine": text(),
        "hypervisor_version": count,
        "libvirt_version": count,
        "disks": items(_leaving_disk, unique="name"),
        "drive": flag,
    },
    {"drive_target": text(32)},
)
_device: Shape = record({"path": path, "size": size})
_foreign_disk: Shape = record(
    {"target": text(), "device": text(), "type": text(), "source": text(TEXT), "size": size, "local": flag}
)
_foreign_interface: Shape = record({"mac": text(32), "type": text(), "source": text(), "addresses": items(text(64))})
_foreign_domain: Shape = record(
    {
        "uuid": uuid,
        "name": name,
        "arch": text(),
        "machine": text(),
        "memory_mb": count,
        "vcpus": count,
        "disks": items(_foreign_disk),
        "interfaces": items(_foreign_interface),
        "pci": items(text(64)),
        "other_devices": items(message),
        "pins": items(items(count, exactly=2)),
        "agent": flag,
        "made_by": choice("", "bootflow", "nova"),
        "ledger": text(36),
        "power_state": power_state,
        "persistent": flag,
        "saved": flag,
        "snapshots": count,
        "jobs": items(message),
    }
)
_strange_domain: Shape = record({"uuid": uuid, "name": name, "error": error})


def _described(value: t.Any, where: str) -> None:
    """The description of a domain, or why there is none."""
    has_error = isinstance(value, t.Mapping) and value.get("error") is not None
    (_strange_domain if has_error else _foreign_domain)(value, where)


_OF_GUESTS = "The outcome of each guest, by its UUID. Empty with O(step=close)."
_HOST_CHANGED = "Whether the host was changed."

#: Module, with a dot and its step where it has several -> what its answer has, and what it may have.
ANSWERS: dict[str, tuple[Fields, Fields]] = {
    "domain": (
        {
            "outcomes": outcomes(
                "The outcome of each domain, by its UUID.",
                "Whether the domain was, or in check mode would be, defined, started or resumed, or an address reserved for it.",
                {
                    "power_state": Field(
                        power_state,
                        "Nova's number of the power state, 1 for running, 3 paused, 4 shut down, 6 crashed, 7 suspended, 0 none.",
                        returned="success, and after a failure with O(domains[].restart)",
                    )
                },
                {
                    "name": Field(name, "Name of the domain."),
                    "defined": Field(None, "Whether this task defined the domain.", type="bool"),
                    "started": Field(None, "Whether this task started the domain.", type="bool"),
                    "resumed": Field(None, "Whether this task resumed a paused domain.", type="bool"),
                    "differences": Field(
                        None,
                        "Differences between the existing and the requested definition.",
                        type="list",
                        elements="str",
                    ),
                    "reserved": Field(
                        None,
                        "Addresses of O(domains[].reservations) that were, or in check mode would be, reserved.",
                        type="list",
                        elements="str",
                    ),
                    "seconds": Field(None, "Duration in seconds.", type="float"),
                    "devices": Field(
                        items(_place),
                        "Where the guest finds its disks and interfaces, in the order of the definition.",
                        returned="success, with O(domains[].state=defined), not in check mode",
                    ),
                    "console_match": Field(None, "The console line that matched; otherwise null.", type="str"),
                    "forced": Field(
                        flag,
                        "Whether the guest lost its power, as it had not shut down in time.",
                        returned="success, of a running guest with O(domains[].shutdown_timeout)",
                    ),
                    "vifs_missing": Field(
                        None,
                        "Interfaces that were not plugged in when the guest was resumed; only with O(domains[].vif_plugging_is_fatal=false).",
                        type="list",
                        elements="str",
                    ),
                },
            )
        },
        {},
    ),
    "domain_adoption": (
        {},
        {
            "domains": Field(
                items(_described),
                (
                    (
                        "The domains, with C(uuid), C(name), C(arch), C(machine), C(memory_mb), C(vcpus), C(disks), C(interfaces), C(pci), C(other_devices),"
                        " C(pins), C(agent), C(made_by), C(ledger), C(power_state), C(persistent), C(saved), C(snapshots) and C(jobs)."
                    ),
                    "A domain that cannot be described has C(uuid), C(name) and C(error).",
                ),
                returned="with O(state=described)",
            ),
            "outcomes": outcomes(
                "The outcome of each domain, by its UUID. Empty with O(state=described).",
                "Whether the metadata of the domain was, or in check mode would be, changed.",
            ),
        },
    ),
    "domain_console": (
        {
            "outcomes": outcomes(
                "The outcome of each domain, by its UUID.",
                "Always false.",
                {
                    "console": Field(items(message, most=10_000), "The last lines; empty without a log."),
                    "power_state": Field(
                        power_state,
                        "Nova's number for its state, 1 for running, 3 paused, 4 shut down, 6 crashed, 7 suspended, 0 none.",
                    ),
                },
                {
                    "vnc": Field(
                        maybe(_vnc),
                        "Where the display is, with C(listen), an address of the host, and C(port); null without one, or if the guest does not run.",
                        sample={"listen": "127.0.0.1", "port": 5900},
                    )
                },
            )
        },
        {},
    ),
    "domain_disk": (
        {
            "outcomes": outcomes(
                "The outcome of each disk, by its C(id).",
                "Whether the disk was, or in check mode would be, changed.",
                {},
                {
                    "target": Field(
                        None,
                        "Target name in the domain, such as C(vdb); null if the domain does not have the disk.",
                        type="str",
                    ),
                    "live": Field(None, "Whether the running guest has the disk.", type="bool"),
                    "config": Field(None, "Whether the definition of the next start has the disk.", type="bool"),
                    "swapped": Field(
                        maybe(flag),
                        "Whether the guest has the new volume, with O(disks[].state=swapped) and O(disks[].state=settled); otherwise null.",
                    ),
                    "size": Field(
                        None,
                        "Size in bytes in the running guest, with O(disks[].state=resized); otherwise null.",
                        type="int",
                    ),
                },
            )
        },
        {},
    ),
    "domain_info": (
        {
            "power_states": Field(
                _states,
                "Nova's number for the state of each domain, by its UUID, 1 for running, 3 paused, 4 shut down, 6 crashed, 7 suspended, 0 none.",
                sample={"6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e": 1},
            ),
            "boot_id": Field(
                BOOT_ID,
                "The kernel's name for the host's start, another one after each restart; empty if the host has none.",
            ),
        },
        {
            "at_work": Field(
                AT_WORK,
                "UUIDs of the guests that a module of this collection defines, starts or stops now. Their states are not their last.",
            )
        },
    ),
    "domain_interface": (
        {},
        {
            "outcomes": outcomes(
                "The outcome of each interface, by its C(id).",
                "Whether the interface was, or in check mode would be, attached or detached.",
                {},
                {
                    "live": Field(None, "Whether the running guest has the interface.", type="bool"),
                    "config": Field(None, "Whether the definition of the next start has the interface.", type="bool"),
                },
            )
        },
    ),
    "domain_migration.describe": (
        {
            "outcomes": outcomes(
                _OF_GUESTS,
                _HOST_CHANGED,
                {"guest": Field(_leaving, "The description of the guest, for O(arriving_guests[].guest).")},
                {},
            )
        },
        {},
    ),
    "domain_migration.prepare": (
        {
            "outcomes": outcomes(
                _OF_GUESTS,
                _HOST_CHANGED,
                {},
                {
                    "devices": Field(
                        mapping(text(32), _device),
                        (
                            (
                                "Of the disks that are logical volumes, by the names that the guest has for them, C(path) and C(size). The latter"
                                " are the bytes that the guest sees of a volume that is larger than its disk, since the extents here are, else 0."
                            ),
                        ),
                    )
                },
            ),
            "port": Field(whole(0, 65535), "Where the process listens; 0 if no guest can come."),
            "fingerprint": Field(text(64), "The SHA-256 of its certificate."),
        },
        {},
    ),
    "domain_migration.migrate": (
        {
            "outcomes": outcomes(
                _OF_GUESTS,
                _HOST_CHANGED,
                {
                    "left": Field(flag, "Whether the migration completed."),
                    "power_state": Field(power_state, "Nova's number for what the guest did when it left."),
                },
                {
                    "stays": Field(
                        flag,
                        "Whether a guest whose migration failed is here. Without it, only libvirt on both hosts knows.",
                        returned="failure",
                    ),
                    "seconds": Field(seconds, "How long it took."),
                    "downtime": Field(seconds, "Seconds that the guest stood still, as libvirt says."),
                    "transferred": Field(size, "Bytes that were sent."),
                    "forced": Field(flag, "Whether it was forced to complete because its time was over."),
                },
            )
        },
        {},
    ),
    "domain_migration.close": ({"outcomes": outcomes(_OF_GUESTS, _HOST_CHANGED)}, {}),
    "domain_migration.intervene": (
        {
            "outcomes": outcomes(
                _OF_GUESTS,
                _HOST_CHANGED,
                {},
                {
                    "total": Field(size, "Bytes that the migration has to copy, at this moment."),
                    "remaining": Field(size, "Bytes of these that were not copied yet."),
                },
            )
        },
        {},
    ),
    "domain_password": (
        {
            "outcomes": outcomes(
                "The outcome of each domain, by its UUID.",
                "Whether the password was, or in check mode would be, set.",
                {"power_state": Field(power_state, "Nova's number for the guest's state, 1 for running.")},
                {},
            )
        },
        {},
    ),
    "domain_quiesce": (
        {
            "outcomes": outcomes(
                "The outcome of each domain, by its UUID.",
                "Whether the file systems were, or in check mode would be, frozen or thawed.",
                {
                    "power_state": Field(power_state, "Nova's number for the guest's state, 1 for running."),
                    "quiesced": Field(flag, "Whether the file systems stand still now, or stood still until now."),
                },
                {"token": Field(text(128), "The word that releases them; empty where they do not stand still.")},
            )
        },
        {},
    ),
    "domain_power": (
        {
            "outcomes": outcomes(
                "The outcome of each domain, by its UUID.",
                "Whether the guest was, or in check mode would be, shut down, started, restarted, paused, unpaused, suspended or interrupted.",
                {
                    "power_state": Field(
                        power_state,
                        "Nova's number for its state, 1 for running, 3 paused, 4 shut down, 6 crashed, 7 suspended, 0 none.",
                    )
                },
                {
                    "forced": Field(flag, "Whether it lost its power, as it had not shut down in time."),
                    "restarted": Field(
                        flag,
                        "Whether the guest restarted; one that did not hear in time, was not running or did not start has to be reset.",
                        returned="success, with O(state=rebooted)",
                    ),
                    "vifs_missing": Field(
                        names,
                        "Interfaces that were not plugged in when the guest was started, which is possible without O(vif_plugging_is_fatal).",
                        returned="success, when the guest was started",
                    ),
                    "seconds": Field(None, "How long it took.", type="float"),
                },
            )
        },
        {},
    ),
    "domain_rescue": (
        {
            "outcomes": outcomes(
                "The outcome of each domain, by its UUID.",
                "Whether something was, or in check mode would be, changed.",
                {
                    "power_state": Field(
                        power_state,
                        "Nova's number for its state, 1 for running, 3 paused, 4 shut down, 6 crashed, 7 suspended, 0 none.",
                        returned="success, and of a guest whose definition was restored and that did not start",
                    )
                },
                {
                    "ran": Field(
                        flag,
                        "Whether the guest runs, and is not that of a rescue.",
                        returned="success, with O(state=saved)",
                    ),
                    "forced": Field(
                        flag,
                        "Whether it has the definition O(domains[].xml), as its own was lost or refused.",
                        returned="success, with O(state=restored)",
                    ),
                    "vifs_missing": Field(
                        names,
                        "Interfaces that were not plugged in when the guest was started, which is possible without O(vif_plugging_is_fatal).",
                        returned="success, when the guest was started",
                    ),
                    "seconds": Field(
                        None, "How long the start took.", returned="success, when the guest was started", type="float"
                    ),
                },
            )
        },
        {},
    ),
}
