# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unshelves: guests that are still on their hosts start there; others are built on the hosts that they get, from the images of their root disks.

source: Nova's _unshelve_instance
"""

from __future__ import annotations

import typing as t

from ....module_utils.core import errors
from ....module_utils.core.images.resolve import LedgerImages
from ....module_utils.core.images.shelving import Wish
from ....module_utils.core.instances import states
from ....module_utils.core.instances.operation_outcomes import Answers, Item
from ....module_utils.core.model import Image
from ....module_utils.core.settings.request import REQUEST
from ....module_utils.core.settings.run import RUN
from ....module_utils.core.settings.scheduling import SCHEDULER
from ....module_utils.flows.instances.operation import Begun, Operation, Selection
from ....module_utils.flows.moves import unshelve as flow
from ....module_utils.ledger.compute import nodes
from ....module_utils.ledger.compute.instances import Instance
from ....module_utils.ledger.db.transaction import Transaction
from ...relay import rounds
from ...run import host_settings
from ...run.inventory_hosts import all_of
from ...run.ledger_action import read_settings
from ...scheduling.candidates import Candidates, stale_hosts
from ...settings import ledger_images, scheduler_settings
from .. import hard_reboot
from ..cleaning import clean_host
from ..power_work import PowerWork
from ..rebuilds import rebuild
from ..work import Items, Problems, Work, uuids_of

# Variables, which no other operation has to render.
_VARIABLES = {
    **SCHEDULER.options(),
    **REQUEST.options("default_availability_zone"),
    **RUN.options("facts_max_age"),
}

_IS_GONE = (
    "If its domain or its disks are gone from the host: run bootflow.compute.shelve_offload, then this again, which builds the instance from its"
    " image or its root volume."
)

#: Of an answer: whether the host of a failed instance has nothing of it.
CLEANED = "cleaned"


class Unshelve(Work):
    """Starts or builds the guests."""

    starts_any = True
    connects_volumes = True

    # --- begin --------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        action, options = self.action, self.action.options
        action.options.update(read_settings(_VARIABLES, {}, action.variable))
        scheduler_settings.check(action)
        built_as = rebuild.wanted(action, None)
        self._candidates = Candidates(action)
        self._made_of: dict[str, flow.ImageData | None] = {}
        self._images = LedgerImages(stores=ledger_images.stores_of(action))
        self._wish = Wish(options["unshelve_availability_zone"], options["unshelve_unpin"], options["unshelve_host"])
        self._built_as = built_as
        self._configurations = scheduler_settings.configurations(action)

    def hosts_to_ask(self, tx: Transaction, operation: Operation, selection: Selection) -> set[str]:
        """Hosts whose facts are old, where a selected instance has no host. The ledger gets the settings of the inventory's hosts."""
        if not flow.needs_host(tx, selection):
            return set()
        if nodes.differing(tx, self._configurations):
            nodes.configure(tx, self._configurations)
        return set(stale_hosts(tx, self.action.hosts_to_use(), host_settings.facts_age(self.action.options)))

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        stale = self.hosts_to_ask(tx, operation, selection) if ask else set()
        if stale:
            return Begun(ask=stale)
        self._candidates.rehearse(tx)
        wanted = flow.Wanted(
            selection,
            known_hosts,
            self._wish,
            self._images,
            self._built_as.secrets_of,
            self._built_as.kept_secrets_of,
            self._built_as.kept_in,
            all_of(self.action),
        )
        done = flow.begin(tx, wanted, self._candidates.read, self._candidates.options)
        self._made_of = done.images
        return done.begun

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        is_new = row.uuid in self._made_of
        image = self._made_of.get(row.uuid)
        note = "" if not is_new else "from image %s" % image["name"] if image else "from its root volume"
        return {"builds": is_new, "made_of": image, "note": note}

    def change_of(self, row: Instance) -> tuple[str, str]:
        return "", " on %s" % row.host

    def begin_images(self, rows: t.Sequence[Instance]) -> dict[str, t.Any]:
        images = {uuid: Image(**data) for uuid, data in self._made_of.items() if data is not None}
        return rounds.begin_for(self.action, rows, images) if images else {}

    # --- on a host ----------------------------------------------------------------------------------------------------

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, Problems]:
        """Start the guests that the current host has, and build the others."""
        answers, problems = self._start([i for i in items if not i["builds"]], fresh)
        built, failed = self._build([i for i in items if i["builds"]])
        return {**answers, **built}, {**problems, **failed}

    def _start(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, Problems]:
        """Start the guests that the current host has. Domains of guests whose volumes were cut off are written again: they have the former targets."""
        answers: Answers = {}
        problems: Problems = {}
        cut_off = [i for i in items if i.get("lacking")]
        others = [i for i in items if not i.get("lacking")]
        works = ((hard_reboot.HardReboot(self.action), cut_off), (PowerWork(self.action, "running"), others))
        for work, instances in works:
            if not instances:
                continue
            try:
                done, failed = work.on_host(instances, fresh)
            except errors.BootflowError as e:  # the other ones of the host do not fail with them
                done, failed = {}, dict.fromkeys(uuids_of(instances), e)
            answers.update(done)
            problems.update(failed)
        for uuid, error in problems.items():
            if isinstance(error, errors.InstanceNotFound) or uuid in uuids_of(cut_off):
                error.remedy = _IS_GONE
        return answers, problems

    def _build(self, items: Items) -> tuple[Answers, Problems]:
        if not items:
            return {}, {}
        if self.action.check_mode:
            return {i["uuid"]: {"changed": True, "power_state": states.RUNNING} for i in items}, {}
        builds, _volumes, missing = self.action.open_ledger().inspect(hard_reboot.guests, uuids_of(items))
        builds = [b for b in builds if b.uuid not in missing]
        images = {i["uuid"]: i["made_of"] for i in items}
        for build in builds:
            build.made_of = images[build.uuid]
        work = _Building(self.action, builds)
        work.collect_images()
        work.run()
        problems: Problems = {**missing, **work.problems}
        answers = self._clean([i for i in items if i["uuid"] in problems])
        for uuid, ended in work.ended.items():
            answers[uuid] = {"changed": True, "power_state": ended.power_state}
        work.write_domains()  # a hard reboot finds a guest by its uuid, whatever its name is
        return answers, problems

    def undo_on_host(self, items: Items) -> Answers:
        return {} if self.action.check_mode else self._clean([i for i in items if i["builds"]])

    def _clean(self, items: Items) -> Answers:
        """Remove what the current host has of these instances. Returns whether that is done, in their answers."""
        try:
            unclean = clean_host(self.action, [{"uuid": i["uuid"], "name": i["domain"]} for i in items]).problems
        except errors.BootflowError:  # the next report of the host does it
            return {}
        return {i["uuid"]: {CLEANED: i["uuid"] not in unclean} for i in items}

    # --- finish -------------------------------------------------------------------------------------------------------

    def write_results(
        self,
        tx: Transaction,
        items: t.Mapping[str, Item],
        answers: t.Mapping[str, Item],
        failed: t.Mapping[str, errors.BootflowError],
    ) -> Problems:
        built = [u for u, i in items.items() if i["builds"]]
        clean = {u: bool(answers[u].get(CLEANED)) for u in built if u in failed}
        started = [u for u in items if u not in failed]
        flow.finish(tx, started, [u for u in built if u not in failed], clean)
        return {}


class _Building(rebuild.Rebuilding):
    """Builds of guests that were there before, on other hosts: an agent in the guest finds that the instance is the same, and changes nothing."""

    def keys_of_drives(self) -> dict[str, str | None]:
        """The guests keep the SSH host keys that are on their disks."""
        return {}
