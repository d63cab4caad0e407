# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Functions that open the ledger in tasks of hosts, and why."""

from __future__ import annotations

import typing as t

#: "FILE FUNCTION" below plugins/, or the beginning of it -> why.
EXCEPTIONS: t.Mapping[str, str] = {
    # What happens seldom, or must be read at this moment.
    "plugin_utils/run/lease.py ": "a run renews its lease while a task works for long",
    "plugin_utils/run/stages.py find_lost": "a task that is later than what was read is trusted asks what is the run's still",
    "plugin_utils/run/stages.py journal_tracebacks": "an unexpected error is written when it happens",
    "plugin_utils/run/firewall/port_filters.py ": "another run gave the host a newer document, or the controller's task gave none",
    "plugin_utils/run/ledger_action.py ": "opens for the functions that call it",
    "plugin_utils/operations/cleaning.py ": "what is removed from a host is read right before",
    "action/instance_remove.py ": "instances with volumes, claims of devices or earlier cleanups are read right before they are removed",
    "plugin_utils/operations/hard_reboot.py ": "late tasks, and guests that another run works on, are read when they are defined",
    "plugin_utils/operations/operation.py _log_in": "late tasks read the volumes of guests that they start",
    "plugin_utils/operations/rebuilds/": "a rebuild asks whether the instance is the run's before its disks are lost; volumes that storage hosts write again",
    "plugin_utils/guest_data/": "late tasks, and evacuations",
    "plugin_utils/builds/dhcp.py restore": "a network was made that the host did not have: once for each network of a host",
    "plugin_utils/builds/handover.py collect": "each 3 s one task writes the outcomes of all hosts",
    "plugin_utils/builds/build_work.py ": "builds with volumes write the events of their attachments as they happen",
    "plugin_utils/boot/host_builds.py ": "a build that waits for an image, for volumes or for its guest, or that fails",
    "plugin_utils/devices/interfaces.py ": "a late task, and the undo of an interface that a guest could not get",
    "plugin_utils/watch/host_report.py ": "a host that is asked alone writes its report: playbooks that ask all hosts write together",
    # Not done yet.
    "plugin_utils/operations/shelves/": "shelves and unshelves",
    "plugin_utils/moves/": "moves write and read as guests go",
    "plugin_utils/volumes/": "events of attachments are written as they happen",
    "plugin_utils/devices/attachments.py ": "events of attachments are written as they happen",
    "plugin_utils/settings/ledger_images.py ": "images of the ledger are looked up by name",
    "plugin_utils/backups/": "restores of backups",
    "plugin_utils/audit/": "an audit that cleans a host",
    "action/compute_purge.py ": "a host that leaves the fleet is read and written when it is empty",
    "action/storage_stage.py ": "storage hosts",
    "action/storage_report.py ": "storage hosts",
    "plugin_utils/relay/": "images that come to several hosts",
}


def reason(function: str) -> str | None:
    """Return why a function may open the ledger in the task of a host; None: it may not. :arg function: "FILE FUNCTION" below plugins/"""
    return next((why for beginning, why in EXCEPTIONS.items() if function.startswith(beginning)), None)
