# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.volume_accept."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.reading.problems import Problems
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.volumes import VOLUME, VOLUME_SCHEDULER, VOLUME_WORK
from ..module_utils.flows.volumes import accept
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage import backends, volumes
from ..plugin_utils.run import host_settings, inventory_hosts, tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.settings import ledger_images, storage_settings, volume_settings


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **VOLUME_WORK.options("volumes"),
        **VOLUME.options(),
        **VOLUME_SCHEDULER.options(),
        **RUN.options("facts_max_age"),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        volume_settings.check(self)
        stored = ledger_images.images_of(self)
        settings = volume_settings.read_options(self.options, stored)
        configurations = volume_settings.configurations(self)
        hosts = storage_settings.storage_hosts(self)

        def write(tx: Transaction) -> tuple[accept.VolumeAccepted, list[str]]:
            if self.check_mode:
                backends.configure(tx, configurations)
            problems = Problems()
            volume_settings.check_hints(self.options["volumes"], self.options, problems)
            accepted = accept.VolumeAccepted()
            try:
                accepted = accept.accept(tx, self.options["volumes"], settings)
            except errors.InvalidRequest as e:
                problems.extend(e.errors)
            problems.raise_if_any()
            if not accepted.changed:
                return accepted, []
            made = volumes.select(tx, ids=accepted.created)
            ledger_images.check_active(tx, stored, [r.image_id for r in made if r.image_id])
            begun = {volumes.host_of(r.pool_host) for r in volumes.select(tx, ids=accepted.resumed) if r.pool_host}
            reachable_hosts = inventory_hosts.reachable(self, sorted(begun))
            inventory_hosts.refuse_left_out(reachable_hosts, self.within_limit(reachable_hosts))
            return accepted, backends.stale_hosts(tx, hosts, host_settings.facts_age(self.options))

        if not self.check_mode:  # apart: it locks backends, and accept locks projects first
            self.open_ledger().transact(backends.configure, configurations)
        with volume_settings.told_in_order():
            accepted, stale = self.write(write, collisions=3)
        if not accepted.changed and self.options["print_table"]:
            count = len(accepted.unchanged)
            words = "%d volume%s the request" % (count, " already matches" if count == 1 else "s already match")
            tables.show(self._display, ["Nothing to do: %s." % (words if count else "no volume is requested")])
        return {
            "changed": accepted.changed,
            "created": accepted.created,
            "resumed": accepted.resumed,
            "unchanged": accepted.unchanged,
            "ask": stale,
            "again": accepted.changed,
        }
