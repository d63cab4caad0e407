#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_migration
short_description: Migrate guests to other hosts while they run, step by step
version_added: "0.9.0"
description:
  - Runs one step of the migrations of guests. The source host describes its guests (O(step=describe)), the target host prepares for them (O(step=prepare)),
    the source host migrates them (O(step=migrate)), and the target host closes (O(step=close)) what it opened for them. While guests migrate, the source
    host can abort their migrations or force them to complete (O(step=intervene)).
  - The failure of one guest does not affect the others. RV(outcomes) has the result of each.
  - With O(step=describe), reads of each guest what the target host must know, its CPU, its local disks (files, or logical volumes) and their sizes, which
    volumes it has, and the versions of QEMU and libvirt.
  - With O(step=prepare), checks whether each guest can run here (its CPU, and the versions of QEMU and libvirt), makes empty disks of the same sizes, as
    files or as logical volumes of O(volume_group), as the guest has them, and starts a process that lets these guests in by TLS. A client that shows the
    token of a guest is connected to the sockets that QEMU opens for this guest, and to libvirt's for the calls of this guest's migration alone. Its
    definition is refused where it has more, or uses other files, devices or networks of this host, than O(arriving_guests[].limits) and its disks here.
    A host that has something of the instance already is refused.
  - Key and certificate are made for this process on the target host, the key never leaves it. The process ends with O(step=close), or after O(lifetime)
    seconds, and nothing of it remains.
  - With O(step=migrate), migrates each guest by libvirt to its target host. Memory and disks go by TLS, through a process that ends with the migration.
    The domain stays defined here and is off, so that what belonged to it is found when the instance is removed. libvirt decides on which host a guest
    continues; it never runs on both. The migration continues when this module is killed.
  - With O(step=intervene), ends the migration of guests, which go on here, or pauses them so that their migration comes to its end; they go on on their
    target hosts.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.time_limit
  - bootflow.compute.shared.disk_pool
attributes:
  check_mode:
    support: partial
    details:
      - V(describe) changes nothing. V(intervene) tells how far the migrations are, which go on as they do.
      - The other steps are skipped in check mode.
  diff_mode: {support: none, details: Guests and disks have no text to compare.}
  platform: {platforms: linux}
options:
  step:
    description:
      - V(describe) needs O(uuids), V(prepare) needs O(arriving_guests) and O(stop_token), V(migrate) needs O(departing_guests), V(close) needs O(port),
        O(fingerprint) and O(stop_token), V(intervene) needs O(uuids) and O(action).
      - V(describe), V(migrate) and V(intervene) are for the source host, V(prepare) and V(close) for the target host.
    type: str
    choices: [describe, prepare, migrate, close, intervene]
    required: true
  uuids:
    description: With O(step=describe) and O(step=intervene), UUIDs of the guests. To be described, they run or are paused.
    type: list
    elements: str
  volumes:
    description:
      - With O(step=describe), by the UUIDs of guests and of the volumes that they have, where this host has them, the path of a device or IQN/LUN.
      - A guest that has an overlay or a copy in place of one of them is refused.
    type: dict
    default: {}
  arriving_guests:
    description: With O(step=prepare), the guests that migrate to this host.
    type: list
    elements: dict
    suboptions:
      uuid:
        description: UUID of the guest.
        type: str
        required: true
      token:
        description: Token that the source host shows.
        type: str
        required: true
      guest:
        description: The description of the guest, RV(outcomes.guest) of O(step=describe) on the source host.
        type: dict
        required: true
      limits:
        description:
          - What the guest's definition may have and use here, by the ledger. C(ledger_id) is its owner; C(memory_mb) in MiB, C(vcpus), C(cpu_shares),
            C(cpu_period) and C(cpu_quota) in libvirt's units, C(realtime), C(locked) and C(hugepages) as its flavor has them; C(pins) as in
            O(departing_guests[].pins).
          - C(interfaces) has of each interface, by its MAC address, C(type), C(network), C(bridge), C(switch), C(port), C(dev) and C(bandwidth); C(iotune) has
            the limits of local disks; C(disks) the bytes that each may have, by its name, 0 where that is not known; C(vnc_listen)
            and C(rng_dev_path) are the settings of this host.
        type: dict
        required: true
      volumes:
        description: Volumes of the guest as this host has them, by their ids, as libvirt's C(<disk>) with their source here. It can come with no others.
        type: dict
        default: {}
      made_for:
        description: Mark of the migration for which the folder of the guest is made. M(bootflow.compute.instance_cleanup) removes by it.
        type: str
        default: ''
  volume_group:
    description: With O(step=prepare), the volume group for disks that are logical volumes, or in a file system on one.
    type: str
  first_port:
    description: With O(step=prepare), the process listens at the first free port from this one on, at all addresses.
    type: int
    default: 49216
  last_port:
    description: With O(step=prepare), the last of these ports.
    type: int
    default: 49279
  lifetime:
    description: With O(step=prepare), seconds after which the process ends by itself.
    type: float
    default: 3600.0
  patience:
    description:
      - With O(step=prepare), the process ends earlier when no guest connects or says that it waits for as many seconds from the beginning, and for 90
        seconds later.
    type: float
    default: 600.0
  stop_token:
    description: Token that ends the process. O(step=prepare) starts it with the one that O(step=close) shows.
    type: str
  port:
    description: With O(step=close), the port of the process.
    type: int
  fingerprint:
    description: With O(step=close), the SHA-256 of the certificate of the process.
    type: str
  arrived:
    description: With O(step=close), UUIDs of guests that have arrived. No failure of their migration removes them any more.
    type: list
    elements: str
    default: []
  departing_guests:
    description: With O(step=migrate), the guests that migrate to their target hosts.
    type: list
    elements: dict
    suboptions:
      uuid:
        description: UUID of the guest.
        type: str
        required: true
      token:
        description: Token that identifies the guest on the target host.
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
          - Its volumes, which are not copied, as the target host has them. The keys are the ids of the volumes, the values libvirt's C(<disk>) with their
            source there. All that the guest has must be among them.
        type: dict
        default: {}
      devices:
        description: Its disks that are logical volumes, RV(outcomes.devices) of O(step=prepare) on the target host. All of them must be there.
        type: dict
        default: {}
      drive:
        description: Whether it has a config drive, which is copied first.
        type: bool
        default: false
      path_there:
        description: Where the target host keeps the files of instances.
        type: str
        required: true
      vnc_listen:
        description: The address of its VNC display on the target host. By default as here.
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
        description: Seconds that the migration may take.
        type: float
        required: true
      address:
        description: The address of the target host.
        type: str
        required: true
      port:
        description: The port there, RV(port) of O(step=prepare).
        type: int
        required: true
      fingerprint:
        description: The SHA-256 of the certificate there, RV(fingerprint) of O(step=prepare).
        type: str
        required: true
  timeout_action:
    description: With O(step=migrate), what is done when a guest has taken so long, see C(bootflow_live_migration_timeout_action).
    type: str
    choices: [abort, force_complete]
    default: abort
  permit_auto_converge:
    description: With O(step=migrate), a guest that writes too much gets less CPU time.
    type: bool
    default: false
  downtime:
    description: With O(step=migrate), milliseconds that a guest may stand still at the end.
    type: int
    default: 500
  workers:
    description: With O(step=migrate), the number of guests that migrate at the same time.
    type: int
    default: 1
  bandwidth:
    description: With O(step=migrate), the most that a guest sends, in MiB a second; 0 for as much as it can.
    type: int
    default: 0
  progress:
    description:
      - With O(step=migrate), while guests are on their way, the file C(live-PROGRESS) in C(/run/bootflow) has what libvirt says of each by its UUID, as
        JSON, all in bytes (C(memory_total), C(memory_processed), C(memory_remaining), C(disk_total), C(disk_processed), C(disk_remaining)).
      - By default no file is written.
    type: str
    default: ""
  action:
    description: With O(step=intervene), what is done.
    type: str
    choices: [abort, force_complete]
  permit_post_copy:
    description:
      - With O(step=migrate) and O(step=intervene), a guest that is forced to complete may run on its target host before all of its memory is there, instead
        of being paused.
    type: bool
    default: false
requirements:
  - qemu-utils (to prepare a host)
  - openssl (to prepare a host)
"""

EXAMPLES = r"""
---
- name: Describe a guest (source host)
  bootflow.compute.domain_migration:
    step: describe
    uuids: [2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11]
  register: described

- name: Let the guest in (target host)
  bootflow.compute.domain_migration:
    step: prepare
    arriving_guests:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        token: "{{ token }}"
        guest: "{{ described.outcomes['2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11'].guest }}"
        limits:
          ledger_id: "{{ ledger_id }}"
          memory_mb: 2048
          vcpus: 2
          disks: {disk: 21474836480}
          interfaces:
            fa:16:3e:41:e5:f8: {type: bridge, bridge: br0}
          vnc_listen: 127.0.0.1
    stop_token: "{{ stop_token }}"
  register: prepared
  no_log: true

- name: Migrate the guest (source host)
  bootflow.compute.domain_migration:
    step: migrate
    departing_guests:
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

- name: Abort the migration while it runs (source host)
  bootflow.compute.domain_migration:
    step: intervene
    uuids: [2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11]
    action: abort

- name: Close what was opened for the guest (target host)
  bootflow.compute.domain_migration:
    step: close
    port: "{{ prepared.port }}"
    fingerprint: "{{ prepared.fingerprint }}"
    stop_token: "{{ stop_token }}"
  no_log: true
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each guest, by its UUID. Empty with O(step=close).
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the host was changed.
      type: bool
      returned: always
    guest:
      description: The description of the guest, for O(arriving_guests[].guest).
      type: dict
      returned: success, with O(step=describe)
    devices:
      description:
        - Of the disks that are logical volumes, by the names that the guest has for them, C(path) and C(size). The latter are the bytes that the guest sees
          of a volume that is larger than its disk, since the extents here are, else 0.
      type: dict
      returned: success, with O(step=prepare)
    left:
      description: Whether the migration completed.
      type: bool
      returned: success, with O(step=migrate)
    power_state:
      description: Nova's number for what the guest did when it left.
      type: int
      returned: success, with O(step=migrate)
    stays:
      description: Whether a guest whose migration failed is here. Without it, only libvirt on both hosts knows.
      type: bool
      returned: failure, with O(step=migrate)
    seconds:
      description: How long it took.
      type: float
      returned: success, with O(step=migrate)
    downtime:
      description: Seconds that the guest stood still, as libvirt says.
      type: float
      returned: success, with O(step=migrate)
    transferred:
      description: Bytes that were sent.
      type: int
      returned: success, with O(step=migrate)
    forced:
      description: Whether it was forced to complete because its time was over.
      type: bool
      returned: success, with O(step=migrate)
    total:
      description: Bytes that the migration has to copy, at this moment.
      type: int
      returned: success, with O(step=intervene)
    remaining:
      description: Bytes of these that were not copied yet.
      type: int
      returned: success, with O(step=intervene)
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
port:
  description: Where the process listens; 0 if no guest can come.
  type: int
  returned: success, with O(step=prepare)
fingerprint:
  description: The SHA-256 of its certificate.
  type: str
  returned: success, with O(step=prepare)
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import BootflowError
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
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live import relay
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.channels import make_folder, sockets_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.empty_disks import disks_here, make_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.gate import Gate, Guest
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.guests import describe, drive_of, is_here
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.migrate import Journey, intervene, migrate
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.progress import Told
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.target import (
    check,
    emulators,
    libvirt_socket,
    qemu_owner,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, progress, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail, failure
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.ownership import LEDGER_ARGUMENTS, mark_arrived
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.paths import instance_dir
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)

REQUIRED = [
    ("step", "describe", ["uuids"]),
    ("step", "prepare", ["arriving_guests", "stop_token"]),
    ("step", "migrate", ["departing_guests"]),
    ("step", "close", ["port", "fingerprint", "stop_token"]),
    ("step", "intervene", ["uuids", "action"]),
]
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.disk_images import (
    DISK_POOL_ARGUMENTS,
    pool_of,
)


def argument_spec():
    """The module's options."""
    arriving = {
        "uuid": {"type": "str", "required": True},
        "token": {"type": "str", "required": True, "no_log": True},
        "guest": {"type": "dict", "required": True},
        "limits": {"type": "dict", "required": True},
        "volumes": {"type": "dict", "default": {}, "no_log": True},  # CHAP users
        "made_for": {"type": "str", "default": ""},
    }
    departing = {
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
        **LEDGER_ARGUMENTS,
        "step": {"type": "str", "choices": list(STEPS), "required": True},
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "uuids": {"type": "list", "elements": "str"},
        "volumes": {"type": "dict", "default": {}},
        "arriving_guests": {"type": "list", "elements": "dict", "options": arriving},
        "volume_group": {"type": "str"},
        **DISK_POOL_ARGUMENTS,
        "first_port": {"type": "int", "default": 49216},
        "last_port": {"type": "int", "default": 49279},
        "lifetime": {"type": "float", "default": 3600.0},
        "patience": {"type": "float", "default": 600.0},
        "stop_token": {"type": "str", "no_log": True},
        "port": {"type": "int"},
        "fingerprint": {"type": "str"},
        "arrived": {"type": "list", "elements": "str", "default": []},
        "departing_guests": {"type": "list", "elements": "dict", "options": departing},
        "timeout_action": {"type": "str", "choices": ["abort", "force_complete"], "default": "abort"},
        "permit_auto_converge": {"type": "bool", "default": False},
        "downtime": {"type": "int", "default": 500},
        "workers": {"type": "int", "default": 1},
        "bandwidth": {"type": "int", "default": 0},
        "progress": {"type": "str", "default": ""},
        "action": {"type": "str", "choices": ["abort", "force_complete"]},
        "permit_post_copy": {"type": "bool", "default": False},
    }


# --- describe -----------------------------------------------------------------------------------------------------------


def describe_guests(args, _check_mode):
    """Return the descriptions of guests for their target hosts."""
    with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

        def one(uuid):
            return {"guest": describe(connection, args["instances_path"], uuid, args["volumes"].get(uuid))}

        results = run_batch([(uuid, uuid) for uuid in args["uuids"]], one, workers=1)
    return {"changed": False, "outcomes": results}


# --- prepare and close --------------------------------------------------------------------------------------------------


def prepare_host(args, _check_mode):
    """Make the disks of guests, and start the process that lets them in. Returns where it listens, too."""
    owners, arriving = {}, {}
    with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

        def one(coming):
            guest, where = coming["guest"], (args["instances_path"], args["ledger_id"])
            sizes = {name: int(size) for name, size in (coming["limits"].get("disks") or {}).items()}
            disks = checked_disks(guest["disks"], sizes, coming["uuid"])
            check(connection, guest)
            volume_options = (args["volume_group"] or "", coming["made_for"], pool_of(args))
            devices = make_disks(connection, *where, coming["uuid"], disks, sizes, *volume_options)
            owners[coming["uuid"]] = qemu_owner(connection, guest["virt_type"])
            arriving[coming["uuid"]] = Arriving(
                uuid=coming["uuid"],
                name=guest["name"],
                folder=instance_dir(args["instances_path"], coming["uuid"]),
                disks=disks_here(args["instances_path"], coming["uuid"], disks, devices, pool_of(args)),
                emulators=emulators(connection),
                drive=drive_of(args["instances_path"], coming["uuid"]) if guest["drive"] else "",
                limits=coming["limits"],
                volumes=coming["volumes"],
            )
            return {"changed": True, "devices": devices}

        results = run_batch([(g["uuid"], g) for g in args["arriving_guests"]], one, workers=1)
    place = Place(HERE, 0, "")
    ready = [g for g in args["arriving_guests"] if g["uuid"] in owners]
    if ready:  # no connection to libvirt is open any more: the process would keep it
        let_in = []
        for arrival in ready:
            sockets = sockets_of(arrival["token"], arrival["guest"]["name"])
            make_folder(sockets, *owners[arrival["uuid"]])
            let_in.append(Guest(arrival["token"], sockets, arriving[arrival["uuid"]]))
        ends = (args["stop_token"], args["lifetime"], args["patience"])
        gate = Gate(let_in, libvirt_socket(args["libvirt_uri"]), *ends)
        place = started(gate, (args["first_port"], args["last_port"]))
    return {
        "changed": any_changed(results),
        "outcomes": results,
        "port": place.port,
        "fingerprint": place.fingerprint,
    }


def close_host(args, _check_mode):
    """Mark the guests that have arrived, and end the process that lets guests in."""
    for uuid in args["arrived"]:
        mark_arrived(instance_dir(args["instances_path"], uuid))
    changed = stop(Place(HERE, args["port"], args["fingerprint"]), args["stop_token"])
    return {"changed": changed, "outcomes": {}}


# --- migrate and intervene ----------------------------------------------------------------------------------------------


def start_relays(args):
    """Start the relays to the target hosts while no connection to libvirt is open: their processes would keep it."""
    guests = args["departing_guests"]
    with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:
        owners = {guest["uuid"]: qemu_owner(connection, guest["virt_type"]) for guest in guests}
    lifetime = sum(2 * guest["completion_timeout"] for guest in guests) + relay.STARTS
    for guest in guests:
        where = (sockets_of(guest["token"], guest["name"]), place_of(guest), guest["token"])
        relay.start(*where, owners[guest["uuid"]], lifetime)


def place_of(guest):
    """Return the place of the gate on the guest's target host."""
    return Place(guest["address"], guest["port"], guest["fingerprint"])


def migrate_guest(connection, args, guest, report):
    """Migrate one guest. :arg report: gets its progress"""
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
    return migrate(connection, args["instances_path"], journey, report)


def migrate_guests(args, _check_mode):
    """Migrate guests, a few at a time."""
    report = Told(args["progress"])
    try:
        start_relays(args)
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(guest):
                try:
                    return migrate_guest(connection, args, guest, report)
                except BootflowError as error:
                    stays = is_here(connection, guest["uuid"])
                    return {**failure(error, changed=progress.changed), "stays": stays}
                finally:
                    relay.end(sockets_of(guest["token"], guest["name"]))

            results = run_batch([(g["uuid"], g) for g in args["departing_guests"]], one, args["workers"])
    finally:
        report.end()
    return {"changed": any_changed(results), "outcomes": results}


def intervene_in_migrations(args, check_mode):
    """Abort the migrations of guests, or force them to complete."""
    with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

        def one(uuid):
            return intervene(connection, uuid, args["action"], args["permit_post_copy"], check_mode)

        results = run_batch([(uuid, uuid) for uuid in args["uuids"]], one, workers=4)
    return {"changed": any_changed(results), "outcomes": results}


STEPS = {
    "describe": describe_guests,
    "prepare": prepare_host,
    "migrate": migrate_guests,
    "close": close_host,
    "intervene": intervene_in_migrations,
}
IN_CHECK_MODE = ("describe", "intervene")


def main():
    module = AnsibleModule(argument_spec=argument_spec(), required_if=REQUIRED, supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    if module.check_mode and args["step"] not in IN_CHECK_MODE:
        module.exit_json(skipped=True, msg="step %s does not support check mode" % args["step"])
    try:
        result = STEPS[args["step"]](args, module.check_mode)
    except Exception as error:
        fail(module, error)
    answered()
    module.exit_json(**result)


if __name__ == "__main__":
    main()
