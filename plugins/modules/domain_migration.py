#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_migration
short_description: Take guests to their new hosts while they run
version_added: "0.9.0"
description:
  - Migrates each guest by libvirt to a host that M(bootflow.compute.domain_migration_target) has prepared. Memory and disks go by TLS, through a
    process that ends with the migration. The domain stays defined here and is off, so that what belonged to it is found when the instance is removed.
  - libvirt decides on which host a guest continues; it never runs on both. The migration continues when this module is killed.
  - The failure of one guest does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: none}
  diff_mode: {support: none, details: A guest has no text to compare.}
  platform: {platforms: linux}
options:
  guests:
    description: The guests.
    type: list
    elements: dict
    required: true
    suboptions:
      uuid:
        description: UUID of the guest.
        type: str
        required: true
      token:
        description: What the new host knows it by.
        type: str
        required: true
      name:
        description: Name of its domain.
        type: str
        required: true
      virt_type:
        description: Type of its domain.
        type: str
        required: true
      disks:
        description: The disks that are copied, by the names that the guest has for them; a config drive that it can write to, too.
        type: list
        elements: str
        default: []
      volumes:
        description:
          - Its volumes, which are not copied, as the new host has them. The keys are the ids of the volumes, the values libvirt's C(<disk>) with their source
            there. All that the guest has must be among them.
        type: dict
        default: {}
      devices:
        description: Its disks that are logical volumes, as M(bootflow.compute.domain_migration_target) made them on the new host. All of them must be there.
        type: dict
        default: {}
      drive:
        description: Whether it has a config drive, which is copied first.
        type: bool
        default: false
      path_there:
        description: Where the new host keeps the files of instances.
        type: str
        required: true
      vnc_listen:
        description: The address of its VNC display on the new host. By default as here.
        type: str
        default: ""
      pins:
        description:
          - The place on the target host of a guest with NUMA cells or dedicated CPUs. Sets are in libvirt's form (V(0-2,5)).
          - C(vcpus) has the host CPUs of each virtual CPU by its number, C(emulator) the host CPUs of the emulator, C(cells) the host's cells of each
            cell by its number, and C(memory) the host's cells of all memory. Empty for a guest that has none of these.
        type: dict
        default: {}
      completion_timeout:
        description: Seconds that it may take.
        type: float
        required: true
      address:
        description: The address of the new host.
        type: str
        required: true
      port:
        description: The port there.
        type: int
        required: true
      fingerprint:
        description: The SHA-256 of the certificate there.
        type: str
        required: true
  timeout_action:
    description: What is done when a guest has taken so long, see C(bootflow_live_migration_timeout_action).
    type: str
    choices: [abort, force_complete]
    default: abort
  permit_post_copy:
    description: A guest that is forced to complete may run on the new host before all of its memory is there.
    type: bool
    default: false
  permit_auto_converge:
    description: A guest that writes too much gets less CPU time.
    type: bool
    default: false
  downtime:
    description: Milliseconds that a guest may stand still at the end.
    type: int
    default: 500
  workers:
    description: Number of guests that go at the same time.
    type: int
    default: 1
  bandwidth:
    description: The most that a guest sends, in MiB a second; 0 for as much as it can.
    type: int
    default: 0
  progress:
    description:
      - While guests are on their way, the file C(live-PROGRESS) in C(/run/bootflow) has what libvirt says of each by its UUID, as JSON, all in bytes
        (C(memory_total), C(memory_processed), C(memory_remaining), C(disk_total), C(disk_processed), C(disk_remaining)). By default there is no such file.
    type: str
    default: ""
"""

EXAMPLES = r"""
---
- name: Take a guest to another host
  bootflow.compute.domain_migration:
    guests:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        token: "{{ token }}"
        name: web-1
        virt_type: kvm
        disks: [vda]
        path_there: /var/lib/bootflow/instances
        completion_timeout: 3200
        address: 192.0.2.12
        port: "{{ prepared.port }}"
        fingerprint: "{{ prepared.fingerprint }}"
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
    left:
      description: Whether the migration completed.
      type: bool
      returned: success
    stays:
      description: Whether a guest whose migration failed is here. Without it, only libvirt on both hosts knows.
      type: bool
      returned: failure
    power_state:
      description: Nova's number for what the guest did when it left.
      type: int
      returned: success
    seconds:
      description: How long it took.
      type: float
      returned: success
    downtime:
      description: Seconds that the guest stood still, as libvirt says.
      type: float
      returned: success
    transferred:
      description: Bytes that were sent.
      type: int
      returned: success
    forced:
      description: Whether it was forced to complete because its time was over.
      type: bool
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import BootflowError
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.server import Place
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live import relay
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.channels import sockets_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.guests import drive_of, is_here
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.migrate import Journey, migrate
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.progress import Told
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.target import qemu_owner
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, progress, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail, failure
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
        "name": {"type": "str", "required": True},
        "virt_type": {"type": "str", "required": True},
        "disks": {"type": "list", "elements": "str", "default": []},
        "volumes": {"type": "dict", "default": {}, "no_log": True},  # CHAP users
        "devices": {"type": "dict", "default": {}},
        "drive": {"type": "bool", "default": False},
        "path_there": {"type": "str", "required": True},
        "vnc_listen": {"type": "str", "default": ""},
        "pins": {"type": "dict", "default": {}},
        "completion_timeout": {"type": "float", "required": True},
        "address": {"type": "str", "required": True},
        "port": {"type": "int", "required": True},
        "fingerprint": {"type": "str", "required": True},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "guests": {"type": "list", "elements": "dict", "required": True, "options": guest},
        "timeout_action": {"type": "str", "choices": ["abort", "force_complete"], "default": "abort"},
        "permit_post_copy": {"type": "bool", "default": False},
        "permit_auto_converge": {"type": "bool", "default": False},
        "downtime": {"type": "int", "default": 500},
        "bandwidth": {"type": "int", "default": 0},
        "workers": {"type": "int", "default": 1},
        "progress": {"type": "str", "default": ""},
    }


def start_relays(args):
    """The ways out of this host, while no connection to libvirt is open: their processes would keep it."""
    with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:
        owners = {guest["uuid"]: qemu_owner(connection, guest["virt_type"]) for guest in args["guests"]}
    lifetime = sum(2 * guest["completion_timeout"] for guest in args["guests"]) + relay.STARTS
    for guest in args["guests"]:
        where = (sockets_of(guest["token"], guest["name"]), place_of(guest), guest["token"])
        relay.start(*where, owners[guest["uuid"]], lifetime)


def place_of(guest):
    """Return the place of the gate on the guest's target host."""
    return Place(guest["address"], guest["port"], guest["fingerprint"])


def main():
    module = AnsibleModule(argument_spec=argument_spec())
    keep_time_limit(module)
    args = module.params

    def go(connection, guest):
        uuid = guest["uuid"]
        if guest["drive"]:
            relay.send_drive(place_of(guest), guest["token"], drive_of(args["instances_path"], uuid))
        journey = Journey(
            uuid=uuid,
            sockets=sockets_of(guest["token"], guest["name"]),
            disks=guest["disks"],
            volumes=guest["volumes"],
            devices=guest["devices"],
            folder_there=instance_dir(guest["path_there"], uuid),
            vnc_listen=guest["vnc_listen"],
            pins=guest["pins"],
            timeout=guest["completion_timeout"],
            timeout_action=args["timeout_action"],
            post_copy=args["permit_post_copy"],
            auto_converge=args["permit_auto_converge"],
            downtime=args["downtime"] / 1000,
            bandwidth=args["bandwidth"],
        )
        return migrate(connection, args["instances_path"], journey, told)

    told = None
    try:
        told = Told(args["progress"])
        start_relays(args)
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(guest):
                try:
                    return go(connection, guest)
                except BootflowError as error:
                    stays = is_here(connection, guest["uuid"])
                    return {**failure(error, changed=progress.changed), "stays": stays}
                finally:
                    relay.end(sockets_of(guest["token"], guest["name"]))

            results = run_batch([(g["uuid"], g) for g in args["guests"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    finally:
        if told is not None:
            told.end()
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
