# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rebuilds: what they are given on the controller, and their work on a host.

source: Nova's _rebuild_default_impl
"""

from __future__ import annotations

import os
import typing as t

from ....module_utils.core import errors
from ....module_utils.core.images.resolve import LedgerImages
from ....module_utils.core.instances import states
from ....module_utils.core.instances.operation_outcomes import Answers, Item, Outcome
from ....module_utils.core.model import Image
from ....module_utils.core.request.catalogue import parse_catalogue, parse_images
from ....module_utils.core.request.catalogue_images import find_image
from ....module_utils.core.request.guest_data import GuestSecrets, SecretsOfRequest
from ....module_utils.core.settings.request import CATALOGUE, QUOTA, REQUEST
from ....module_utils.flows.boot.builds import Build
from ....module_utils.flows.instances import rebuild as flow
from ....module_utils.flows.instances.operation import Begun, Operation, Selection
from ....module_utils.flows.instances.rebuild import Before, Wanted
from ....module_utils.flows.volumes import reimage
from ....module_utils.ledger.compute import instances
from ....module_utils.ledger.compute.instances import Instance
from ....module_utils.ledger.db.transaction import Transaction
from ...builds import build_parts, domain_builder
from ...guest_data import guest_data_handover, guest_data_place
from ...relay import rounds
from ...run import host_settings, tables
from ...run.ledger_action import LedgerAction, read_settings
from ...settings import image_upload, ledger_images
from .. import hard_reboot
from ..cleaning import remove_instances
from ..work import Items, Work, uuids_of
from . import rebuild_volumes
from .in_place import InPlace

# Variables, which no other operation has to render.
_VARIABLES = {
    **CATALOGUE.options("images", "keypairs"),
    **REQUEST.options("allow_zero_disk_flavor", "pci_alias"),
    "instances": REQUEST.named("instances").but(required=False),
    "project": QUOTA.named("project"),
}


class Rebuild(Work):
    """Makes guests again on their hosts, from an image."""

    starts_any = True
    needs_guests = True
    image_variable = "bootflow_rebuild_image"

    def __init__(self, action: LedgerAction):
        super().__init__(action)
        self._before: dict[str, Before] = {}
        self._reimages: dict[str, flow.Reimage] = {}
        self._forced: set[str] = set()  # guests that lost their power before their root volumes were written again
        # uuid -> the names of the images that it was made from and is rebuilt from
        self._images: dict[str, tuple[str | None, str | None]] = {}
        self._to_use: dict[str, Image] = {}  # by the uuids of instances
        self._kept_by_host: dict[str, dict[str, GuestSecrets]] = {}  # host -> uuid -> what the ledger keeps

    def prepare(self) -> None:
        options = self.action.options
        self._wanted = wanted(self.action, options["rebuild_image"], options["follow_file"])

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        begun, self._before, self._reimages = flow.begin(tx, operation, selection, known_hosts, self._wanted)
        self._to_use = images_of(self.action, self._wanted, begun.rows)
        check_files([*self._to_use.values(), *(r.image for r in self._reimages.values())])
        for row in begun.rows:
            again = self._reimages.get(row.uuid)
            if again is not None:
                self._images[row.uuid] = again.former, again.image.name
                continue
            own = (row.spec["image"] or {}).get("name")
            new = None if row.spec.get("is_bfv") else self._wanted.image_for(row)
            self._images[row.uuid] = own, own if new is None else new.name
        return begun

    @property
    def storage_work(self) -> t.Mapping[str, str]:
        return {uuid: again.storage_host for uuid, again in self._reimages.items()}

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        item: dict[str, t.Any] = {}
        own, new = self._images[row.uuid]
        if new and (own or row.uuid in self._reimages):
            item["note"] = "image %s" % (tables.change(own, new) if own else new)
        if row.uuid in self._reimages:
            again = self._reimages[row.uuid]
            item["reimage"] = {"volume_id": again.volume_id, "image_id": again.image.id}
        if row.uuid in self._before:
            item["before"] = self._before[row.uuid]
        return item

    def change_of(self, row: Instance) -> tuple[str, str]:
        own, new = self._images[row.uuid]
        return ", image %s" % own, ", image %s" % new

    def check(self, tx: Transaction, begun: Begun) -> None:
        """Read the user data that hosts need, where the ledger keeps it. :raises GuestDataLocked: no key of this run opens a text"""
        guest_data = guest_data_place.of_action(self.action)
        self._kept_by_host = {}
        for row in begun.rows if guest_data.is_in_ledger else ():
            if row.config_drive and self._wanted.secrets_of(row.project, row.display_name) is None:
                secrets = guest_data.read_secrets(row.digest, tx)
                if secrets is not None:
                    self._kept_by_host.setdefault(str(row.host), {})[row.uuid] = secrets

    def begin_images(self, rows: t.Sequence[Instance]) -> dict[str, t.Any]:
        requested = [self._wanted.secrets_of(r.project, r.display_name) for r in rows]
        guest_data_place.of_action(self.action).keep_or_warn(self.action, [s for s in requested if s is not None])
        guest_data_handover.give(self.action, self._kept_by_host)
        return rounds.begin_for(self.action, rows, self._to_use)

    def release(self, items: Items) -> tuple[Answers, build_parts.Problems]:
        return release(self.action, items)

    def screen(self, items: Items, released: Answers | None) -> tuple[Answers, build_parts.Problems]:
        self._forced = {uuid for uuid, answer in (released or {}).items() if answer.get("forced")}
        return rebuild_volumes.screen(self.action, items, released)

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, build_parts.Problems]:
        answers, problems = rebuild(self.action, uuids_of(items), fresh)
        for uuid in self._forced & set(answers):
            answers[uuid]["forced"] = True
        return answers, problems

    def judged(self, items: Items, answers: Answers) -> Answers:
        return rebuild_volumes.judged(items, answers)

    def undo(
        self, tx: Transaction, operation: Operation, items: t.Mapping[str, Item], outcomes: t.Mapping[str, Outcome]
    ) -> None:
        """Restore the requests and disks of failed instances whose hosts touched nothing, and end what storage hosts did not do."""
        again = sorted(u for u in outcomes if "reimage" in items[u])
        reimage.end_unbegun(
            tx, again, lambda uuid: outcomes[uuid].error or errors.RemoteError(reason="nothing was done")
        )
        former = {u: items[u]["before"] for u, o in outcomes.items() if not o.vm_state and "before" in items[u]}
        if former:
            flow.keep(tx, operation, former)


def wanted(action: LedgerAction, image: str | None, follow_file: bool = False) -> Wanted:
    """Return the image, key and data that instances are rebuilt with. :arg image: bootflow_rebuild_image. :arg follow_file: without it, each as requested

    :raises ImageNotFound, InvalidRequest: it is not in the catalogue, or wrong there.
    """
    values = read_settings(_VARIABLES, {}, action.variable)
    stored = ledger_images.images_of(action) if image is not None or follow_file else LedgerImages()
    catalogue = parse_catalogue(
        None, values["images"], None, values["keypairs"], None, values["pci_alias"], ledger_images=stored
    )
    request = SecretsOfRequest(values["instances"], values["project"])
    guest_data = guest_data_place.of_action(action)

    def image_of(project: str, name: str) -> Image | None:
        named = request.image(project, name) if follow_file else image
        return None if named is None else catalogue.image(named, project)

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
        check_images=lambda tx, ids: ledger_images.check_active(tx, stored, ids),
        # Of images of the ledger it depends on the project of an instance which one a name means.
        image=None if image is None or stored.images else catalogue.image(image),
        image_of=image_of,
        key_of=key_of,
        pci_aliases=catalogue.pci_aliases,
        secrets_of=request.guest_secrets,
        kept_secrets_of=lambda tx, digest: guest_data.read_secrets(digest, tx),
        kept_in=guest_data.place,
        allow_zero_disk=values["allow_zero_disk_flavor"],
    )


def images_of(action: LedgerAction, wanted: Wanted, rows: t.Iterable[Instance]) -> dict[str, Image]:
    """Return the images of root disks, by the uuids of instances. :arg wanted: what these instances are rebuilt as"""
    known: t.Collection[Image] = ()
    if wanted.image is None:
        known = parse_images(read_settings(CATALOGUE.options("images"), {}, action.variable)["images"]).values()
    with_image = [r for r in rows if r.spec["image"] and not r.spec.get("is_bfv")]
    return {r.uuid: wanted.image_for(r) or find_image(known, r.spec["image"]) for r in with_image}


def check_files(images: t.Iterable[Image]) -> None:
    """:raises ImageUnacceptable: the file of an image is not on the controller."""
    for image in {i.id: i for i in images}.values():
        if image.path and not os.path.isfile(os.path.expanduser(image.path)):
            raise image_upload.file_missing(image)


class Rebuilding(InPlace):
    """Builds of guests that there were already: their volumes are the host's, and a guest that was off stays off."""

    operation = "rebuild"

    def __init__(
        self,
        action: LedgerAction,
        builds: t.Sequence[Build],
        new_logins: t.Mapping[str, t.Sequence[str]] | None = None,
        keeps: bool = True,
    ):
        """:arg new_logins: uuid -> the targets that this run has connected with new credentials

        :arg keeps: user data of the request is kept now; False: the controller's task did so
        """
        values = read_settings(_VARIABLES, {}, action.variable)
        guest_data = guest_data_place.of_action(action)
        request = SecretsOfRequest(values["instances"], values["project"])
        rows = {(b.row.project, b.row.display_name): b.row for b in builds}

        def secrets_of(project: str, name: str) -> GuestSecrets | None:
            row = rows[project, name]
            given = request.guest_secrets(project, name) or guest_data_handover.find(action, row.uuid)
            return given or guest_data.read_secrets(row.digest)

        super().__init__(action, builds, values["images"], secrets_of)
        if keeps:
            guest_data.keep_or_warn(action, [s for key in rows if (s := request.guest_secrets(*key)) is not None])
        self.stay_off = {b.uuid for b in builds if b.row.vm_state == states.STOPPED}
        self.new_logins = new_logins or {}
        self.machine_types: dict[str, str | None] = {}  # that the instances of self.forget_machine_types() had

    def adapted(self, domain: dict[str, t.Any]) -> dict[str, t.Any]:
        """It is defined already, with the users of its volumes except new ones."""
        new = list(self.new_logins.get(domain["uuid"], ()))
        return {**domain, "restart": True, **({"new_logins": new} if new else {})}

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
        keys = self.keys_of_drives()

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

    def keys_of_drives(self) -> dict[str, str | None]:
        """Return the public SSH host keys of guests with new config drives (uuid -> line; None: it is not known)."""
        keys: dict[str, str | None] = {u: key for u, e in self.ended.items() if (key := e.ssh_host_key)}
        return {**keys, **dict.fromkeys(self._without_key())}

    def _without_key(self) -> list[str]:
        """Return the guests with a new root disk and no SSH host key on their drive: they make one themselves, which is not known here."""
        settings = host_settings.read_current_host(self.action)
        rows = {u: self.builds[u].row for u in self.ended if u in self.builds}
        return [
            u
            for u, row in rows.items()
            if row.ssh_host_key
            and not row.spec.get("is_bfv")
            and not domain_builder.has_ssh_host_key(self.builds[u], settings)
        ]


def release(action: LedgerAction, items: Items) -> tuple[Answers, build_parts.Problems]:
    """Shut down guests, and disconnect the host from their root volumes.

    Returns for each guest that is off now ``off``, and ``forced`` where it lost its power; and why instances failed.
    """
    builds, _volumes, problems = action.open_ledger().inspect(hard_reboot.guests, uuids_of(items))
    builds = [b for b in builds if b.uuid not in problems]
    work = Rebuilding(action, builds, keeps=False)
    with work.guarded(builds):
        work.have_volumes({str(i["reimage"]["volume_id"]) for i in items})
    work.drop_lost_instances()
    forced: set[str] = set()
    with work.guarded(work.good(builds)):
        forced = work.shut_down()
    work.drop_lost_instances()
    off = work.good(builds)
    answers: Answers = {b.uuid: {"changed": True, "off": True, "forced": b.uuid in forced} for b in off}
    with work.guarded(off):
        work.problems.update(rebuild_volumes.disconnect(action, {b.uuid for b in off}, items))
    return answers, {**problems, **work.problems}


def rebuild(
    action: LedgerAction, uuids: t.Sequence[str], fresh: t.Collection[str] = ()
) -> tuple[Answers, build_parts.Problems]:
    """Rebuild these. A guest is asked to shut down, and loses its domain and its local disks, only when its image and its volumes are there.

    :arg fresh: attachments that this run has connected with new credentials
    Returns for each what its instance is now (vm_state; without it, nothing was touched), and why instances failed.
    """
    builds, volumes, missing_instances = hard_reboot.guests_on_host(action, uuids, fresh)
    builds = [b for b in builds if b.uuid not in missing_instances]
    if action.check_mode:
        return {
            b.uuid: {"changed": True, "vm_state": _result_of(b), "power_state": 0} for b in builds
        }, missing_instances
    new_logins = {u: [str(a.row.iqn) for a in group if a.id in fresh and a.row.iqn] for u, group in volumes.items()}
    work = Rebuilding(action, builds, new_logins, keeps=False)
    work.volumes = volumes
    with work.guarded(builds):
        work.have_images()
        work.have_volumes()
    work.drop_lost_instances()
    forced: set[str] = set()
    with work.guarded(work.good(builds)):
        forced = work.shut_down()
    work.drop_lost_instances()
    untouched = set(work.problems)
    remaining = work.good(builds)
    gone_parts = [
        {"uuid": b.uuid, "name": b.row.domain_name, "defined_again": domain_builder.has_volumes(b)} for b in remaining
    ]
    removed, _preexisting_uuids = remove_instances(action, gone_parts, {})
    work.problems.update(removed)
    work.builds = {b.uuid: b for b in work.good(remaining)}
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
    return outcomes, {**missing_instances, **work.problems, **late}


def _result_of(build: Build) -> str:
    return states.STOPPED if build.row.vm_state == states.STOPPED else states.ACTIVE
