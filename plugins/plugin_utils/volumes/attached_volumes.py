# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The compute host's part of attachments: volumes connected and disconnected on the current host, and as a guest's disks.

The variable bootflow_volume_attach of the host selects the connector (core.volumes.connectors).
"""

from __future__ import annotations

import contextlib
import functools
import typing as t
from dataclasses import dataclass, replace

from ...module_utils.core import errors
from ...module_utils.core.amounts import GIB
from ...module_utils.core.disks.block_devices import PlannedDisk
from ...module_utils.core.guest.devices import volume_source
from ...module_utils.core.guest.domain.element import to_text
from ...module_utils.core.settings.hosts import HOST
from ...module_utils.core.volumes import names
from ...module_utils.core.volumes.attachment import DONE, NONE, ON_THE_WAY
from ...module_utils.core.volumes.connectors.initiator import host_initiator
from ...module_utils.core.volumes.connectors.registry import CONNECTOR_TYPES, connector_type
from ...module_utils.core.volumes.states import ATTACHED, DETACHED
from ...module_utils.flows.attachments import exports, life, migration_attachments, moving, swaps
from ...module_utils.ledger.compute import instances, moves, nodes
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import attachments, volumes
from ...module_utils.ledger.storage.attachments import Attachment, Connector
from ...module_utils.ledger.storage.volumes import VolumeRow
from ..run import host_variables
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from .connectors.host_connector import chap
from .connectors.registry import HOST_CONNECTORS, HOST_LOGINS, RECONNECTED

Problems = t.Dict[str, errors.BootflowError]


@dataclass(frozen=True)
class Attached:
    """A live attachment and its volume, as rows of the ledger."""

    row: Attachment
    volume: VolumeRow | None  # None: deleted meanwhile

    @property
    def id(self) -> str:
        return str(self.row.id)

    @property
    def volume_id(self) -> str:
        return str(self.row.volume_id)

    @property
    def size_gb(self) -> int:
        return t.cast(VolumeRow, self.volume).size

    @property
    def alone(self) -> bool:
        """Whether its guest logs in by itself, with a separate initiator and secret."""
        return bool(self.row.initiator == names.attachment_initiator(self.id))

    @property
    def secret(self) -> str:
        """The name of its secret in libvirt."""
        if not self.row.iqn:
            return ""
        iqn = str(self.row.iqn)
        return names.attachment_secret(iqn, self.id) if self.alone else iqn

    @property
    def is_exported(self) -> bool:
        """Whether the row says how to reach the volume."""
        return bool(self.row.iqn or self.row.connection_info)

    @property
    def key(self) -> str:
        """Its key in a module's outcomes."""
        return HOST_CONNECTORS[connector_type(self.row.connector).name].key(self)


def load(tx: Transaction, uuids: t.Collection[str]) -> dict[str, list[Attached]]:
    """uuid -> its live attachments by mountpoint; instances without any are left out."""
    return {uuid: of_rows(tx, rows) for uuid, rows in attachments.of_instances(tx, uuids).items()}


def of_guests(tx: Transaction, uuids: t.Collection[str]) -> tuple[dict[str, list[Attached]], set[str], Problems]:
    """Find the attachments that guests have, to define them again or to start them.

    Returns uuid -> its attachments; the ids of attachments that its guest does not have, as a dead run left them half made, or they only
    have to end; and uuid -> why it is to be left alone: another run attaches, detaches or swaps one of its volumes.
    """
    by_instance = load(tx, uuids)
    without = {a.id for group in by_instance.values() for a in group if not _is_had(a.row)}
    busy: Problems = swaps.refuse_open(tx, uuids)
    for uuid, group in by_instance.items():
        live_attachments = [
            a for a in group if a.volume is not None and (a.row.attach_status, a.row.connection) != (DETACHED, NONE)
        ]
        for attached in live_attachments:
            try:
                attachments.check_not_locked(tx, t.cast(VolumeRow, attached.volume), [attached.row])
            except errors.VolumeLocked as e:
                busy.setdefault(uuid, e)
    return by_instance, without, busy


def _is_had(row: Attachment) -> bool:
    """Whether a guest has the volume, or its host at least is connected to it for that."""
    return row.attach_status == ATTACHED or (row.attach_status in ON_THE_WAY and row.connection == DONE)


def of_rows(tx: Transaction, rows: t.Sequence[Attachment]) -> list[Attached]:
    """These attachments with their volumes."""
    ids = sorted({r.volume_id for r in rows})
    known = {v.id: v for v in volumes.select(tx, ids=ids)} if ids else {}
    return [Attached(r, known.get(r.volume_id)) for r in rows]


# --- the host -----------------------------------------------------------------------------------------------------------


def connectors_of(
    hostvars: t.Mapping[str, t.Mapping[str, t.Any]], hosts: t.Iterable[str]
) -> t.Callable[[str, t.Mapping[str, t.Any]], Connector]:
    """connector_of() for these hosts. Their settings are read now, so that no transaction waits for a template.

    :raises InvalidInput: bootflow_volume_attach of a host. The returned function raises Conflict for any other host.
    """
    kinds = {h: HOST.read(host_variables.of_host(hostvars, h) if h in hostvars else {}).volume_attach for h in hosts}

    def connector(host: str, facts: t.Mapping[str, t.Any]) -> Connector:
        if host not in kinds:
            raise errors.Conflict(
                message="Host %s got one of the instances while this run began." % host, remedy="Run it again."
            )
        return connector_of(host, kinds[host], facts)

    return connector


def connector_of(host: str, kind: str, facts: t.Mapping[str, t.Any]) -> Connector:
    """The connector of ``host``: volumes of its instances are exported to this initiator. :arg facts: the host's report"""
    return Connector(host, host_initiator(host, facts.get("initiator")), kind)


def check_host(host: str, connector: str | None, facts: t.Mapping[str, t.Any]) -> None:
    """:raises HostLacksHardware: the host cannot use this connector; another host may."""
    if connector is not None:
        CONNECTOR_TYPES[connector].check_host(host, facts)


# --- as a guest's disk --------------------------------------------------------------------------------------------------


def attached_of(disk: t.Mapping[str, t.Any], candidates: t.Iterable[Attached]) -> Attached | None:
    """The attachment of a planned disk: of its volume, or if it has none yet, the one with its device name."""
    for key, value in (("volume_id", disk.get("volume_id")), ("mountpoint", disk.get("device_name"))):
        for candidate in candidates:
            if value and getattr(candidate.row, key) == value:
                return candidate
    return None


def guest_disk(disk: PlannedDisk, attached: Attached | None) -> PlannedDisk:
    """A planned disk of kind volume with its location on the host (raw, cache none, io native, serial).

    In a plan, before the export, the source has the values known so far.
    """
    if attached is None:
        return disk.placed(names.device_to_come(disk.volume_id or disk.name), "raw", "block", cache="none", io="native")
    row, volume = attached.row, attached.volume
    more: dict[str, t.Any] = {
        "volume_id": row.volume_id,
        "serial": row.volume_id,
        "cache": "none",
        "readonly": disk.readonly or row.attach_mode == "ro",
        "shareable": bool(volume is not None and volume.multiattach),
    }
    place = connector_type(row.connector).disk(row, lambda: chap(attached).user, attached.secret)
    return disk.placed(**place, **more)


# --- connecting -------------------------------------------------------------------------------------------------------


def connect(
    action: LedgerAction, ledger: Ledger, to_connect: t.Sequence[Attached], facts: t.Mapping[str, t.Any]
) -> Problems:
    """Connect these on the current host, journaled. Returns attachment id -> why it failed."""
    problems: Problems = {}
    host = action.task_vars["inventory_hostname"]
    usable = []
    for attached in to_connect:
        try:
            check_host(host, attached.row.connector, facts)
            usable.append(attached)
        except errors.BootflowError as e:
            problems[attached.id] = e
    allowed = ledger.transact(life.connecting, [a.id for a in usable]) if usable else set()
    for attached in usable:
        if attached.id not in allowed:
            problems[attached.id] = errors.InvalidVolume(
                reason="volume %s is not exported to %s for this run" % (attached.volume_id, host),
                remedy="Run the playbook again.",
            )
    usable = [a for a in usable if a.id in allowed]
    served = ledger.inspect(exports.served, sorted(allowed)) if allowed else set()
    paths: dict[str, str | None] = {}
    for name, connector in HOST_CONNECTORS.items():
        group = [a for a in usable if a.row.connector == name]
        done, failed = _done(action, group, functools.partial(connector.connect, action, served=served))
        problems.update(failed)
        paths.update({i: outcome.get("path") if connector.kind.host_logs_in else None for i, outcome in done.items()})
    if paths:
        ledger.transact(life.connected, paths)
    return problems


def disconnect(
    action: LedgerAction,
    ledger: Ledger,
    to_disconnect: t.Sequence[Attached],
    shared: t.Collection[str],
    ended: t.Callable[[Transaction, t.Iterable[str]], None] = life.disconnected,
) -> Problems:
    """Disconnect these from the current host, journaled. Returns attachment id -> why it failed.

    A disk in use is not removed (CVE-2023-2088); it stays connected and exported.

    :arg shared: volumes that another instance also has here: its disk and secret stay. :arg ended: writes the attachments that are disconnected
    """
    problems: Problems = {}
    free = []
    for name, connector in HOST_CONNECTORS.items():
        group = [a for a in to_disconnect if a.row.connector == name]
        begun = [a for a in group if a.is_exported and a.row.connection != NONE]
        touched = [a for a in begun if a.alone or a.volume_id not in shared]
        done, failed = _done(action, touched, functools.partial(connector.disconnect, action))
        free += [a for a in group if a not in touched or a.id in done]
        problems.update(failed)
    free += [a for a in to_disconnect if a.row.connector not in HOST_CONNECTORS]
    if free:
        ledger.transact(ended, [a.id for a in free])
    return problems


def leave_host(action: LedgerAction, uuids: t.Collection[str]) -> Problems:
    """Disconnect the current host from the volumes of these instances, whose guests are off, and which have them somewhere else next.

    Returns uuid -> why that failed.
    """
    if not uuids:
        return {}
    host = action.task_vars["inventory_hostname"]
    with contextlib.closing(action.open_ledger()) as ledger:
        volumes = ledger.inspect(connected_to, host, uuids)
        if not volumes:
            return {}
        shared = ledger.inspect(shared_on_host, host, volumes)
        problems = disconnect(action, ledger, volumes, shared, moving.mark_disconnected)
        return {a.row.instance_uuid: problems[a.id] for a in volumes if a.id in problems}


def forget(action: LedgerAction, ledger: Ledger, uuids: t.Collection[str]) -> Problems:
    """Rid the current host of what is left of volumes that went to another host with these instances while this one could not be asked.

    The ledger has them there already. Returns uuid -> why that failed.
    """
    host = action.task_vars["inventory_hostname"]
    leftovers, shared = ledger.inspect(_select_elsewhere, host, uuids) if uuids else ([], set())
    if not leftovers:
        return {}
    chosen = HOST.read(host_variables.of_host(action.task_vars["hostvars"], host)).volume_attach
    free = [a for a in leftovers if a.alone or a.volume_id not in shared]
    to_disconnect = [
        replace(a, row=a.row._replace(connector=(a.row.connection_info or {}).get("connector") or chosen)) for a in free
    ]
    problems: Problems = {}
    for name, connector in HOST_CONNECTORS.items():
        group = [a for a in to_disconnect if a.row.connector == name]
        problems.update(_done(action, group, functools.partial(connector.disconnect, action))[1])
    return {a.row.instance_uuid: problems[a.id] for a in to_disconnect if a.id in problems}


def _select_elsewhere(tx: Transaction, host: str, uuids: t.Collection[str]) -> tuple[list[Attached], set[str]]:
    """Find the volumes that these instances have on another host than ``host``, or from which it was cut off; and the shared ones that others have here."""
    rows = attachments.select(tx, instance_uuids=uuids)
    local_keys = {(r.instance_uuid, r.volume_id) for r in rows if r.attached_host == host and r.connection != NONE}
    rows = [
        r
        for r in rows
        if (r.iqn or r.connection_info)
        and (r.attach_status, r.attached_host == host) in ((ATTACHED, False), (DETACHED, True))
    ]
    rows = [
        r for r in rows if (r.instance_uuid, r.volume_id) not in local_keys
    ]  # those are disconnected as they are known
    return of_rows(tx, rows), attachments.shared_on(tx, host, [r.volume_id for r in rows], uuids)


def connected_to(tx: Transaction, host: str, uuids: t.Collection[str]) -> list[Attached]:
    """The volumes that ``host`` is connected to, or may be, for these instances, also where those have them on another host, too."""
    return of_rows(tx, attachments.select(tx, instance_uuids=uuids, attached_host=host, connected=True))


def source_of(row: Attachment) -> str:
    """Where the guest's host has the volume, as its connector has it; "" if it is not known."""
    return connector_type(row.connector).source_of(row)


def sources_on(tx: Transaction, host: str, uuids: t.Collection[str] | None = None) -> dict[str, dict[str, str]]:
    """uuid -> id of the volume -> source_of() it on ``host``, of volumes that it is connected to. :arg uuids: of instances; by default all"""
    if uuids is not None and not uuids:
        return {}
    return sources_of_rows(attachments.select(tx, instance_uuids=uuids, attached_host=host, connected=True))


def sources_of_rows(rows: t.Iterable[Attachment]) -> dict[str, dict[str, str]]:
    """Return what sources_on() does, of these attachments to one host."""
    sources: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.connection == DONE and source_of(row):
            sources.setdefault(row.instance_uuid, {})[row.volume_id] = source_of(row)
    return sources


def sources_by_host(tx: Transaction) -> dict[str, dict[str, dict[str, str]]]:
    """host -> sources_on() it, of all hosts that are connected to volumes."""
    sources: dict[str, dict[str, dict[str, str]]] = {}
    for row in attachments.select(tx, connected=True):
        if row.connection == DONE and row.attached_host is not None and source_of(row):
            sources.setdefault(row.attached_host, {}).setdefault(row.instance_uuid, {})[row.volume_id] = source_of(row)
    return sources


def shared_on_host(tx: Transaction, host: str, to_disconnect: t.Sequence[Attached]) -> set[str]:
    """Find the volumes that stay on ``host`` for other instances. One by one: a volume that two of the instances have
    stays for the last of them.
    """
    shared: set[str] = set()
    leaving: dict[str, set[str]] = {}
    for attached in to_disconnect:
        leaving.setdefault(attached.volume_id, set()).add(attached.row.instance_uuid)
    for volume_id, uuids in leaving.items():
        shared |= attachments.shared_on(tx, host, [volume_id], sorted(uuids))
    return shared


def come_to_host(action: LedgerAction, uuids: t.Collection[str]) -> tuple[set[str], Problems]:
    """Connect the current host to the volumes that these instances bring along, or lack since a fault.

    Returns the attachments that are connected now, and uuid -> why that failed.
    """
    if not uuids:
        return set(), {}
    host = action.task_vars["inventory_hostname"]
    with contextlib.closing(action.open_ledger()) as ledger:
        to_connect, facts = ledger.inspect(_select_to_connect, host, uuids)
        let_in = ledger.inspect(moving.open_exports, uuids)
        ready = [a for a in to_connect if a.row.export == DONE]
        problems = connect(action, ledger, ready, facts) if ready else {}
    for attached in to_connect:
        if attached not in ready:
            problems[attached.id] = let_in.get(attached.row.instance_uuid) or errors.InvalidVolume(
                reason="volume %s is not exported to %s" % (attached.volume_id, host),
                remedy="volume_list shows why; then start the instance, or reboot it hard.",
            )
    failed = {a.row.instance_uuid: problems[a.id] for a in to_connect if a.id in problems}
    return {a.id for a in to_connect if a.id not in problems}, failed


def connect_before_arrival(action: LedgerAction, uuids: t.Collection[str]) -> dict[str, errors.BootflowError]:
    """Connect the current host to the volumes of these instances, whose guests run on other hosts still and are to come here.

    Returns uuid -> why that failed.
    """
    host = action.task_vars["inventory_hostname"]
    with contextlib.closing(action.open_ledger()) as ledger:
        to_connect, facts = ledger.inspect(_select_on_destination, host, uuids) if uuids else ([], {})
        ready = [a for a in to_connect if a.row.export == DONE]
        problems = connect(action, ledger, ready, facts) if ready else {}
    for attached in to_connect:
        if attached not in ready:
            problems[attached.id] = errors.ISCSITargetAttachFailed(
                volume_id=attached.volume_id, remedy="volume_list shows why it is not exported to %s." % host
            )
    return {a.row.instance_uuid: problems[a.id] for a in to_connect if a.id in problems}


def disks_on_destination(tx: Transaction, host: str, uuids: t.Collection[str]) -> dict[str, dict[str, str]]:
    """uuid -> id of the volume -> ``<disk>`` with its source on ``host``, which these instances' guests go to. With CHAP users."""
    disks: dict[str, dict[str, str]] = {}
    for attached in of_rows(tx, migration_attachments.on_destination(tx, host, uuids)):
        if attached.row.connection == DONE:
            disks.setdefault(attached.row.instance_uuid, {})[attached.volume_id] = disk_xml(attached)
    return disks


def _select_on_destination(
    tx: Transaction, host: str, uuids: t.Collection[str]
) -> tuple[list[Attached], t.Mapping[str, t.Any]]:
    to_connect = of_rows(tx, migration_attachments.on_destination(tx, host, uuids))
    move = (
        next(iter(moves.open_of(tx, {a.row.instance_uuid for a in to_connect}).values()), None) if to_connect else None
    )
    return to_connect, nodes.node_facts(tx, host, move.dest_node) if move is not None else {}


def disk_xml(attached: Attached) -> str:
    """libvirt's ``<disk>`` of the volume where it is connected, without what the guest sees of it."""
    disk = guest_disk(PlannedDisk(attached.volume_id, "volume", "", ""), attached)
    return to_text(volume_source(disk).to_xml())


def _select_to_connect(
    tx: Transaction, host: str, uuids: t.Collection[str]
) -> tuple[list[Attached], t.Mapping[str, t.Any]]:
    to_connect = of_rows(tx, moving.attachments_to_connect(tx, host, uuids))
    rows = instances.select_live(tx, uuids=sorted({a.row.instance_uuid for a in to_connect})) if to_connect else []
    node = next((str(r.node) for r in rows if r.host == host), None)
    return to_connect, nodes.node_facts(tx, host, node) if node is not None else {}


def reconnect(action: LedgerAction, to_reconnect: t.Sequence[Attached]) -> Problems:
    """Log the current host in to these again if it is not, with the credentials of its records. Volumes that no guest has are left alone.

    Where guests log in to targets there is nothing to do: libvirt has the secrets. Secrets of Ceph are set again.
    """
    host = action.task_vars["inventory_hostname"]
    connection_errors = {
        a.id: errors.InvalidVolume(
            reason="volume %s is not connected to host %s since a fault" % (a.volume_id, host),
            remedy="Start the instance, or reboot it hard: that connects it."
            if a.row.connection != DONE
            else "Host %s still has the instance, and is cleaned when it reports." % a.row.attached_host,
        )
        for a in to_reconnect
        if a.row.attach_status == ATTACHED and (a.row.attached_host, a.row.connection) != (host, DONE)
    }
    problems: Problems = {**connection_errors}
    for name, connector in RECONNECTED.items():
        group = [
            a for a in to_reconnect if a.row.connector == name and a.id not in connection_errors and _is_had(a.row)
        ]
        log_in = functools.partial(connector.connect, action, served=[a.id for a in group])
        problems = {**problems, **_done(action, group, log_in)[1]}
    return problems


def rescan(action: LedgerAction, to_rescan: t.Sequence[Attached]) -> Problems:
    """Update the size of these on the host; QEMU does this by itself when the guest's disk is resized."""
    problems: Problems = {}
    for name, connector in HOST_LOGINS.items():
        group = {a.id: a for a in to_rescan if a.row.connector == name}
        done, failed = _done(action, list(group.values()), functools.partial(connector.rescan, action))
        small = {i: _too_small(outcome, group[i]) for i, outcome in done.items()}
        problems = {**problems, **failed, **{i: problem for i, problem in small.items() if problem is not None}}
    return problems


def _too_small(outcome: t.Mapping[str, t.Any], attached: Attached) -> errors.BootflowError | None:
    """The error if the target still offers the old size."""
    size = int(outcome.get("size") or 0)
    if size >= attached.size_gb * GIB:
        return None
    return errors.RemoteError(
        reason="volume %s has %d bytes on the compute host and %d GiB in the ledger"
        % (attached.volume_id, size, attached.size_gb),
        remedy="Make the target read the size of the volume again, or detach the volume and attach it.",
    )


def _done(
    action: LedgerAction, group: t.Sequence[Attached], work: t.Callable[[t.Sequence[Attached]], t.Mapping[str, t.Any]]
) -> tuple[dict[str, t.Mapping[str, t.Any]], Problems]:
    """The good outcomes of ``work`` with these, and why the others failed, each by the id of the attachment."""
    try:
        outcomes = work(group) if group else {}
    except errors.BootflowError as e:
        return {}, {a.id: e for a in group}
    except Exception as e:  # the attachments fail, never the play
        return {}, dict.fromkeys((a.id for a in group), action.unexpected(e))
    problems = item_errors({"outcomes": outcomes}, {a.key for a in group})
    bad = {a.id: problems[a.key] for a in group if a.key in problems}
    return {a.id: outcomes[a.key] for a in group if a.id not in bad}, bad
