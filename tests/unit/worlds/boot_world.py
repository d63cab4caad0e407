# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Short words for boots with volumes: what storage_stage and the stages do, without any host."""

from __future__ import annotations

import typing as t

import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.request import ServerRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import BlockDevice
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.attachment import LAWS, State
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import exports, life, moving
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, builds, schedule
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot.planned import BootVolumeOptions
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import attach as volume_attach
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work as volume_work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage.attachments import Connector

from .volume_world import VolumeWorld
from .world import IMAGE, request

A = volume_tables.volume_attachments.c


def device(
    source: str = "volume", uuid: str | None = None, boot_index: int | None = None, **fields: t.Any
) -> BlockDevice:
    return BlockDevice(source_type=source, destination_type="volume", uuid=uuid, boot_index=boot_index, **fields)


def from_image(size: int = 5, **fields: t.Any) -> BlockDevice:
    return device("image", IMAGE.id, 0, volume_size=size, **fields)


def volume_request(
    name: str, *devices: BlockDevice, image: t.Any = None, count: int = 1, **fields: t.Any
) -> ServerRequest:
    """Without an image, unless one is given."""
    root = next((d for d in devices if d.boot_index == 0 and d.source_type == "image"), None)
    return request(
        name,
        count,
        image=image,
        root_image=IMAGE if root is not None and image is None else None,
        block_device_mapping=devices,
        **fields,
    )


class BootWorld(VolumeWorld):
    cross_az_attach = True
    aliases: t.Sequence[t.Mapping[str, t.Any]] = ()
    filters: t.Collection[str] | None = None  # the enabled ones
    moves = False  # volumes of guests may lose their connections
    migrates_live = False  # and two hosts may have them for a time
    down: t.Collection[str] = ()  # hosts that are forced down

    connection_info: t.Optional[t.Dict[str, t.Any]] = None  # of exports

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[tuple[str, str]] = []  # what storage hosts were asked to export (state, volume)
        self.initiators: dict[str, tuple[str, ...]] = {}  # volume -> whom its target lets in
        self.connections: set[tuple[str, str]] = set()  # (host, volume)
        self.credentials: dict[str, dict[str, str]] = {}  # volume -> initiator -> the run that knows its secret
        self.logged_in: dict[tuple[str, str], str] = {}  # (host, volume) -> the run whose secret it logged in with

    def accept(
        self, *requests: ServerRequest, run: str = "a", quotas: t.Any = None, **context: t.Any
    ) -> accept.Accepted:
        options = accept.AcceptOptions(
            networks=self.networks,
            quotas=quotas or {},
            volumes=BootVolumeOptions(self.settings(), self.cross_az_attach, self.aliases, self.filters),
        )
        with self.ledger.write() as tx:
            return accept.accept(tx.for_run(self.context(run, **context)), requests, options)

    # --- the storage side --------------------------------------------------------------------------------------------

    def place(self, run: str = "a") -> list[str]:
        with self.ledger.write() as tx:
            return life.bind_waiting(tx.for_run(self.context(run)), self.end)

    @staticmethod
    def end(host: str, facts: t.Any) -> Connector:
        return Connector(host, "iqn.test:" + host)

    def storage_round(
        self,
        run: str = "a",
        fail: t.Mapping[str, errors.BootflowError] | None = None,
        fail_export: errors.BootflowError | None = None,
    ) -> list[str]:
        """Scheduling of volumes, then what storage_stage does. :arg fail: by volume's id. Returns the storage hosts asked."""
        self.choose(run)
        with self.ledger.read() as tx:
            hosts = volume_work.hosts_with_work(tx.for_run(self.context(run)))
        for host in hosts:
            self.unexport(host, run)
            work = self.work_of(host, run)
            self.worked(host, {w.backend: self.storage[host].do(w, fail) for w in work}, run)
            self.export(host, run, fail_export)
        return hosts

    def unexport(self, host: str = "s1", run: str = "a", error: errors.BootflowError | None = None) -> list[str]:
        with self.ledger.write() as tx:
            found = exports.to_unexport(tx.for_run(self.context(run)), host)
        for export in found:
            self.asked.append(("absent" if not export.initiators else "present", export.volume_id))
            if error is None:
                still = {(h, v) for h, v in self.connections if v == export.volume_id}
                still = {c for c in still if "iqn.test:" + c[0] not in export.initiators}
                assert export.force or not (self.moves and still), "the target is in use"
                self.connections -= still if self.moves else set()
                self.initiators[export.volume_id] = export.initiators
                has = self.credentials.get(export.volume_id, {})
                self.credentials[export.volume_id] = {n: r for n, r in has.items() if n in export.initiators}
        with self.ledger.write() as tx:
            exports.unexported(tx.for_run(self.context(run)), host, {e.attachment_id: error for e in found})
        return [e.volume_id for e in found]

    def export(self, host: str = "s1", run: str = "a", error: errors.BootflowError | None = None) -> list[str]:
        with self.ledger.write() as tx:
            found = exports.to_export(tx.for_run(self.context(run)), host)
        results: dict[str, t.Any] = {}
        for export in found:
            self.asked.append(("present", export.volume_id))
            self.initiators[export.volume_id] = export.initiators
            has = self.credentials.get(export.volume_id, {})
            together = {e.initiator for e in found if e.volume_id == export.volume_id and e.login}
            kept = {n: r for n, r in has.items() if n in export.keep or n in together}
            self.credentials[export.volume_id] = {**kept, **({export.initiator: run} if export.login else {})}
            iqn = "iqn.2010-10.org.openstack:volume-" + export.volume_id
            results[export.attachment_id] = error or {
                "iqn": iqn,
                "lun": 0,
                "portals": ["192.0.2.1:3260"],
                "connection_info": self.connection_info,
            }
        with self.ledger.write() as tx:
            exports.exported(tx.for_run(self.context(run)), host, results)
        return [e.volume_id for e in found]

    # --- the compute side --------------------------------------------------------------------------------------------

    def connect(self, host: str, uuids: t.Iterable[str], run: str = "a") -> set[str]:
        """Returns the ids of the attachments that are connected now."""
        with self.ledger.read() as tx:
            rows = [r for rows in attachments.of_instances(tx, uuids).values() for r in rows]
        return self.connect_rows(host, rows, run)

    def connect_rows(self, host: str, rows: t.Sequence[t.Any], run: str) -> set[str]:
        with self.ledger.write() as tx:
            allowed = life.connecting(tx.for_run(self.context(run)), [r.id for r in rows])
            served = exports.served(tx, allowed)
        for row in rows:
            if row.id in allowed:
                assert row.initiator in self.initiators[row.volume_id]
                where = (host, row.volume_id)
                if row.id not in served:
                    self.logged_in[where] = run
                assert self.credentials[row.volume_id][row.initiator] == self.logged_in[where], "login refused"
                self.connections.add(where)
        with self.ledger.write() as tx:
            life.connected(tx.for_run(self.context(run)), {i: "/dev/disk/by-path/" + i for i in allowed})
        return allowed

    def disconnect(self, host: str, uuids: t.Iterable[str], run: str = "a") -> None:
        with self.ledger.write() as tx:
            rows = [r for rows in attachments.of_instances(tx, uuids).values() for r in rows if r.attached_host == host]
            shared = attachments.shared_on(tx, host, [r.volume_id for r in rows], list(uuids))
            self.connections -= {(host, r.volume_id) for r in rows if r.volume_id not in shared}
            life.disconnected(tx.for_run(self.context(run)), [r.id for r in rows])

    def leave(self, host: str, uuids: t.Iterable[str], run: str = "a") -> None:
        """``host`` is disconnected from what it has of these instances, which stay attached."""
        with self.ledger.read() as tx:
            rows = attachments.select(tx, instance_uuids=uuids, attached_host=host, connected=True)
            shared = attachments.shared_on(tx, host, [r.volume_id for r in rows], list(uuids))
        self.connections -= {(host, r.volume_id) for r in rows if r.volume_id not in shared}
        with self.ledger.write() as tx:
            moving.mark_disconnected(tx.for_run(self.context(run)), [r.id for r in rows])

    def build(self, host: str, until: str = "active", run: str = "a") -> list[str]:
        """The same as without volumes, which are connected in the stage block_device_mapping."""
        uuids: list[str] = []
        for stage in (builds.NETWORKING, builds.BLOCK_DEVICE_MAPPING, builds.SPAWNING):
            found, failed = self.begin(stage, host, run)
            assert not failed, failed
            uuids = [b.uuid for b in found]
            if stage is builds.BLOCK_DEVICE_MAPPING:
                self.connect(host, uuids, run)
            if stage.name == until:
                return uuids
            if stage is not builds.SPAWNING:
                assert self.done(stage, uuids, run) == []
        active, lost = self.spawned(host, uuids, run)
        assert sorted(active) == sorted(uuids) and not lost
        return uuids

    def boot_of(self, *requests: ServerRequest, until: str = "active", run: str = "a") -> list[str]:
        """Accepted, scheduled, volumes made and exported, built as far as ``until``. Returns the uuids."""
        uuids = self.accept(*requests, run=run).created
        self.schedule(run)
        self.place(run)
        self.storage_round(run)
        if until != "exported":
            for host in sorted({self.row(u).host for u in uuids} - {None}):
                self.build(host, until, run)
        return uuids

    def delete_all(self, *uuids: str, run: str = "d") -> tuple[list[str], list[dict[str, t.Any]]]:
        found = self.delete(run, uuids=list(uuids))
        for host in found.hosts:
            self.disconnect(host, uuids, run)
            self.removed(host, [r["uuid"] for r in self.of_host(host, run)], run)
        self.storage_round(run)
        return self.finish(run)

    def with_volumes(self, uuids: t.Iterable[str]) -> t.Collection[str]:
        with self.ledger.read() as tx:
            return set(attachments.of_instances(tx, uuids))

    def give_up(self, run: str = "a") -> list[str]:
        with self.ledger.write() as tx:
            return schedule.give_up(tx.for_run(self.context(run)), self.max_attempts)

    # --- attach and detach ---------------------------------------------------------------------------------------------

    def attach(self, *wishes: t.Any, run: str = "a") -> volume_attach.Begun:
        with self.ledger.write() as tx:
            return volume_attach.begin_attach(
                tx.for_run(self.context(run)), wishes, "default", self.end, self.cross_az_attach
            )

    def detach(self, *wishes: t.Any, run: str = "a") -> volume_attach.Begun:
        with self.ledger.write() as tx:
            return volume_attach.begin_detach(tx.for_run(self.context(run)), wishes, "default")

    # --- what is there -------------------------------------------------------------------------------------------------

    def attachment(self, volume: str) -> t.Any:
        """The latest of a volume, by name or id."""
        rows = self.rows(volume_tables.volume_attachments, A.volume_id == self.volume(volume).id)
        return sorted(rows, key=lambda r: (r.deleted == "", r.created_at))[-1]

    def ends(self, volume: str) -> tuple[str, str, str]:
        row = self.attachment(volume)
        return row.attach_status, row.export, row.connection

    def live_attachments(self) -> list[t.Any]:
        return self.rows(volume_tables.volume_attachments, A.deleted == "")

    def disks(self, uuid: str) -> list[dict[str, t.Any]]:
        c = tables.block_device_mappings.c
        rows = self.rows(tables.block_device_mappings, c.instance_uuid == uuid)
        return [r.disk for r in sorted(rows, key=lambda r: r.position)]

    # --- the laws --------------------------------------------------------------------------------------------------------

    def check(self, tx: Transaction) -> None:
        super().check(tx)
        volumes = {r.id: r for r in tx.execute(sa.select(volume_tables.volumes))}
        rows = list(tx.execute(sa.select(volume_tables.volume_attachments)))
        live = [r for r in rows if r.deleted == ""]
        for row in rows:
            if row.deleted != "":
                assert (row.export, row.connection, row.attach_status) == ("none", "none", "detached")
                continue
            assert row.connection == "none" or row.export != "none", "connected and not exported"
            volume = volumes[row.volume_id]
            assert volume.deleted == "", "a volume with an attachment is gone"
            if row.attach_status == "attached":
                allowed = ("in-use", "detaching", "extending", "error_extending", "reserved", "error") + (
                    ("attaching",) if volume.multiattach else ()
                )
                assert volume.status in allowed
                assert self.moves or row.export == row.connection == "done"
            state = State(row.attach_status, row.export, row.connection)
            assert [law for law, holds in LAWS.items() if not holds(state)] == []
        busy = {r.volume_id for r in live}
        for volume in volumes.values():
            if volume.deleted == "" and volume.status in ("attaching", "in-use", "detaching"):
                assert volume.id in busy, "%s is %s for nobody" % (volume.id, volume.status)
            if volume.deleted == "" and volume.status in ("available", "deleting"):
                assert volume.id not in busy, "%s is %s, and attached" % (volume.id, volume.status)
        for volume_id, names in self.initiators.items():
            if volume_id in volumes and not volumes[volume_id].multiattach:
                hosts = {r.attached_host for r in live if r.volume_id == volume_id}
                most = max(1, len(hosts) if self.migrates_live else 1)
                assert len(names) <= most, "%s is let in to by %s" % (volume_id, names)
                assert len({h for h, v in self.connections if v == volume_id}) <= most, "two hosts have %s" % volume_id
        for host, volume_id in self.connections:
            there = [r for r in live if (r.attached_host, r.volume_id) == (host, volume_id)]
            if host in self.down:
                continue
            assert [r for r in there if r.connection != "none"], "%s has %s, and nobody knows" % (host, volume_id)
