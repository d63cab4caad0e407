#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: watch
short_description: Write what follows from the lifecycle events of guests as they happen
version_added: "0.9.0"
description:
  - Keeps one connection to each compute host, listens to libvirt's events there, and lets the ledger follow by the rules of
    M(bootflow.compute.power_sync).
  - After an event the host reports the state of the guest. If it differs from the event's, the event came late and nothing follows.
  - At the beginning, and when a host is listened to again, all of its guests are compared, so that nothing is missed meanwhile.
  - A guest that has power although its instance is stopped is only reported, and the next C(power_sync) stops it; with O(sync) that runs at once.
  - A host that cannot be reached, or whose listener ends, is reported and tried again, after 1 s, 2 s, and so on up to 60 s. It never fails the task.
  - Hosts whose C(bootflow_handle_virt_lifecycle_events) is false are left out.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.run_limit]
attributes:
  check_mode: {support: full, details: It listens and reports what would be written. The ledger is not written.}
  idempotent: {support: full, details: What the ledger has already is not written again.}
options:
  seconds:
    description: How long to listen. V(0) is until it is ended. Read from the variable C(bootflow_watch_seconds), else 0.
    type: float
  write:
    description: Whether the ledger is written. Without it the ledger is not opened. Read from the variable C(bootflow_watch_write), else true.
    type: bool
  sync:
    description:
      - >-
        Whether the playbook C(power_sync) is run at once for hosts on which it has something to do: it stops guests that have power although their
        instances are stopped, and starts instances of a host that restarted. Read from the variable C(bootflow_watch_sync), else false.
      - It gets the command line of this C(ansible-playbook), and there is one run of it at a time, for one host or several. What it says is printed
        when it ends.
      - The task fails if this C(ansible-playbook) runs several playbooks, or asks for a password.
      - The option has no effect without O(write), or in check mode.
    type: bool
  events_file:
    description:
      - A file, absolute path, or a named pipe, to which each event is appended as a line of JSON. Read from the variable C(bootflow_watch_events_file).
      - >-
        A line has C(host), C(at) (seconds since the epoch), C(event), and C(uuid), C(power_state) and C(late) of the guest. C(event) is one of Started,
        Stopped, Paused, Resumed, Suspended, Crashed, Postcopy started and Migration completed; or, with C(uuid) null, Listening or Lost, for the host.
      - When no process reads the pipe any more, the task ends.
    type: path
notes:
  - Runs on the controller, inside the ansible-playbook process, with one process of C(ssh) for each host. It logs in as Ansible does, with a key, and needs no
    other privileges on the host than to read from libvirt.
  - On the host a Python program of a few kilobytes runs for as long as the connection lasts. It needs the Python binding of libvirt for the host's
    C(ansible_python_interpreter), or else C(/usr/bin/python3).
seealso:
  - module: bootflow.compute.power_sync
"""

EXAMPLES = r"""
---
- name: Listen for an hour
  bootflow.compute.watch:
    seconds: 3600
"""

RETURN = r"""
---
hosts:
  description: The hosts that were listened to.
  type: list
  elements: str
  returned: success
  sample: [kvm1, kvm2]
events:
  description: Number of events that were heard, including events of guests that are not instances.
  type: int
  returned: success
late:
  description: How many of them came late, or do not tell of a state.
  type: int
  returned: success
written:
  description: How many times an instance was written.
  type: int
  returned: success
stopped:
  description: How many times an instance was stopped in the ledger, as its guest was off.
  type: int
  returned: success
syncs:
  description: How many times C(power_sync) was run.
  type: int
  returned: success
"""
