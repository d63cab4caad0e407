# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Short words for what the tests do with volumes: storage hosts that do as they are told, or fail, or are silent."""

from __future__ import annotations

import typing as t

import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.catalogue import VolumeTypes
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import VolumeType
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.options import (
    VolumeSchedulerOptions,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import accept, delete, requests, schedule
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import extend as volume_extension
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import snapshots as volume_snapshots
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work as volume_work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import backends as storage_backends
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import volume_views, volumes

from .world import IMAGE, World

GIB = 1024**3
FAST = VolumeType("fast", id="type-fast")
SSD = VolumeType("ssd", {"medium": "ssd"})
THICK = VolumeType("thick", {"provisioning:type": "thick"})
TYPES = VolumeTypes([FAST, SSD, THICK])
REBUILT = Image(
    name="cirros", id=IMAGE.id, disk_format="qcow2", checksum="1" * 64, properties={"hw_disk_bus": "scsi"}, min_disk=1
)


class StorageHost:
    """A storage host: what lies on its backends, by id, and a clock."""

    def __init__(self, name: str, **backends: t.Any) -> None:
        self.name = name
        self.clock = 100.0
        self.boot_id = "boot of %s" % name
        self.totals = dict(backends or {"lvm": 100})
        self.thin: set[str] = set()
        self.there: dict[str, dict[str, int]] = {b: {} for b in self.totals}  # id -> GB

    def pool_host(self, backend: str = "lvm") -> str:
        return "%s@%s#%s" % (self.name, backend, backend)

    def capacity(self, backend: str = "lvm") -> dict[str, t.Any]:
        self.clock += 1
        there = self.there[backend]
        total, used = self.totals[backend], sum(there.values())
        thin = backend in self.thin
        return {
            "total_capacity_gb": float(total),
            "free_capacity_gb": float(total if thin else total - used),
            "provisioned_capacity_gb": float(used),
            "thin_provisioning_support": thin,
            "thick_provisioning_support": not thin,
            "boot_id": self.boot_id,
            "read_at": self.clock,
            "volumes": [{"id": i, "size": size * GIB} for i, size in there.items()],
        }

    def do(
        self, work: volume_work.BackendWork, fail: t.Mapping[str, errors.BootflowError] | None = None
    ) -> volume_work.WorkResult:
        """What volume_lvm does."""
        there = self.there[work.backend]
        outcomes: dict[str, t.Any] = {}
        for wish in sorted(work.volumes, key=lambda w: w["state"] != "absent"):
            outcomes[wish["id"]] = self._one(there, work.backend, wish, (fail or {}).get(wish["id"]))
        capacity = self.capacity(work.backend)
        del capacity["volumes"]
        return volume_work.WorkResult(outcomes, capacity)

    def _one(
        self, there: dict[str, int], backend: str, wish: t.Mapping[str, t.Any], error: errors.BootflowError | None
    ) -> dict[str, t.Any]:
        item = wish["id"]
        size = wish.get("size_gb") or there.get(wish.get("source_volume", ""), 0)
        if wish["kind"] == "snapshot" and wish["state"] == "present":
            size = 0 if backend in self.thin else size + 1
        free = self.totals[backend] - sum(there.values()) + there.get(item, 0)
        if error is None and wish["state"] != "absent" and backend not in self.thin and size > free:
            error = errors.VolumeBackendAPIException(data="insufficient free space")
        if error is not None:
            return {"changed": False, "error": error.as_dict()}
        if wish["state"] == "absent":
            there.pop(item, None)
            return {"changed": True, "error": None, "action": "remove", "path": "", "size": 0}
        there[item] = size
        return {"changed": True, "error": None, "action": "create", "path": "/dev/x/" + item, "size": size * GIB or GIB}


class VolumeWorld(World):
    """With storage hosts. ``images`` are what the catalogue has now, by name and id."""

    def __init__(self, url: str, networks: t.Any = None) -> None:
        super().__init__(url, *([networks] if networks is not None else []))
        self.storage: dict[str, StorageHost] = {}
        self.images = {IMAGE.name: IMAGE, IMAGE.id: IMAGE}
        self.quotas: dict[str, t.Any] = {"volumes": -1, "gigabytes": -1, "snapshots": -1}
        self.no_snapshot_gb_quota = False

    # --- hosts -----------------------------------------------------------------------------------------------------

    def store(self, name: str = "s1", thin: bool = False, configuration: t.Any = None, **backends: int) -> StorageHost:
        """A storage host of so many GB each, that has reported."""
        host = StorageHost(name, **backends)
        if thin:
            host.thin = set(host.totals)
        self.storage[name] = host
        self.reported(name, **(configuration or {}))
        return host

    def reported(self, name: str = "s1", error: errors.BootflowError | None = None, **configuration: t.Any) -> None:
        host = self.storage[name]
        reports = [
            storage_backends.BackendReport(
                backend=b,
                pool=b,
                configuration={
                    "name": b,
                    "volume_backend_name": b,
                    "availability_zone": "nova",
                    "max_over_subscription_ratio": 1.0,
                    "provisioning": "thin" if b in host.thin else "thick",
                    **configuration,
                },
                capacity=None if error else host.capacity(b),
                error=error,
            )
            for b in host.totals
        ]
        with self.ledger.write() as tx:
            storage_backends.record_report(tx.for_run(self.context()), name, reports)

    def pools(self) -> dict[str, t.Any]:
        with self.ledger.read() as tx:
            return {s.host: s for s in storage_backends.pool_states(tx)}

    # --- the flow --------------------------------------------------------------------------------------------------

    def find_image(self, name: str) -> Image:
        if name not in self.images:
            raise errors.ImageNotFound(image_id=name)
        return self.images[name]

    def settings(self, **fields: t.Any) -> requests.VolumeSettings:
        values = {
            "types": TYPES,
            "image": self.find_image,
            "quotas": self.quotas,
            "no_snapshot_gb_quota": self.no_snapshot_gb_quota,
        }
        return requests.VolumeSettings(**{**values, **fields})

    def request(self, *entries: t.Any, run: str = "a", **settings: t.Any) -> accept.VolumeAccepted:
        with self.ledger.write() as tx:
            return accept.accept(tx.for_run(self.context(run)), entries, self.settings(**settings))

    def refused(self, *entries: t.Any, **how: t.Any) -> list[tuple[str, str]]:
        """(path, code) of every refusal."""
        try:
            self.request(*entries, **how)
        except errors.InvalidRequest as e:
            return [(r["path"], r["code"]) for r in e.errors]
        raise AssertionError("accepted")

    def volume_options(self, **fields: t.Any) -> VolumeSchedulerOptions:
        return VolumeSchedulerOptions(
            **{"now": self.time, "service_down_time": 1e9, "max_attempts": self.max_attempts, **fields}
        )

    def choose(self, run: str = "a", **options: t.Any) -> schedule.VolumeScheduled:
        with self.ledger.write() as tx:
            return schedule.schedule(tx.for_run(self.context(run)), self.volume_options(**options))

    def work_of(self, host: str = "s1", run: str = "a") -> list[volume_work.BackendWork]:
        with self.ledger.write() as tx:
            return volume_work.begin(tx.for_run(self.context(run)), host)

    def worked(
        self, host: str, results: t.Mapping[str, volume_work.WorkResult], run: str = "a"
    ) -> volume_work.Finished:
        with self.ledger.write() as tx:
            return volume_work.finish(tx.for_run(self.context(run)), host, results)

    def work(self, host: str = "s1", run: str = "a", **fail: errors.BootflowError) -> volume_work.Finished:
        """All that the host has to do. :arg fail: name of a volume -> how it fails."""
        ids = {self.volume(name).id: error for name, error in fail.items()}
        work = self.work_of(host, run)
        return self.worked(host, {w.backend: self.storage[host].do(w, ids) for w in work}, run)

    def silent(self, host: str = "s1", run: str = "a") -> volume_work.Finished:
        """The host does not answer."""
        error = errors.HostUnreachable(host=host, reason="no route")
        work = self.work_of(host, run)
        return self.worked(host, {w.backend: volume_work.WorkResult(error=error) for w in work}, run)

    def make(self, name: str = "v", size: int | None = 10, run: str = "a", **fields: t.Any) -> str:
        """A volume, made. Returns its id."""
        accepted = self.request({"name": name, "size": size, **fields}, run=run)
        (volume_id,) = accepted.created
        placed = self.choose(run).placed[volume_id]
        host = placed.host.partition("@")[0]
        assert volume_id in self.work(host, run).done
        return volume_id

    def remove(self, *names: str, run: str = "d", **how: t.Any) -> delete.VolumeDeleting:
        with self.ledger.write() as tx:
            how = {"missing_ok": True, **how}
            return delete.begin(tx.for_run(self.context(run)), names=list(names), project="default", **how)

    def removed_all(self, run: str = "d", **how: t.Any) -> tuple[list[t.Any], list[t.Any]]:
        with self.ledger.write() as tx:
            return delete.finish(tx.for_run(self.context(run)), **how)

    def extend(self, name: str, size: t.Any, run: str = "a", **options: t.Any) -> volume_extension.VolumeExtending:
        with self.ledger.write() as tx:
            return volume_extension.begin(
                tx.for_run(self.context(run)),
                [{"volume": name, "size": size}],
                self.settings(),
                self.volume_options(**options),
            )

    def snapshot(self, *entries: t.Any, run: str = "a") -> volume_snapshots.SnapshotsBegun:
        with self.ledger.write() as tx:
            return volume_snapshots.begin(tx.for_run(self.context(run)), entries, self.settings())

    # --- what is there ---------------------------------------------------------------------------------------------

    def volume(self, name: str) -> t.Any:
        """By name or id, the living one first."""
        c = volume_tables.volumes.c
        rows = self.rows(volume_tables.volumes, sa.or_(c.name == name, c.id == name))
        return sorted(rows, key=lambda r: r.deleted != "")[0]

    def status(self, name: str) -> str:
        return str(self.volume(name).status)

    def shown(self, name: str) -> dict[str, t.Any]:
        with self.ledger.read() as tx:
            return volume_views.volumes(tx, ids=[self.volume(name).id])[0]

    def pending_cleanups(self) -> set[tuple[str, str]]:
        return {(r.pool_host, r.item_id) for r in self.rows(volume_tables.volume_cleanups)}

    def events(self, volume_id: str) -> list[tuple[str, str | None, str | None]]:
        c = volume_tables.volume_events.c
        return [(r.event, r.host, r.result) for r in self.rows(volume_tables.volume_events, c.volume_id == volume_id)]

    def notified(self, volume_id: str) -> list[str]:
        c = volume_tables.volume_notifications.c
        return [r.event_type for r in self.rows(volume_tables.volume_notifications, c.volume_id == volume_id)]

    # --- the laws --------------------------------------------------------------------------------------------------

    def check(self, tx: Transaction) -> None:
        super().check(tx)
        rows = list(tx.execute(sa.select(volume_tables.volumes)))
        cleanups = {(r.pool_host, r.item_id) for r in tx.execute(sa.select(volume_tables.volume_cleanups))}
        live = {r.id: r for r in rows if r.deleted == volumes.LIVE}
        for row in rows:
            if row.id not in live:
                assert (row.status, row.pending_gb, row.made) == ("deleted", 0, False)
            elif row.status == "creating":
                assert row.run_id and not row.made
            elif row.status in ("available", "in-use"):
                assert row.made and row.pool_host and row.launched_at
        # Nothing lies on a host that nobody knows of.
        snapshots = {
            s.id: live[s.volume_id].pool_host
            for s in tx.execute(
                sa.select(volume_tables.volume_snapshots).where(volume_tables.volume_snapshots.c.deleted == "")
            )
        }
        for host in self.storage.values():
            for backend, there in host.there.items():
                pool_host = host.pool_host(backend)
                for item in there:
                    known = item in live and live[item].pool_host == pool_host
                    assert known or snapshots.get(item) == pool_host or (pool_host, item) in cleanups, (
                        "%s is lost on %s"
                        % (
                            item,
                            pool_host,
                        )
                    )
        pools = {s.host: s for s in storage_backends.pool_states(tx)}
        for host in self.storage.values():
            for backend in host.totals:
                pool = pools.get(host.pool_host(backend))
                if pool is not None and backend not in host.thin and pool.free_capacity_gb is not None:
                    assert pool.free_capacity_gb >= 0, "%s promised too much" % pool.host
