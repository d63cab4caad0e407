# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests of the current host that boot a rescue image, with their own disks behind it, and get their own definition back.

The disk of a rescue and its config drive are files in the instance's folder, with any backend of local disks: they are
there for a while, and no claim counts them. source: Nova's libvirt driver (rescue, unrescue)
"""

from __future__ import annotations

import copy
import dataclasses
import typing as t
from dataclasses import dataclass

from ...module_utils.core import errors
from ...module_utils.core.disks import rescue as core_rescue
from ...module_utils.core.disks.stores.registry import STORE_TYPES
from ...module_utils.core.guest import config as core_guest
from ...module_utils.core.guest import metadata
from ...module_utils.core.guest.nvram import RESCUE_NVRAM
from ...module_utils.core.guest.platform import machine_type
from ...module_utils.core.instances import states
from ...module_utils.core.instances.operation_outcomes import Answers
from ...module_utils.core.model import Image
from ...module_utils.core.request.catalogue import parse_images
from ...module_utils.core.request.catalogue_images import find_image, image_data
from ...module_utils.core.request.guest_data import GuestSecrets
from ...module_utils.core.settings.request import CATALOGUE
from ...module_utils.flows.boot import builds as of_ledger
from ...module_utils.flows.boot.builds import Build
from ...module_utils.flows.instances import operation
from ...module_utils.flows.instances import rescue as flow
from ...module_utils.flows.instances.operations import OPERATIONS
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.db.transaction import Transaction
from ..builds import build_parts, domain_builder, passwords, pool_disks
from ..builds.dhcp import restore as restore_dhcp
from ..relay import boot_images, rounds
from ..run import host_settings
from ..run.ledger_action import LedgerAction, read_settings
from ..run.results import item_errors
from ..settings import ledger_images
from ..settings.image_upload import uploaded
from ..volumes.attached_volumes import Attached
from . import hard_reboot
from .work import Items, Work, uuids_of

PURPOSE = "rescue"  # of a password


class Rescue(Work):
    """Has guests boot a rescue image."""

    starts_any = True
    needs_guests = True
    image_variable = "bootflow_rescue_image_ref"
    password_suffix = ".rescue"

    _chosen: t.Mapping[str, Image] = {}  # by the uuids of instances

    def check(self, tx: Transaction, begun: operation.Begun) -> None:
        self._chosen = check(self.action, tx, begun)

    def begin_images(self, rows: t.Sequence[instances.Instance]) -> dict[str, t.Any]:
        return rounds.begin_for(self.action, rows, self._chosen)

    def item_of(self, row: instances.Instance) -> dict[str, t.Any]:
        return {"rescue_image": image_data(self._chosen[row.uuid])} if row.uuid in self._chosen else {}

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, build_parts.Problems]:
        return rescue(self.action, items, fresh)

    def password(self, uuid: str) -> str:
        return password_of(self.action, uuid)


class Unrescue(Work):
    """Gives rescued guests their own definitions back."""

    starts_any = True
    needs_guests = True

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, build_parts.Problems]:
        return unrescue(self.action, uuids_of(items), fresh)


@dataclass(frozen=True)
class _Rescue:
    """A guest with all that its rescue needs on its host, as items of the modules."""

    build: Build
    image: Image
    own: dict[str, t.Any]  # its definition by the ledger
    domain: dict[str, t.Any]
    disk: dict[str, t.Any]
    drive: dict[str, t.Any] | None


def check(action: LedgerAction, tx: Transaction, begun: operation.Begun) -> dict[str, Image]:
    """Check the images, before anything is written or a host is contacted. Returns them, by the uuids of instances.

    :raises BootflowError: see flows.instances.rescue; of all instances that cannot be rescued.
    """
    if action.options["admin_password_dir"] and not action.check_mode:
        passwords.check_folder(action.options["admin_password_dir"])
    images, asked = _images(action), action.options["rescue_image_ref"]
    stored = ledger_images.images_of(action, tx) if asked else None
    if asked and begun.unchanged:
        flow.refuse_other_images(tx, begun.unchanged, flow.image_of(begun.unchanged[0], images, asked, stored))
    refused = []
    chosen: dict[str, Image] = {}
    for build in of_ledger.load(tx, [r for r in begun.rows if instances.is_placed(r)]):
        try:
            chosen[build.uuid] = image = flow.image_of(build.row, images, asked, stored)
            flow.check(build.row, build.disks, image, action.options["rescue_password"])
        except errors.BootflowError as e:
            refused.append(e)
    operation.refuse(refused)
    if stored is not None:
        ledger_images.check_active(tx, stored, {image.id for image in chosen.values()})
    flow.begin(tx, chosen)
    return chosen


def _images(action: LedgerAction) -> dict[str, Image]:
    """By name. A variable, which no other operation has to render."""
    return parse_images(read_settings(CATALOGUE.options("images"), {}, action.variable)["images"])


def password_of(action: LedgerAction, uuid: str) -> str:
    """The admin password of a rescued guest in this run."""
    return passwords.password_of(uuid, _secrets(action), PURPOSE)


def _secrets(action: LedgerAction) -> GuestSecrets | None:
    """User data and files are for the guest's own system: the rescue image gets none of them."""
    given = action.options["rescue_password"]
    return GuestSecrets(admin_password=given) if given else None


# --- rescue ---------------------------------------------------------------------------------------------------------------


def rescue(action: LedgerAction, items: Items, fresh: t.Collection[str] = ()) -> tuple[Answers, build_parts.Problems]:
    """Rescue these. A guest is asked to shut down, and loses its power, only when the rescue's disks, the networks and the volumes are there;
    one whose rescue fails later gets its own definition back and runs if it ran.

    :arg fresh: attachments that this run has connected with new credentials
    Returns the outcomes of the module domain, and why instances failed.
    """
    builds, volumes, problems = _guests(action, uuids_of(items), fresh)
    images = {i["uuid"]: i["rescue_image"] for i in items}
    plans = _plans(action, builds, images, volumes, problems)
    refused = boot_images.collect(action)
    problems.update({p.build.uuid: refused[p.image.id] for p in plans if p.image.id in refused})
    plans = [p for p in plans if p.build.uuid not in problems]
    if not plans:
        return {}, problems
    saved = _definitions(action, "saved", {p.build.uuid: (p.own, True) for p in plans})
    problems.update(item_errors(saved, [p.build.uuid for p in plans]))
    begun = [p for p in plans if p.build.uuid not in problems]
    outcomes: Answers = {}
    try:
        outcomes = _on_host(action, begun, problems)
    except Exception as e:  # the host may still answer
        cause = e if isinstance(e, errors.BootflowError) else action.unexpected(e)
        problems.update(dict.fromkeys((p.build.uuid for p in begun), cause))
    if not action.check_mode:
        _undo(action, [p for p in begun if p.build.uuid in problems], saved["outcomes"], problems)
    return {u: o for u, o in outcomes.items() if u not in problems}, problems


def _guests(
    action: LedgerAction, uuids: t.Sequence[str], fresh: t.Collection[str]
) -> tuple[list[Build], dict[str, list[Attached]], build_parts.Problems]:
    """Return the guests with their volumes connected, the guests that are gone, and problems of missing volumes."""
    builds, volumes, problems = hard_reboot.guests_on_host(action, uuids, fresh)
    if not action.check_mode:
        usable = [a for u, group in volumes.items() if u not in problems for a in group]
        problems.update(hard_reboot.connect(action, usable))
        problems.update(pool_disks.open_disks(action, [b.uuid for b in builds if b.uuid not in problems]))
    return builds, volumes, problems


def _plans(
    action: LedgerAction,
    builds: t.Iterable[Build],
    images: t.Mapping[str, t.Mapping[str, t.Any]],
    volumes: t.Mapping[str, t.Sequence[Attached]],
    problems: build_parts.Problems,
) -> list[_Rescue]:
    """:arg images: uuid -> the image that the controller's task chose, as image_data() has it"""
    catalogue = _images(action).values()
    plans = []
    for build in builds:
        if build.uuid not in problems:
            try:
                image = find_image(catalogue, images[build.uuid])
                plans.append(_plan(action, build, image, volumes.get(build.uuid, ())))
            except errors.BootflowError as e:
                problems[build.uuid] = e
    return plans


def _plan(action: LedgerAction, build: Build, image: Image, volumes: t.Sequence[Attached]) -> _Rescue:
    settings = host_settings.read_current_host(action)
    own = build_parts.definition(build, settings, volumes)
    backend = STORE_TYPES[settings.disk_backend].rescue_format
    guest = domain_builder.guest_spec(build, settings, volumes)
    host = domain_builder.host_capabilities(build)
    is_own = (build.row.spec["image"] or {}).get("id") == image.id
    properties = core_rescue.rescue_properties(
        guest.image_properties, image, build.row.machine_type if is_own else None
    )
    machine = machine_type(properties, guest.options.machine_type, host)
    folder = domain_builder.folder(build, settings)
    disks = [
        disk.placed("%s/%s" % (folder, disk.name), backend) if disk.name == core_rescue.DISK else disk
        for disk in core_rescue.rescue_plan(guest.disks, image, machine, host.arch)
    ]
    path = "%s/%s" % (folder, core_rescue.CONFIG_DRIVE)
    config = core_guest.guest_config(
        dataclasses.replace(
            guest,
            disks=disks,
            config_drive=path if guest.config_drive else None,
            nvram="%s/%s" % (folder, RESCUE_NVRAM),
            image_properties=properties,
        ),
        host,
    )
    root = next(disk for disk in disks if disk.boot_index == 0)
    disk = {
        "name": core_rescue.DISK,
        "kind": "image",
        "backend": backend,
        "image_id": image.id,
        "size_gb": 0,
        "max_size_gb": flow.size_limit(build.row, build.disks, image),
    }
    drive = None
    if guest.config_drive:
        drive_metadata = dataclasses.replace(
            domain_builder.instance_metadata(
                build, settings, _secrets(action), password_of(action, build.uuid), image=image_data(image)
            ),
            block_device_mapping=metadata.block_device_mapping(root.device_name, [], None, []),
            devices=(),
        )
        drive = {
            "uuid": build.uuid,
            "path": path,
            "format": settings.config_drive_format,
            **domain_builder.drive_content(drive_metadata, image.properties),
            "keep": False,
        }
    seconds = OPERATIONS["stop"].details(build.row).get("shutdown_timeout", settings.shutdown_timeout)
    domain = {**own, "xml": core_guest.render(config), "restart": True, "keep_disks": True, "shutdown_timeout": seconds}
    return _Rescue(build, image, own, domain, disk, drive)


def _on_host(action: LedgerAction, plans: t.Sequence[_Rescue], problems: build_parts.Problems) -> Answers:
    """Make the disks and start the guests from them. Images that the host lacks come to it first."""
    outcomes, lacking = _parts(action, plans, problems, fetch=False)
    if lacking and action.check_mode:
        return {**outcomes, **{p.build.uuid: {"changed": True, "error": None} for p in lacking}}
    if lacking:
        images = {p.image.id: p.image for p in lacking}
        away = [i for i in images.values() if not build_parts.host_can_fetch(action, i)]
        with uploaded(action, away) as (uploads, refused):
            problems.update({p.build.uuid: refused[p.image.id] for p in lacking if p.image.id in refused})
            late = [p for p in lacking if p.build.uuid not in problems]
            more, without = _parts(action, late, problems, fetch=True, uploads=uploads)
        problems.update({p.build.uuid: build_parts.not_copied(p.image.name) for p in without})
        outcomes.update(more)
    return outcomes


def _parts(
    action: LedgerAction,
    plans: t.Sequence[_Rescue],
    problems: build_parts.Problems,
    fetch: bool,
    uploads: t.Mapping[str, str] | None = None,
) -> tuple[Answers, list[_Rescue]]:
    """Build all parts in one module. Returns the outcomes of the guests, and the guests whose image is not on the host."""
    if not plans:
        return {}, []
    builds = [p.build for p in plans]
    networks = build_parts.networks_of(builds)
    networks_of = {b.uuid: sorted({n.name for _port, n in b.ports}) for b in builds}
    drives = [p.drive for p in plans if p.drive is not None]
    parts = action.run_module(
        "instance_build",
        {
            **build_parts.network_arguments(action, networks.values()),
            **build_parts.disk_arguments(action, builds, {p.image.id: p.image for p in plans}),
            **build_parts.domain_arguments(action, [p.domain for p in plans]),
            "instances": [{"uuid": p.build.uuid, "disks": [p.disk]} for p in plans],
            "max_builds": 0,  # it waits for no place among the builds of its host
            "fetch": fetch,
            "uploads": uploads or {},
            "drives": drives,
            "networks_of": networks_of,
        },
    )["parts"]
    if not action.check_mode:
        restore_dhcp(action, networks, parts["networks"])
    without = item_errors(parts["networks"], networks)
    problems.update({u: without[n] for u, names in networks_of.items() for n in names if n in without})
    lacking = [p for p in plans if (parts["disks"]["outcomes"].get(p.build.uuid) or {}).get("pending")]
    ready_uuids = {p.build.uuid for p in plans} - {p.build.uuid for p in lacking}
    for part, items in (
        ("disks", ready_uuids),
        ("drives", {d["uuid"] for d in drives} & ready_uuids),
        ("domains", ready_uuids),
    ):
        failures = item_errors(parts[part], [u for u in items if u not in problems])
        problems.update({u: flow.explained(e) for u, e in failures.items()})
    return parts["domains"]["outcomes"], [p for p in lacking if p.build.uuid not in problems]


def _undo(action: LedgerAction, plans: t.Sequence[_Rescue], saved: Answers, problems: build_parts.Problems) -> None:
    """Give guests whose rescue failed their own definition, and power if they had it."""
    definitions = {
        p.build.uuid: (p.own, bool(saved[p.build.uuid].get("ran")) or p.build.row.vm_state == states.ACTIVE)
        for p in plans
    }
    if not definitions:
        return
    try:
        result = _definitions(action, "restored", definitions)
        failed = item_errors(result, definitions)
    except errors.BootflowError as e:
        failed = dict.fromkeys(definitions, e)
    for uuid, problem in failed.items():
        first = problems[uuid] = copy.copy(problems[uuid])  # others may have the same
        advice = (
            "The guest's own definition could not be restored (%s): reboot the instance with bootflow_reboot_type: HARD."
            % problem.message
        )
        first.remedy = " ".join(filter(None, (first.remedy, advice)))


# --- unrescue -------------------------------------------------------------------------------------------------------------


def unrescue(
    action: LedgerAction, uuids: t.Sequence[str], fresh: t.Collection[str] = ()
) -> tuple[Answers, build_parts.Problems]:
    """Give these their own definitions back and start them. Returns the outcomes of the module domain_rescue, and why instances failed."""
    builds, volumes, problems = _guests(action, uuids, fresh)
    settings = host_settings.read_current_host(action)
    definitions: dict[str, tuple[dict[str, t.Any], bool]] = {}
    for build in builds:
        if build.uuid not in problems:
            try:
                definitions[build.uuid] = (build_parts.definition(build, settings, volumes.get(build.uuid, ())), True)
            except errors.BootflowError as e:
                problems[build.uuid] = e
    if not definitions:
        return {}, problems
    result = _definitions(action, "restored", definitions)
    problems.update(item_errors(result, definitions))
    return result["outcomes"], problems


def _definitions(
    action: LedgerAction, state: str, own: t.Mapping[str, tuple[t.Mapping[str, t.Any], bool]]
) -> dict[str, t.Any]:
    """The module domain_rescue. :arg own: uuid -> the definition by the ledger, and whether the guest is started when it is back"""
    settings = host_settings.read_current_host(action)
    return action.run_module(
        "domain_rescue",
        {
            **host_settings.libvirt_arguments(action),
            "domains": [{"uuid": u, "xml": wanted["xml"], "start": start} for u, (wanted, start) in own.items()],
            "state": state,
            "instances_path": settings.instances_path,
            "wait_timeout": settings.wait_timeout,
            "vif_plugging_timeout": settings.vif_plugging_timeout,
            "vif_plugging_is_fatal": settings.vif_plugging_is_fatal,
            "workers": host_settings.workers(action, len(own)),
        },
    )
