# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rebuilds: what they are given on the controller, and their work on a host.

source: Nova's _rebuild_default_impl
"""

from __future__ import annotations

import os
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.amounts import GIB
from ...module_utils.core.instances import states
from ...module_utils.core.instances.operation_outcomes import Answers, Item, Outcome
from ...module_utils.core.model import Image
from ...module_utils.core.request.catalogue import parse_catalogue, parse_images
from ...module_utils.core.request.catalogue_images import find_image
from ...module_utils.core.request.guest_data import GuestSecrets, SecretsOfRequest
from ...module_utils.core.settings.request import CATALOGUE, QUOTA, REQUEST
from ...module_utils.flows.boot.builds import Build
from ...module_utils.flows.instances import rebuild as flow
from ...module_utils.flows.instances.operation import Begun, Operation, Selection
from ...module_utils.flows.instances.operations import OPERATIONS
from ...module_utils.flows.instances.rebuild import Before, Wanted
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ..builds import build_parts, domain_builder, kept_guest_data
from ..builds.build_work import BuildWork
from ..run import host_settings, tables
from ..run.ledger_action import LedgerAction, read_settings
from ..run.results import item_errors
from ..settings import image_upload
from ..volumes import attached_volumes
from ..volumes.attached_volumes import Attached
from . import hard_reboot
from .cleaning import remove_instances
from .work import Items, Work, uuids_of

# Variables, which no other operation has to render.
_VARIABLES = {
    **CATALOGUE.options("images", "keypairs"),
    **REQUEST.options("allow_zero_disk_flavor", "pci_alias"),
    "instances": REQUEST.named("instances").but(required=False),
    "project": QUOTA.named("project"),
}


class Rebuild(Work):
    """Makes guests again on their hosts, from an image."""

    image_variable = "bootflow_rebuild_image"

    def __init__(self, action: LedgerAction):
        super().__init__(action)
        self._before: dict[str, Before] = {}
        # uuid -> the names of the images that it was made from and is rebuilt from
        self._images: dict[str, tuple[str | None, str | None]] = {}

    def prepare(self) -> None:
        options = self.action.options
        self._wanted = wanted(self.action, options["rebuild_image"], options["follow_file"])

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        begun, self._before = flow.begin(tx, operation, selection, known_hosts, self._wanted)
        check_files(self.action, self._wanted, begun.rows)
        for row in begun.rows:
            own, new = (row.spec["image"] or {}).get("name"), self._wanted.image_for(row)
            self._images[row.uuid] = own, own if new is None else new.name
        return begun

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        item: dict[str, t.Any] = {}
        own, new = self._images[row.uuid]
        if own and new:
            item["note"] = "image %s" % tables.change(own, new)
        if row.uuid in self._before:
            item["before"] = self._before[row.uuid]
        return item

    def change_of(self, row: Instance) -> tuple[str, str]:
        own, new = self._images[row.uuid]
        return ", image %s" % own, ", image %s" % new

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, build_parts.Problems]:
        return rebuild(self.action, uuids_of(items))

    def undo(
        self, tx: Transaction, operation: Operation, items: t.Mapping[str, Item], outcomes: t.Mapping[str, Outcome]
    ) -> None:
        """Restore the requests and disks of failed instances whose hosts touched nothing."""
        former = {u: items[u]["before"] for u, o in outcomes.items() if not o.vm_state and "before" in items[u]}
        if former:
            flow.keep(tx, operation, former)


def wanted(action: LedgerAction, image: str | None, follow_file: bool = False) -> Wanted:
    """Return the image, key and data that instances are rebuilt with. :arg image: bootflow_rebuild_image. :arg follow_file: without it, each as requested

    :raises ImageNotFound, InvalidRequest: it is not in the catalogue, or wrong there.
    """
    found = read_settings(_VARIABLES, {}, action.variable)
    catalogue = parse_catalogue(None, found["images"], None, found["keypairs"], None, found["pci_alias"])
    request = SecretsOfRequest(found["instances"], found["project"])
    kept = kept_guest_data.of_action(action)

    def image_of(project: str, name: str) -> Image | None:
        named = request.image(project, name) if follow_file else None
        return None if named is None else catalogue.image(named)

    def key_of(project: str, name: str) -> tuple[str | None, str | None] | None:
        if not follow_file or not request.names(project, name):
            return None
        named = request.key_name(project, name)
        return named, None if named is None else catalogue.keypair(named)

    checks: dict[str, t.Any] = {}
    if image is not None or follow_file:
        from . import rebuild_hosts  # the scheduler, which no other operation needs

        checks["check_host"] = rebuild_hosts.checker(action)
    return Wanted(
        **checks,
        image=None if image is None else catalogue.image(image),
        image_of=image_of,
        key_of=key_of,
        pci_aliases=catalogue.pci_aliases,
        secrets_of=request.of,
        kept=kept.of,
        kept_in=kept.folder,
        allow_zero_disk=found["allow_zero_disk_flavor"],
    )


def check_files(action: LedgerAction, wanted: Wanted, rows: t.Iterable[Instance]) -> None:
    """:arg wanted: what these instances are rebuilt as.

    :raises ImageUnacceptable: one of the files is not on the controller.
    """
    known: t.Collection[Image] = ()
    if wanted.image is None:
        known = parse_images(read_settings(CATALOGUE.options("images"), {}, action.variable)["images"]).values()
    with_image = [r for r in rows if r.spec["image"] and not r.spec.get("is_bfv")]
    images = [wanted.image_for(r) or find_image(known, r.spec["image"]) for r in with_image]
    for each in {i.id: i for i in images}.values():
        if each.path and not os.path.isfile(os.path.expanduser(each.path)):
            raise image_upload.file_missing(each)


class Rebuilding(BuildWork):
    """Builds of guests that there were already: their volumes are the host's, and a guest that was off stays off."""

    def __init__(self, action: LedgerAction, builds: t.Sequence[Build]):
        found = read_settings(_VARIABLES, {}, action.variable)
        kept = kept_guest_data.of_action(action)
        request = SecretsOfRequest(found["instances"], found["project"])
        digests = {(b.row.project, b.row.display_name): b.row.digest for b in builds}

        def secrets_of(project: str, name: str) -> GuestSecrets | None:
            return request.of(project, name) or kept.of(digests[project, name])

        super().__init__(action, builds, found["images"], secrets_of)
        kept.keep_or_warn(action, [s for each in digests if (s := request.of(*each)) is not None])
        self.stay_off = {b.uuid for b in builds if b.row.vm_state == states.STOPPED}
        self.machine_types: dict[str, str | None] = {}  # that the instances of self.forget_machine_types() had

    def connect(self, builds: list[Build], found: t.Mapping[str, t.Sequence[Attached]]) -> build_parts.Problems:
        return attached_volumes.reconnect(self.action, [a for b in builds for a in found.get(b.uuid, ())])

    def adapted(self, domain: dict[str, t.Any]) -> dict[str, t.Any]:
        """It is defined already, with the users of its volumes."""
        return {**domain, "restart": True}

    def shut_down(self) -> set[str]:
        """Ask the guests to shut down: what they have in memory belongs on their volumes. Returns the guests that lost their power. A guest with another
        disk in place of a volume is left alone.

        source: Nova's _rebuild_default_impl
        """
        builds = self.good(self.builds.values())
        if not builds:
            return set()
        settings = host_settings.of(self.action)
        host = self.action.task_vars["inventory_hostname"]
        volumes = self.action.open_ledger().inspect(attached_volumes.sources_on, host, [b.uuid for b in builds])
        domains = [
            {"uuid": b.uuid, "volumes": volumes.get(b.uuid, {}), **OPERATIONS["stop"].details(b.row)} for b in builds
        ]
        result = self.action.run_module(
            "domain_power",
            {
                **host_settings.libvirt_arguments(self.action),
                "domains": domains,
                "state": "shutdown",
                "shutdown_timeout": settings.shutdown_timeout,
                "workers": host_settings.workers(self.action, len(domains)),
            },
        )
        failed = item_errors(result, [b.uuid for b in builds])
        self.problems.update({u: e for u, e in failed.items() if not isinstance(e, errors.InstanceNotFound)})
        return {u for u, outcome in result["outcomes"].items() if outcome.get("forced")}

    def those_left(self) -> None:
        """Leave alone what another run has taken over meanwhile: images may have taken long, and guests."""
        builds = self.good(self.builds.values())
        with self.guarded(builds):
            ledger = self.action.open_ledger()
            mine = ledger.inspect(instances.working_on, [b.uuid for b in builds], states.REBUILD_SPAWNING)
            lost = {b.uuid for b in builds} - mine
            self.problems.update(ledger.inspect(instances.swap_errors, lost, [states.REBUILD_SPAWNING]))

    def forget_machine_types(self) -> None:
        """They become what the image or the host says now. source: Nova's API.rebuild, which forgets what it knew of the image"""
        for uuid, build in self.builds.items():
            self.machine_types[uuid], build.row.machine_type = build.row.machine_type, None

    def write_domains(self) -> build_parts.Problems:
        """Write the names that domains got where another one has theirs, the machine types that changed, and the SSH host keys of new
        config drives. Returns uuid -> why that failed.
        """
        renamed = {u: name for u, e in self.ended.items() if (name := e.domain_name)}
        machines = {u: e.machine_type for u, e in self.ended.items() if e.machine_type != self.machine_types.get(u)}
        keys: dict[str, str | None] = {u: key for u, e in self.ended.items() if (key := e.ssh_host_key)}
        keys.update(dict.fromkeys(self._without_key()))

        def write(tx: Transaction) -> None:
            instances.rename_domains(tx, renamed)
            instances.write_ssh_host_keys(tx, keys)
            instances.write_machine_types(tx, machines)

        try:
            if renamed or machines or keys:
                self.action.open_ledger().transact(write)
        except errors.BootflowError as e:  # the guest runs: a hard reboot finds its domain by its uuid
            return dict.fromkeys({**renamed, **machines, **keys}, e)
        return {}

    def _without_key(self) -> list[str]:
        """Return the guests with a new root disk and no SSH host key on their drive: they make one themselves, which is not known here."""
        settings = host_settings.of(self.action)
        rows = {u: self.builds[u].row for u in self.ended if u in self.builds}
        return [
            u
            for u, row in rows.items()
            if row.ssh_host_key
            and not row.spec.get("is_bfv")
            and not domain_builder.has_ssh_host_key(self.builds[u], settings)
        ]

    def have_images(self) -> None:
        """Have the images on the host: what cannot be had fails here, before anything is taken from a guest."""
        with_image = [b for b in self.builds.values() if build_parts.has_image(b)]
        images = build_parts.images_of(with_image, self.images)
        if not with_image:
            return
        arguments = {**build_parts.disk_arguments(self.action, with_image, images), "instances": []}
        result = self.action.run_module("instance_disks", arguments)
        missing = [images[i] for i in result.get("missing_images") or [] if i in images]
        refused: build_parts.Problems = {}
        if missing:
            with self.uploaded(missing) as (uploads, refused):
                result = self.action.run_module("instance_disks", {**arguments, "uploads": uploads})
        failed = {**item_errors({"outcomes": result["image_outcomes"]}, images), **refused}
        for build in with_image:
            image_id = build.row.spec["image"]["id"]
            size = int((result["image_outcomes"].get(image_id) or {}).get("virtual_size") or 0)
            root = build.row.root_gb * GIB
            if image_id in failed:
                self.problems[build.uuid] = failed[image_id]
            elif size > root:
                self.problems[build.uuid] = errors.FlavorDiskSmallerThanImage(flavor_size=root, image_size=size)

    def have_volumes(self) -> None:
        """Have the host logged in to the volumes."""
        builds = [b for b in self.good(self.builds.values()) if domain_builder.has_volumes(b)]
        if not builds:
            return
        found = self.action.open_ledger().inspect(attached_volumes.load, [b.uuid for b in builds])
        problems = self.connect(builds, found)
        for uuid, its in found.items():
            of_its = next((problems[a.id] for a in its if a.id in problems), None)
            if of_its is not None:
                self.problems[uuid] = of_its


def rebuild(action: LedgerAction, uuids: t.Sequence[str]) -> tuple[Answers, build_parts.Problems]:
    """Rebuild these. A guest is asked to shut down, and loses its domain and its local disks, only when its image and its volumes are there.

    Returns for each what its instance is now (vm_state; without it, nothing was touched), and why instances failed.
    """
    builds, _volumes, gone = action.open_ledger().inspect(hard_reboot.guests, uuids)
    builds = [b for b in builds if b.uuid not in gone]
    if action.check_mode:
        return {b.uuid: {"changed": True, "vm_state": _result_of(b), "power_state": 0} for b in builds}, gone
    work = Rebuilding(action, builds)
    with work.guarded(builds):
        work.have_images()
        work.have_volumes()
    work.those_left()
    forced: set[str] = set()
    with work.guarded(work.good(builds)):
        forced = work.shut_down()
    work.those_left()
    untouched = set(work.problems)
    left = work.good(builds)
    gone_parts = [
        {"uuid": b.uuid, "name": b.row.domain_name, "defined_again": domain_builder.has_volumes(b)} for b in left
    ]
    removed, _kept = remove_instances(action, gone_parts, {})
    work.problems.update(removed)
    work.builds = {b.uuid: b for b in work.good(left)}
    work.forget_machine_types()
    work.run()
    late = work.write_domains()
    outcomes: Answers = {}
    for build in builds:
        ended = work.ended.get(build.uuid)
        if ended is not None:
            outcomes[build.uuid] = {"changed": True, "vm_state": _result_of(build), "power_state": ended.power_state}
        elif build.uuid not in untouched:
            outcomes[build.uuid] = {"changed": True, "vm_state": states.ERROR, "power_state": states.NOSTATE}
    for uuid in forced & set(outcomes):
        outcomes[uuid]["forced"] = True
    return outcomes, {**gone, **work.problems, **late}


def _result_of(build: Build) -> str:
    return states.STOPPED if build.row.vm_state == states.STOPPED else states.ACTIVE
