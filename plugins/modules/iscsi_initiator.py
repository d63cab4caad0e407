#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: iscsi_initiator
short_description: Connect this host to volumes by iSCSI
version_added: "0.1.0"
description:
  - Logs in to volumes' targets with the kernel's initiator and waits for the disks, or takes the disks away and logs out.
  - A disk that is mounted, held by another device or open in a process, such as a guest's, is never taken away. One that goes is flushed, and
    removed from the kernel before the logout, so that no other volume can appear under its name.
  - A session stays while the target has other disks here.
  - >-
    With several portals there is a session with each, and multipathd's map of their disks is what a guest gets; a portal that is down is told in
    RV(outcomes.failed_portals). Where multipathd does not run, one portal is used, and a warning says so. A disk with a path that is down
    is not resized, for the path would come back with the old size.
  - No secret is on a command line. C(iscsiadm) keeps it in its record of the target, which only root reads, until the host is disconnected.
  - A connection that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
attributes:
  check_mode:
    support: partial
    details: The size after O(connections[].state=rescanned) is known only when the disk was asked.
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    platforms: linux
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
        description: Whether the host is to be connected; V(rescanned) has the kernel ask for the size of a disk that grew.
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
          The target's portals, as C(address:port), an IPv6 address in brackets. There is a session with each where multipathd runs, elsewhere
          with one.
        type: list
        elements: str
        required: true
      chap_user:
        description: User to log in with. With O(connections[].chap_secret).
        type: str
      chap_secret:
        description: The secret of O(connections[].chap_user).
        type: str
      shared:
        description:
          - Another guest of this host has the volume, too, and is connected. Its session serves both, and its record stays as it is.
          - With O(connections[].state=connected); then O(connections[].chap_user) is of no use.
        type: bool
        default: false
  scan_tries:
    description: How often to look for a disk that does not appear at once, after 1, 4, 9... seconds.
    type: int
    default: 5
  workers:
    description: How many to work on at once.
    type: int
    default: 4
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
      description: Whether something was, or in check mode would be, changed.
      type: bool
      returned: always
    changes:
      description: What was changed, of C(record), C(session), C(map), C(disk) and C(size).
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
      description: >-
        What a guest's disk is given, C(/dev/disk/by-id/dm-uuid-mpath-WWID) where there is a map of multipathd, otherwise the link below
        C(/dev/disk/by-path).
      type: str
      returned: success
    device:
      description: The kernel's device that RV(outcomes.path) leads to.
      type: str
      returned: success
    devices:
      description: The devices of all sessions.
      type: list
      elements: str
      returned: success
    multipath:
      description: The map that multipathd made over RV(outcomes.devices); empty without one.
      type: str
      returned: success
    serial:
      description: Unit serial number of the disk.
      type: str
      returned: when connected
    size:
      description: Bytes.
      type: int
      returned: when connected
    sessions:
      description: The sessions with C(number), C(portal) and C(group).
      type: list
      elements: dict
      returned: success
    failed_portals:
      description: Portals that could not be logged in to, and why, while another one could.
      type: list
      elements: str
      returned: when connected
    warnings:
      description: Why the volume has fewer paths than portals.
      type: list
      elements: str
      returned: when connected
    error:
      description: What went wrong with this one, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: InvalidInput
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 400
remedy:
  description: What to do about it.
  type: str
  returned: failure
  sample: Write 192.0.2.1:3260 or [2001:db8::1]:3260.
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
  sample: false
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.initiator import (
    STATES,
    Initiator,
    make_connections,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail


def argument_spec():
    """The module's options."""
    connection = {
        "volume_id": {"type": "str", "required": True},
        "state": {"type": "str", "choices": list(STATES), "default": "connected"},
        "iqn": {"type": "str", "required": True},
        "lun": {"type": "int", "required": True},
        "portals": {"type": "list", "elements": "str", "required": True},
        "chap_user": {"type": "str"},
        "chap_secret": {"type": "str", "no_log": True},
        "shared": {"type": "bool", "default": False},
    }
    return {
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
    args = module.params
    try:
        initiator = Initiator(wait_tries=args["scan_tries"])
        outcome = make_connections(args["connections"], initiator, args["workers"], module.check_mode)
    except Exception as error:
        fail(module, error)
    for volume_id, each in outcome["outcomes"].items():
        for text in each.get("warnings") or ():
            module.warn("volume %s: %s" % (volume_id, text))
    module.exit_json(
        changed=any_changed(outcome["outcomes"]),
        outcomes=outcome["outcomes"],
        diff={"before": outcome["before"], "after": outcome["after"]},
    )


if __name__ == "__main__":
    main()
