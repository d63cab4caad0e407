# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of instances: images of their root disks in a store. source: Nova's createImage"""

from __future__ import annotations

import typing as t

from ....module_utils.core import errors
from ....module_utils.core.images import snapshots, volume_backed
from ....module_utils.core.images.image import StoredImage
from ....module_utils.core.images.quiesce import NO, REQUIRE
from ....module_utils.core.images.snapshots import SnapshotRequest
from ....module_utils.core.images.stores.store_kind import ImageStore
from ....module_utils.core.instances.operation_outcomes import Answers, Item
from ....module_utils.core.settings.images import IMAGE_WORK
from ....module_utils.core.settings.run import TIME_LIMITS
from ....module_utils.core.settings.volumes import VOLUME
from ....module_utils.core.volumes.catalogue import read_volume_types
from ....module_utils.flows.images import host_images
from ....module_utils.flows.instances import snapshots as flow
from ....module_utils.flows.instances import volume_backed as volume_backed_flow
from ....module_utils.flows.instances.operation import Begun, Operation, Selection
from ....module_utils.flows.volumes.requests import VolumeSettings
from ....module_utils.ledger.compute.instances import Instance
from ....module_utils.ledger.db.transaction import Transaction
from ...images.host_images import AT_ONCE, HostImages
from ...run import host_settings, inventory_hosts
from ...run.ledger_action import LedgerAction, read_settings
from ...run.results import item_errors
from ...settings.ledger_images import stores_of
from ..work import Items, Problems, Work, uuids_of

MODULE = "instance_snapshot"
STILL = 60.0  # seconds for which file systems stand still at most while storage hosts make snapshots


class Snapshot(Work):
    """Makes an image of each instance."""

    reads_disks = True

    settles = True

    _request: SnapshotRequest
    _volume_settings: VolumeSettings | None = None  # of snapshots of volumes; None: there are none
    _storage_hosts: t.Sequence[str] = ()  # that make snapshots of volumes
    _images: dict[str, StoredImage]
    _failed_images: t.Sequence[str] = ()
    _files_to_remove: t.Sequence[str] = ()  # of deleted images
    _addresses: t.Mapping[str, str]  # of the hosts that give files to the host of the store

    # --- begin --------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """:raises InvalidInput: the name is missing, or what it or a property has. :raises ImageStoreNotFound: the store is not known"""
        options = self.action.options
        self._request = snapshots.read_request(
            options["snapshot_name"],
            store_of(self.action),
            options["snapshot_properties"],
            non_inheritable_properties(self.action),
        )
        self._volume_settings = volume_settings_of(self.action)

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        quotas = self.action.options["quotas"]
        begun, self._images = flow.begin(
            tx, operation, selection, known_hosts, self._request, quotas, self._volume_settings
        )
        made = [self._images[r.uuid] for r in begun.rows if volume_backed_flow.is_volume_backed(r)]
        self._storage_hosts = volume_backed_flow.storage_hosts(tx, made)
        inventory_hosts.in_inventory(self.action, self._storage_hosts)
        self.read_remnants(tx, begun.rows)
        return begun

    def read_remnants(self, tx: Transaction, rows: t.Sequence[Instance]) -> None:
        """Read the deleted images of which the store and hosts may have files, and the addresses of hosts that give images of these instances."""
        self._failed_images = host_images.failed_lately(tx)
        self._files_to_remove = host_images.files_to_remove(tx, self._request.store.name)
        self._addresses = {}
        if self.store_hosts(rows):
            from ...images import give_snapshot  # of few runs

            self._addresses = give_snapshot.addresses(self.action, tx, {str(r.host) for r in rows})

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        quiesce = snapshots.quiesce_of(row.display_name, flow.properties_of(row), row.vm_state)
        return self.item_of_image(row, quiesce)

    def item_of_image(self, row: Instance, quiesce: str) -> dict[str, t.Any]:
        """Return the fields of an instance whose image is made. :arg quiesce: one of quiesce.QUIESCES"""
        image = self._images[row.uuid]
        removed, self._files_to_remove = self._files_to_remove, ()  # by the host of the first instance
        return {
            "removed": list(removed),
            "image": {"id": image.id, "name": image.name},
            "note": "image %s" % image.name if self.action.check_mode else flow.note_of(image),
            "failed_images": list(self._failed_images),
            "quiesce": quiesce,
            "volume_backed": volume_backed_flow.is_volume_backed(row),
            **({"address": self._addresses[str(row.host)]} if row.host in self._addresses else {}),
        }

    def change_of(self, row: Instance) -> tuple[str, str]:
        if volume_backed_flow.is_volume_backed(row):
            image = self._images[row.uuid]
            return "", ", image %s, snapshots of %d volumes" % (image.name, len(volume_backed.snapshots_in(image)))
        return "", ", image %s in the store %s" % (self._images[row.uuid].name, self._request.store.name)

    def note_of_unchanged(self, row: Instance) -> str:
        return "nothing to do: %s" % flow.note_of(self._images[row.uuid])

    # --- on hosts -----------------------------------------------------------------------------------------------------

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, Problems]:
        """Make the images of the current host, and remove files of deleted ones. Instances whose root is a volume need nothing of their host."""
        of_volumes = [i for i in items if i.get("volume_backed")]
        answers, problems = self._thaw(of_volumes)
        made_here = self._host_images(store_of(self.action))
        made, failed = made_here.make([i for i in items if not i.get("volume_backed")])
        for uuid, removed in made_here.remove_deleted(of_volumes).items():
            answers[uuid].update(removed)
        return {**answers, **made}, {**problems, **failed}

    def _host_images(self, store: ImageStore) -> HostImages:
        return HostImages(self.action, store, MODULE, self._arguments)

    def _arguments(self, items: Items) -> dict[str, t.Any]:
        """Return the arguments of the module for some instances of the current host."""
        settings = host_settings.read_current_host(self.action)
        limits = host_settings.values(self.action, TIME_LIMITS)
        return {
            **host_settings.libvirt_arguments(self.action),
            "instances_path": settings.instances_path,
            "instances": [{"uuid": i["uuid"], "image_id": i["image"]["id"], "quiesce": i["quiesce"]} for i in items],
            **({"image_format": settings.snapshot_image_format} if settings.snapshot_image_format else {}),
            "compress": settings.snapshot_compression,
            "stale_seconds": 2 * limits.copy_timeout,
            "workers": AT_ONCE,
        }

    def is_frozen(self, item: Item) -> bool:
        return bool(item.get("volume_backed")) and item["quiesce"] != NO

    def freeze(self, items: Items) -> tuple[Answers, Problems]:
        domains = [{"uuid": i["uuid"], "quiesce": i["quiesce"]} for i in items]
        result = self.action.run_module(
            "domain_quiesce",
            {
                **host_settings.libvirt_arguments(self.action),
                "state": "frozen",
                "domains": domains,
                "seconds": STILL,
                "workers": len(domains),  # all at one moment
            },
        )
        return result["outcomes"], item_errors(result, uuids_of(items))

    def _thaw(self, items: Items) -> tuple[Answers, Problems]:
        """Let the file systems go on that freeze() stopped. Returns the answers of all these instances: their snapshots are made elsewhere."""
        answers: Answers = {i["uuid"]: {"changed": True, "power_state": i["power_state"]} for i in items}
        problems: Problems = {}
        if self.action.check_mode:
            return answers, problems
        silence = errors.HostUnreachable(
            host=self.action.task_vars["inventory_hostname"], reason="it was to have the file systems stand still"
        )
        frozen = [i for i in items if self.is_frozen(i)]
        for item in frozen:
            outcome = self.frozen.get(item["uuid"])
            if outcome is None:
                problems[item["uuid"]] = silence
            elif outcome.get("error"):
                problems[item["uuid"]] = errors.from_dict(outcome["error"])
        held = [i for i in frozen if self.frozen.get(i["uuid"], {}).get("token")]
        if held:
            thawed = self._thawed([i for i in held if i["uuid"] not in problems])
            for uuid, answer in thawed[0].items():
                answers[uuid] = {**answers[uuid], **answer}
            problems.update(thawed[1])
        return answers, problems

    def _thawed(self, items: Items) -> tuple[Answers, Problems]:
        """Let the file systems go on. Returns what became of each instance.

        source: Nova's unquiesce_instance
        """
        domains = [{"uuid": i["uuid"], "token": self.frozen[i["uuid"]]["token"]} for i in items]
        arguments = {**host_settings.libvirt_arguments(self.action), "state": "thawed", "domains": domains}
        try:
            result = self.action.run_module("domain_quiesce", {**arguments, "workers": len(domains)})
        except errors.BootflowError as e:
            return {}, dict.fromkeys(uuids_of(items), e)
        problems = item_errors(result, uuids_of(items))
        for item in items:
            uuid = item["uuid"]
            if uuid not in problems and item["quiesce"] == REQUIRE and not result["outcomes"][uuid]["quiesced"]:
                problems[uuid] = errors.InstanceQuiesceNotSupported(
                    instance_id=uuid,
                    reason="its file systems went on after %d s, before all snapshots were made" % STILL,
                    remedy="Make the snapshot when the storage hosts have less to do.",
                )
        return {u: dict(a) for u, a in result["outcomes"].items()}, problems

    # --- on storage hosts -----------------------------------------------------------------------------------------------

    def storage_hosts(self) -> list[str]:
        return list(self._storage_hosts)

    def settle_snapshots(
        self, tx: Transaction, items: t.Mapping[str, Item], failed: t.Mapping[str, errors.BootflowError]
    ) -> tuple[Problems, list[str]]:
        image_ids = {uuid: item["image"]["id"] for uuid, item in items.items() if item.get("volume_backed")}
        failures = volume_backed_flow.find_failures(tx, image_ids)
        hosts = volume_backed_flow.give_up(tx, image_ids, {**failures, **failed})
        return {uuid: error for uuid, error in failures.items() if uuid not in failed}, hosts

    # --- on the host of the store -------------------------------------------------------------------------------------

    def store_hosts(self, rows: t.Sequence[Instance]) -> list[str]:
        local = [row for row in rows if not volume_backed_flow.is_volume_backed(row)]
        return self._host_images(self._request.store).receiving_host(str(row.host) for row in local)

    def on_store_host(self, host: str, items: Items, answers: t.Mapping[str, Item]) -> tuple[Answers, Problems]:
        return self._host_images(store_of(self.action)).receive([i for i in items if i.get("image")], answers)

    def with_stored(
        self, host: str, items: t.Mapping[str, Item], answers: t.Mapping[str, Item], outcomes: Answers | None
    ) -> t.Mapping[str, Item]:
        made = {u: i for u, i in items.items() if i.get("image") and not i.get("volume_backed")}
        return self._host_images(store_of(self.action)).with_received(host, made, answers, outcomes)

    # --- finish -------------------------------------------------------------------------------------------------------

    def write_results(
        self,
        tx: Transaction,
        items: t.Mapping[str, Item],
        answers: t.Mapping[str, Item],
        failed: t.Mapping[str, errors.BootflowError],
    ) -> Problems:
        image_ids = {uuid: item["image"]["id"] for uuid, item in items.items()}
        store = store_of(self.action)
        failures = flow.finish(tx, image_ids, answers, failed, store.name)
        self._host_images(store).remove_ended(tx)
        return failures

    def result_of(self, item: Item) -> dict[str, t.Any]:
        return {"image": item["image"]}


def non_inheritable_properties(action: LedgerAction) -> t.Sequence[str]:
    """Return bootflow_non_inheritable_image_properties."""
    settings = read_settings(IMAGE_WORK.options("non_inheritable_image_properties"), {}, action.variable)
    return t.cast("t.Sequence[str]", settings["non_inheritable_image_properties"])


def volume_settings_of(action: LedgerAction) -> VolumeSettings:
    """Return the settings of snapshots of volumes. :raises InvalidRequest: all errors of the volume types and quotas"""
    settings = read_settings(VOLUME.options("volume_types", "no_snapshot_gb_quota"), {}, action.variable)
    return VolumeSettings(
        types=read_volume_types(settings["volume_types"]),
        image=_refuse_image,
        quotas=action.options["quotas"] or {},
        no_snapshot_gb_quota=settings["no_snapshot_gb_quota"],
    )


def _refuse_image(word: str) -> t.NoReturn:
    """:raises ImageNotFound: snapshots of volumes are made from no image."""
    raise errors.ImageNotFound(image_id=word)


def store_of(action: LedgerAction) -> ImageStore:
    """Return the store of the images. :raises ImageStoreNotFound: it is not known, or there is none"""
    stores, name = stores_of(action), action.options["snapshot_store"]
    return stores.get(name) if name else stores.default()
