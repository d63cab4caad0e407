# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests of an operation, and their volumes, on their way from the controller's task to the hosts' tasks.

The transaction that begins with the instances reads them for all hosts: a host's task reads a file in the folder of this ansible-playbook process
(mode 0700, gone with it) instead of opening the ledger. What was read is trusted for a while only, see LEAST_TRUSTED: an instance that is deleted
meanwhile is found when the operation ends. A later task, or one of a guest that was left out here, asks the ledger.

A stop loads nothing of this: builds and volumes are imported where there are some.
"""

from __future__ import annotations

import json
import types
import typing as t

from ...module_utils.ledger.storage.attachments import Attachment
from ...module_utils.ledger.storage.volumes import VolumeRow
from ..run.ledger_action import LedgerAction
from ..run.run_lease import LEAST_TRUSTED
from ..run.stage_results import StageResults, folder_of, path_of, write_whole

if t.TYPE_CHECKING:
    from ...module_utils.flows.boot.builds import Build
    from ..volumes.attached_volumes import Attached

GIVEN = "guests"
OPERATION = "instance_operation"  # the action of most operations
#: All that a host needs of a volume.
VOLUME_FIELDS = ("id", "size", "multiattach", "pool_host")


class Guests(t.NamedTuple):
    """Guests as builds, and their live attachments by the uuids of instances."""

    builds: list[Build]
    volumes: dict[str, list[Attached]]


def give(action: LedgerAction, hosts: t.Mapping[str, str], guests: Guests, at: float) -> None:
    """Hand the guests to the next tasks of their hosts.

    :arg hosts: uuid -> host, of the instances of the operation. :arg at: when it began, before the ledger was read, in seconds since the epoch
    """
    from ..builds import handover

    folder = folder_of(action)
    builds = {b.uuid: b for b in guests.builds}
    uuids_by_host: dict[str, list[str]] = {}
    for uuid in {*builds, *guests.volumes}:
        uuids_by_host.setdefault(hosts[uuid], []).append(uuid)
    made: dict[tuple[str, t.Any], str] = {}
    for host, uuids in uuids_by_host.items():
        known = [builds[u] for u in uuids if u in builds]
        how = {
            "at": at,
            "uuids": uuids,
            "of_builds": {b.uuid: {i: list(a) for i, a in b.volumes.items()} for b in known if b.volumes},
            "volumes": {u: [_as_data(a) for a in guests.volumes[u]] for u in uuids if u in guests.volumes},
        }
        write_whole(path_of(folder, host, GIVEN), "%s\n%s" % (json.dumps(how), handover.to_text(known, made)))


def find(action: LedgerAction, uuids: t.Collection[str], family: str = OPERATION) -> Guests | None:
    """Return these guests as they were handed to the current host; None: not all of them were, or too long ago.

    :arg family: the name of the action whose stage begin handed them over
    """
    path = path_of(folder_of(action), action.task_vars["inventory_hostname"], GIVEN)
    try:
        first, _newline, text = path.read_text().partition("\n")
    except FileNotFoundError:
        return None
    how = json.loads(first)
    begun = StageResults(action, family).begun()
    if begun.get("begun_at") != how["at"] or not is_fresh(action, how["at"]) or not set(uuids) <= set(how["uuids"]):
        return None
    from ..builds import handover

    builds = [b for b in handover.from_text(text) if b.uuid in uuids]
    for build in builds:
        build.volumes = {i: Attachment(*row) for i, row in how["of_builds"].get(build.uuid, {}).items()}
    volumes = {u: [_from_data(d) for d in data] for u, data in how["volumes"].items() if u in uuids}
    return Guests(builds, volumes)


def is_fresh(action: LedgerAction, at: float) -> bool:
    """Whether what was read in the ledger at this moment (seconds since the epoch) is trusted still."""
    return action.context().now - at <= LEAST_TRUSTED


def _as_data(attached: Attached) -> dict[str, t.Any]:
    volume = attached.volume
    fields = None if volume is None else {name: getattr(volume, name) for name in VOLUME_FIELDS}
    return {"row": list(attached.row), "volume": fields}


def _from_data(data: t.Mapping[str, t.Any]) -> Attached:
    from ..volumes.attached_volumes import Attached

    fields = data["volume"]
    volume = None if fields is None else t.cast(VolumeRow, types.SimpleNamespace(**fields))
    return Attached(Attachment(*data["row"]), volume)
