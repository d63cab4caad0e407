#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: iscsi_initiator
short_description: Connect this host to volumes by iSCSI
version_added: "0.9.0"
description:
  - Logs in to the targets of volumes with the kernel's initiator and waits for the disks, or removes the disks and logs out.
  - A disk that is mounted, held by another device or open in a process, such as QEMU, is never removed. Otherwise the disk is flushed and
    removed from the kernel before the logout, so that no other volume can appear under its name.
  - A session stays open while the target has other disks on this host.
  - >-
    With several portals there is a session with each, and guests get the multipath map of the disks; portals that are down are listed in
    RV(outcomes.failed_portals). If multipathd is not running, only one portal is used, with a warning. A disk with a path that is down
    is not resized, because the path would come back with the old size.
  - Secrets are never on a command line. C(iscsiadm) keeps them in its record of the target, which only root can read, until the host is disconnected.
  - The failure of one connection does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.workers
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: partial, details: "The size after O(connections[].state=rescanned) is not known in check mode."}
  diff_mode: {support: full}
  platform: {platforms: linux}
options:
  connections:
    description: The volumes.
    type: list
    elements: dict
    required: true
    suboptions:
      volume_id:
        description: UUID of the volume, the key of its result in RV(outcomes).
        type: str
        required: true
      state:
        description: Requested state; V(rescanned) makes the kernel read the size of a disk that grew.
        type: str
        choices: [connected, disconnected, rescanned]
        default: connected
      iqn:
        description: Name of the target.
        type: str
        required: true
      lun:
        description: The volume's LUN.
        type: int
        required: true
      portals:
        description: >-
          The target's portals, as C(address:port), IPv6 addresses in brackets. There is a session with each if multipathd is running, otherwise
          with one.
        type: list
        elements: str
        required: true
      chap_user:
        description: User to log in with. Requires O(connections[].chap_secret).
        type: str
      chap_secret:
        description: The secret of O(connections[].chap_user).
        type: str
      shared:
        description:
          - Whether another guest of this host has the volume and is connected. Both use the same session, and its record stays unchanged.
          - Used with O(connections[].state=connected); O(connections[].chap_user) is then ignored.
        type: bool
        default: false
  scan_tries:
    description: How often to look for a disk that does not appear immediately, after 1, 4, 9... seconds.
    type: int
    default: 5
requirements:
  - open-iscsi with iscsid running
  - udev
  - multipath-tools with multipathd running for several paths to one volume
"""

EXAMPLES = r"""
---
- name: Connect to a volume
  bootflow.compute.iscsi_initiator:
    connections:
      - volume_id: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        iqn: iqn.2010-10.org.openstack:volume-2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        lun: 0
        portals:
          - 192.0.2.10:3260
        chap_user: "{{ chap.user }}"
        chap_secret: "{{ chap.secret }}"
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each volume, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the connection was, or in check mode would be, changed.
      type: bool
      returned: always
    changes:
      description: Changed parts, of C(record), C(session), C(map), C(disk) and C(size).
      type: list
      elements: str
      returned: success
    iqn:
      description: Name of the target.
      type: str
      returned: success
    lun:
      description: The volume's LUN.
      type: int
      returned: success
    path:
      description:
        - Path of the device for guests, C(/dev/disk/by-id/dm-uuid-mpath-WWID) if multipathd has a map, otherwise the link below C(/dev/disk/by-path).
      type: str
      returned: success
    device:
      description: The device to which RV(outcomes.path) leads.
      type: str
      returned: success
    devices:
      description: The devices of all sessions.
      type: list
      elements: str
      returned: success
    multipath:
      description: The map of multipathd over RV(outcomes.devices); empty without one.
      type: str
      returned: success
    serial:
      description: Unit serial number of the disk.
      type: str
      returned: when connected
    size:
      description: Size in bytes.
      type: int
      returned: when connected
    sessions:
      description: The sessions with C(number), C(portal) and C(group).
      type: list
      elements: dict
      returned: success
    failed_portals:
      description: Portals at which the login failed, with the reason, while it succeeded at another one.
      type: list
      elements: str
      returned: when connected
    warnings:
      description: Why the volume has fewer paths than portals.
      type: list
      elements: str
      returned: when connected
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.initiator import (
    STATES,
    Initiator,
    make_connections,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    connection = {
        "volume_id": {"type": "str", "required": True},
        "state": {"type": "str", "choices": list(STATES), "default": "connected"},
        "iqn": {"type": "str", "required": True},
        "lun": {"type": "int", "required": True},
        "portals": {"type": "list", "elements": "str", "required": True},
        "chap_user": {"type": "str", "no_log": True},
        "chap_secret": {"type": "str", "no_log": True},
        "shared": {"type": "bool", "default": False},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        "connections": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": connection,
            "required_together": [("chap_user", "chap_secret")],
        },
        "scan_tries": {"type": "int", "default": 5},
        "workers": {"type": "int", "default": 4},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        initiator = Initiator(wait_tries=args["scan_tries"])
        outcome = make_connections(args["connections"], initiator, args["workers"], module.check_mode)
    except Exception as error:
        fail(module, error)
    for volume_id, item in outcome["outcomes"].items():
        for text in item.get("warnings") or ():
            module.warn("volume %s: %s" % (volume_id, text))
    module.exit_json(
        changed=any_changed(outcome["outcomes"]),
        outcomes=outcome["outcomes"],
        diff={"before": outcome["before"], "after": outcome["after"]},
    )


if __name__ == "__main__":
    main()
