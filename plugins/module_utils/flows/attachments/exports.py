# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The storage host's part of attachments: exports to create and to remove."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ...core import errors
from ...core.volumes import attachment, pool_hosts
from ...core.volumes.attachment import ON_THE_WAY
from ...core.volumes.names import normal_name
from ...ledger.compute import cleanups, history, nodes, runs
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, backends, volume_history
from ...ledger.storage.attachments import Attachment
from ...ledger.storage.volumes import PlacedVolume
from . import life


@dataclass(frozen=True)
class Export:
    """One attachment's target on a storage host, to create or to remove.

    ``configuration``: the backend's entry of the inventory at its last report (volume_group, target, portals, iqn_prefix,
    ...). ``initiator``: of this attachment. ``initiators``: all that the target has to admit afterwards, sorted; for
    to_export this one and the initiators of the volume's other attachments, for to_unexport only the others'; without any the
    target is removed (state absent). ``keep``: initiators that keep their credentials: the others, and this one if
    ``login`` is false, because its host is logged in for another guest. A target keeps its name, even if a new one would get another.
    """

    attachment_id: str
    volume_id: str
    backend: str  # the name
    configuration: t.Mapping[str, t.Any]
    initiator: str
    initiators: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    login: bool = True
    pool_host: str = ""  # host@backend#pool
    instance_uuid: str = ""
    mode: str = "rw"
    iqn: str = ""  # of the volume's target, where there is one
    users: int = 0  # attachments of the volume whose guests may have it open
    exported: bool = False  # the ledger knows of an export: one that failed gave no host the volume
    force: bool = False  # its sessions end with it: their host is forced down, and is to be cut off


def to_export(tx: Transaction, host: str) -> list[Export]:
    """The exports that storage host ``host`` has to create for this run; each is first recorded as begun."""
    runs.renew(tx)
    rows = attachments.to_export(tx, host)
    attachments.volumes_ready(tx, {r.volume_id for r in rows})
    rows = attachments.select(tx, ids=[r.id for r in rows]) if rows else []
    rows = [r for r in rows if attachment.EXPORT_BEGUN.admits(r.state)]
    return _exports(tx, attachments.apply(tx, rows, attachment.EXPORT_BEGUN, storage_host=host), and_itself=True)


def exported(tx: Transaction, host: str, results: t.Mapping[str, t.Mapping[str, t.Any] | errors.BootflowError]) -> None:
    """The outcome of exporting: {attachment_id: {"iqn", "lun", "portals", "connection_info"}, or the error}."""
    runs.renew(tx)
    rows = attachments.select(tx, ids=results, run_id=tx.run.id, lock=True)
    rows = [
        r for r in rows if attachment.EXPORTED.admits(r.state)
    ]  # others have to end meanwhile, and their targets too
    failed = _record_failures(tx, host, rows, results, "export")
    attachments.apply(tx, [r for r in failed if attachment.EXPORT_FAILED.admits(r.state)], attachment.EXPORT_FAILED)
    targets: dict[str, dict[str, t.Any]] = {}
    connectors = {r.id: r.connector for r in rows}
    for row_id, result in results.items():
        if not isinstance(result, errors.BootflowError):
            portals = [str(p) for p in result.get("portals") or ()]
            info = result.get("connection_info")
            targets[row_id] = {"iqn": result.get("iqn"), "lun": result.get("lun"), "portals": portals or None}
            targets[row_id].update(
                connection_info=info, connector=(info or {}).get("connector") or connectors.get(row_id)
            )
    attachments.apply(tx, [r for r in rows if r.id in targets], attachment.EXPORTED, targets)


def _record_failures(
    tx: Transaction, host: str, rows: t.Sequence[Attachment], results: t.Mapping[str, t.Any], event: str
) -> list[Attachment]:
    """Enter the errors among ``results``, in the journal of the change if it is one's. Returns the attachments with one."""
    failed = [r for r in rows if isinstance(results[r.id], errors.BootflowError)]
    if failed:
        volume_history.add_faults(tx, [volume_history.Fault(r.volume_id, results[r.id], host) for r in failed])
        noted = volume_history.note_changes(tx, {r.id: results[r.id] for r in failed})
        others = [(r.volume_id, host, results[r.id].in_full) for r in failed if r.id not in noted]
        volume_history.add_events(tx, others, event, history.ERROR)
    return failed


def to_unexport(tx: Transaction, host: str) -> list[Export]:
    """Return the exports that storage host ``host`` has to remove, without exports of other live runs. This run adopts them."""
    runs.renew(tx)
    rows = attachments.to_unexport(tx, host)
    attachments.take_ownership(tx, [r.id for r in rows])
    down = _forced_down(tx, rows)
    return [replace(e, force=e.attachment_id in down) for e in _exports(tx, rows, and_itself=False)]


def _forced_down(tx: Transaction, rows: t.Sequence[Attachment]) -> set[str]:
    """Return the attachments whose hosts are forced down, or were hosts of evacuated instances."""
    if not rows:
        return set()
    down = nodes.forced_down(tx)
    due = {
        c.instance_uuid for c in cleanups.of_instances(tx, sorted({r.instance_uuid for r in rows})) if c.host in down
    }
    return {r.id for r in rows if r.attached_host in down or r.instance_uuid in due}


def unexported(tx: Transaction, host: str, results: t.Mapping[str, errors.BootflowError | None]) -> None:
    """The outcome: {attachment_id: None, or the error}. Attachments that are to end are ended."""
    runs.renew(tx)
    rows = attachments.select(tx, ids=results, run_id=tx.run.id, lock=True)
    rows = [r for r in rows if attachment.UNEXPORTED.admits(r.state)]
    _record_failures(tx, host, rows, results, "unexport")
    life.unexported(tx, [r for r in rows if results[r.id] is None])


def _exports(tx: Transaction, rows: t.Sequence[Attachment], and_itself: bool) -> list[Export]:
    if not rows:
        return []
    known = attachments.volumes_of(tx, rows)
    placed_rows = [(r, t.cast(PlacedVolume, known[r.volume_id])) for r in rows if r.volume_id in known]
    pools = backends.at_pool_hosts(tx, sorted({v.pool_host for _r, v in placed_rows}))
    of_volume = attachments.exported_of(tx, known)
    result = []
    for row, volume in placed_rows:
        others_of_volume = [o for o in of_volume.get(volume.id, ()) if o.id != row.id and o.initiator]
        own = {str(row.initiator)} if and_itself else set()
        others = {normal_name(str(o.initiator)): str(o.initiator) for o in others_of_volume}
        strangers = {others[name] for name in set(others) - {normal_name(name) for name in own}}
        login = and_itself and not any(_serves(o, row) for o in others_of_volume)
        backend = pools.get(volume.pool_host)
        result.append(
            Export(
                attachment_id=row.id,
                volume_id=volume.id,
                backend=backend.backend
                if backend is not None
                else pool_hosts.extract_host(volume.pool_host).partition("@")[2],
                configuration=dict(backend.configuration) if backend is not None else {},
                initiator=row.initiator or "",
                initiators=tuple(sorted(strangers | own)),
                keep=tuple(sorted(strangers if login else others.values())),
                login=login,
                pool_host=volume.pool_host,
                instance_uuid=row.instance_uuid,
                mode=row.attach_mode,
                users=sum(o.connection != attachment.NONE for o in others_of_volume)
                + (row.connection != attachment.NONE),
                exported=bool(row.iqn or row.connection_info),
                iqn=next((o.iqn for o in (row, *others_of_volume) if o.iqn), ""),
            )
        )
    return result


def _serves(other: Attachment, row: Attachment) -> bool:
    """Whether the host of ``row`` is already logged in for ``other``, with credentials that this run does not know.

    A volume that one run attaches to several guests of a host has the same credentials.
    """
    new = other.attach_status in ON_THE_WAY or other.connection != attachment.DONE
    begun_together = other.run_id == row.run_id and new
    same = normal_name(other.initiator or "") == normal_name(row.initiator or "")
    return bool(same and other.connection != attachment.NONE and not begun_together)


def served(tx: Transaction, ids: t.Iterable[str]) -> set[str]:
    """The attachments whose hosts are already logged in for another guest, and share that session."""
    rows = attachments.select(tx, ids=ids)
    if not rows:
        return set()
    others = attachments.select(tx, volume_ids={r.volume_id for r in rows}, connected=True)
    return {r.id for r in rows if any(o.id != r.id and o.volume_id == r.volume_id and _serves(o, r) for o in others)}
