#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_migration_target
short_description: Prepare a host for guests that come to it while they run
version_added: "0.9.0"
description:
  - Checks whether each guest can run here (its CPU, and the versions of QEMU and libvirt), makes empty disks of the same sizes, as files or as logical
    volumes of O(volume_group), as the guest has them, and starts a process that lets these guests in by TLS. A client that shows the token of a guest is
    connected to the sockets that QEMU opens for this guest, and to libvirt's for the calls of this guest's migration alone. Its definition is refused
    where it has more, or uses other files, devices or networks of this host, than O(guests[].limits) and its disks here.
  - Key and certificate are made for this process on this host, the key never leaves it. The process ends with O(state=absent), or after O(lifetime)
    seconds, and nothing of it remains.
  - A host that has something of the instance already is refused. The failure of one guest does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: none}
  diff_mode: {support: none, details: Disks have no text to compare.}
  platform: {platforms: linux}
options:
  state:
    description: V(present) prepares the host, V(absent) ends the process.
    type: str
    choices: [present, absent]
    default: present
  guests:
    description: The guests.
    type: list
    elements: dict
    default: []
    suboptions:
      uuid:
        description: UUID of the guest.
        type: str
        required: true
      token:
        description: What its present host shows.
        type: str
        required: true
      guest:
        description: What M(bootflow.compute.domain_migration_info) said of it.
        type: dict
        required: true
      limits:
        description:
          - What the guest's definition may have and use here, by the ledger. C(ledger_id) is its owner; C(memory_mb) in MiB, C(vcpus), C(cpu_shares),
            C(cpu_period) and C(cpu_quota) in libvirt's units, C(realtime), C(locked) and C(hugepages) as its flavor has them; C(pins) as in
            O(bootflow.compute.domain_migration#module:guests[].pins).
          - C(interfaces) has of each interface, by its MAC address, C(type), C(network), C(bridge), C(dev) and C(bandwidth); C(iotune) has
            the limits of local disks; C(disks) the bytes that each may have, by its name, 0 where that is not known; C(vnc_listen)
            and C(rng_dev_path) are the settings of this host.
        type: dict
        required: true
      volumes:
        description: Its volumes as this host has them, by their ids, as libvirt's C(<disk>) with their source here. It can come with no others.
        type: dict
        default: {}
      made_for:
        description: Mark of the migration for which the folder of the guest is made. M(bootflow.compute.instance_cleanup) removes by it.
        type: str
        default: ''
  arrived:
    description: With O(state=absent), UUIDs of guests that have arrived. No failure of their migration removes them any more.
    type: list
    elements: str
    default: []
  volume_group:
    description: Volume group for disks that are logical volumes, or in a file system on one.
    type: str
  first_port:
    description: The process listens at the first free port from this one on, at all addresses.
    type: int
    default: 49216
  last_port:
    description: The last of these ports.
    type: int
    default: 49279
  port:
    description: With O(state=absent), where it listens.
    type: int
  fingerprint:
    description: With O(state=absent), the SHA-256 of its certificate.
    type: str
  stop_token:
    description: What ends the process.
    type: str
    required: true
  lifetime:
    description: Seconds after which it ends by itself.
    type: float
    default: 3600.0
  patience:
    description: It ends earlier when no guest has come, or has said that it waits, for as many seconds from the beginning; later on, for 90 seconds.
    type: float
    default: 600.0
requirements:
  - qemu-utils
  - openssl
"""

EXAMPLES = r"""
---
- name: Let a guest in
  bootflow.compute.domain_migration_target:
    guests:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        token: "{{ token }}"
        guest: "{{ leaving.outcomes['2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11'].guest }}"
        limits:
          ledger_id: "{{ ledger_id }}"
          memory_mb: 2048
          vcpus: 2
          disks: {disk: 21474836480}
          interfaces:
            fa:16:3e:41:e5:f8: {type: bridge, bridge: br0}
          vnc_listen: 127.0.0.1
    stop_token: "{{ stop_token }}"
  no_log: true
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each guest, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the host was changed.
      type: bool
      returned: always
    devices:
      description:
        - Of the disks that are logical volumes, by the names that the guest has for them, C(path) and C(size). The latter are the bytes that the guest
          sees of a volume that is larger than its disk, since the extents here are, else 0.
      type: dict
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
port:
  description: Where the process listens; 0 if no guest can come.
  type: int
  returned: success
fingerprint:
  description: The SHA-256 of its certificate.
  type: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.arriving import Arriving
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.arriving_disks import checked_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.server import (
    HERE,
    Place,
    answered,
    started,
    stop,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.channels import make_folder, sockets_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.empty_disks import disks_here, make_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.gate import Gate, Guest
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.guests import drive_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.target import (
    check,
    emulators,
    libvirt_socket,
    qemu_owner,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.ownership import LEDGER_ARGUMENTS, mark_arrived
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.paths import instance_dir
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    guest = {
        "uuid": {"type": "str", "required": True},
        "token": {"type": "str", "required": True, "no_log": True},
        "guest": {"type": "dict", "required": True},
        "limits": {"type": "dict", "required": True},
        "volumes": {"type": "dict", "default": {}, "no_log": True},  # CHAP users
        "made_for": {"type": "str", "default": ""},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        **LEDGER_ARGUMENTS,
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "guests": {"type": "list", "elements": "dict", "default": [], "options": guest},
        "volume_group": {"type": "str"},
        "first_port": {"type": "int", "default": 49216},
        "last_port": {"type": "int", "default": 49279},
        "arrived": {"type": "list", "elements": "str", "default": []},
        "port": {"type": "int"},
        "fingerprint": {"type": "str"},
        "stop_token": {"type": "str", "required": True, "no_log": True},
        "lifetime": {"type": "float", "default": 3600.0},
        "patience": {"type": "float", "default": 600.0},
    }


def prepare(args):
    """The outcomes, and where the process listens."""
    owners, arriving = {}, {}
    with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

        def one(coming):
            guest, where = coming["guest"], (args["instances_path"], args["ledger_id"])
            sizes = {name: int(size) for name, size in (coming["limits"].get("disks") or {}).items()}
            disks = checked_disks(guest["disks"], sizes, coming["uuid"])
            check(connection, guest)
            found = (args["volume_group"] or "", coming["made_for"])
            devices = make_disks(connection, *where, coming["uuid"], disks, sizes, *found)
            owners[coming["uuid"]] = qemu_owner(connection, guest["virt_type"])
            arriving[coming["uuid"]] = Arriving(
                uuid=coming["uuid"],
                name=guest["name"],
                folder=instance_dir(args["instances_path"], coming["uuid"]),
                disks=disks_here(args["instances_path"], coming["uuid"], disks, devices),
                emulators=emulators(connection),
                drive=drive_of(args["instances_path"], coming["uuid"]) if guest["drive"] else "",
                limits=coming["limits"],
                volumes=coming["volumes"],
            )
            return {"changed": True, "devices": devices}

        results = run_batch([(g["uuid"], g) for g in args["guests"]], one, workers=1)
    place = Place(HERE, 0, "")
    ready = [g for g in args["guests"] if g["uuid"] in owners]
    if ready:  # no connection to libvirt is open any more: the process would keep it
        let_in = []
        for each in ready:
            sockets = sockets_of(each["token"], each["guest"]["name"])
            make_folder(sockets, *owners[each["uuid"]])
            let_in.append(Guest(each["token"], sockets, arriving[each["uuid"]]))
        ends = (args["stop_token"], args["lifetime"], args["patience"])
        gate = Gate(let_in, libvirt_socket(args["libvirt_uri"]), *ends)
        place = started(gate, (args["first_port"], args["last_port"]))
    return {"outcomes": results, "port": place.port, "fingerprint": place.fingerprint}


def main():
    module = AnsibleModule(argument_spec=argument_spec(), required_if=[("state", "absent", ["port", "fingerprint"])])
    keep_time_limit(module)
    args = module.params
    try:
        if args["state"] == "absent":
            for uuid in args["arrived"]:
                mark_arrived(instance_dir(args["instances_path"], uuid))
            changed = stop(Place(HERE, args["port"], args["fingerprint"]), args["stop_token"])
            result = {"outcomes": {}, "port": 0, "fingerprint": ""}
        else:
            result = prepare(args)
            changed = any_changed(result["outcomes"])
    except Exception as error:
        fail(module, error)
    answered()
    module.exit_json(changed=changed, **result)


if __name__ == "__main__":
    main()
