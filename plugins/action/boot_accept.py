# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_accept."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.reading.nearest import suggestion
from ..module_utils.core.reading.problems import Problems
from ..module_utils.core.request.guest_data import GuestSecrets, user_data_doubt
from ..module_utils.core.request.later import without_effect
from ..module_utils.core.request.unread_names import unread_names, unread_requirements
from ..module_utils.core.settings.apply import FOLLOW
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import PLAYBOOKS, RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.flows.boot import accept
from ..module_utils.ledger.compute import before_boot, instances
from ..module_utils.ledger.database import Ledger
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage import attachments, backends
from ..plugin_utils.builds import kept_guest_data
from ..plugin_utils.run import host_settings, inventory_hosts, tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff
from ..plugin_utils.settings import (
    boot_request,
    boot_volume_settings,
    scheduler_settings,
    storage_settings,
    variable_names,
    volume_settings,
)
from ..plugin_utils.startup import preload

if t.TYPE_CHECKING:
    from ..module_utils.flows.recovery import leases

preload.load(preload.action("boot_schedule"), "numpy")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **REQUEST.options(),
        **FOLLOW.options(),
        **SCHEDULER.options(),
        **boot_volume_settings.ARGUMENTS,
        **RUN.options("admin_password_dir", "facts_max_age", "print_table"),
    }

    def check_settings(self, problems: Problems) -> None:
        scheduler_settings.check(self, problems)

    def act(self) -> dict[str, t.Any]:
        request = boot_request.BootRequest(
            self.options, scheduler_settings.reading_of(self), scheduler_settings.zones(self), self.context().actor
        )
        if not self.options["follow_file"]:
            request.refuse_fields_of_apply()
        scheduler_settings.check(self)
        hosts = self.hosts_to_use()
        variable_names.warn(self, scheduler_settings.variables_of_hosts(self))
        self._warn_of_names(request)
        self._warn_of_user_data(request)
        options = boot_volume_settings.accept_options(self, request)
        if self.check_mode:
            ledger = self.rehearsal_ledger()
        else:
            ledger = self.open_ledger()

        def write(tx: Transaction) -> tuple[accept.Accepted, list[str], bool]:
            accepted = accept.accept(tx, request.requests, options)
            if not accepted.builds:
                return accepted, [], False
            self._check_group()
            if accepted.created:
                request.check_image_files()
            self._check_password_folder()
            if boot_volume_settings.uses_volumes(request.requests):
                inventory_hosts.in_inventory(self, attachments.storage_hosts(tx, accepted.created))
            before = self._look(tx)
            return accepted, self._with_resumed(tx, accepted, before.ask(hosts)), before.left_work

        makes_volumes = boot_volume_settings.makes_volumes(request.requests)
        configurations = volume_settings.configurations(self) if makes_volumes else {}
        if self.check_mode:
            with ledger.rehearse() as tx:
                if makes_volumes:
                    backends.configure(tx, configurations)
                if self.options["follow_file"]:
                    self._rehearse_deletions(tx)
                accepted, stale, _due = write(tx)
        else:
            if makes_volumes:
                ledger.transact(backends.configure, configurations)  # apart: accepting locks projects before backends
            accepted, stale, due = ledger.transact(write, collisions=3)
            # A transaction of its own, after this run took over what it requested: accept has locked subnets, and no instance is
            # locked after them.
            expired = self._end_what_died(ledger) if due else None
            if expired is not None:
                now = ledger.inspect(self._look).ask(hosts) if expired.to_clean else []
                stale += [h for h in dict.fromkeys([*now, *expired.to_ask]) if h not in stale]
            having = [r for r in request.requests if r.user_data is not None or r.injected_files]
            if having:
                secrets = [GuestSecrets(r.user_data, tuple(r.injected_files)) for r in having]
                kept_guest_data.of_action(self).keep_or_warn(self, secrets)
        lines = self._lines(accepted)
        if lines and self.options["print_table"] and not self.options["follow_file"]:
            tables.show(self._display, lines)
        return {
            "changed": accepted.changed,
            "needs_build": accepted.builds,
            "reservation_id": accepted.reservation_id,
            "created": accepted.created,
            "resumed": accepted.resumed,
            "unchanged": accepted.unchanged,
            "updated": accepted.updated,
            "drift": [{"instances": names, "changes": list(words)} for words, names in accepted.drift.items()],
            "diff": diff(
                "instances",
                "".join("%(name)s %(field)s: %(from)s\n" % c for c in accepted.changes),
                "".join("%(name)s %(field)s: %(to)s\n" % c for c in accepted.changes),
            ),
            "stale_hosts": stale,
            "volumes": accepted.builds and boot_volume_settings.uses_volumes(request.requests),
            "stale_storage_hosts": self._stale_storage(ledger) if accepted.builds and makes_volumes else [],
        }

    def _check_group(self) -> None:
        """:raises InvalidInput: the inventory has no compute host, by which group it should."""
        if self.compute_hosts():
            return
        groups = set(self.task_vars.get("groups") or ()) - {"all", "ungrouped"}
        group = host_settings.values(self, RUN).compute_group
        if group in groups:
            raise errors.InvalidInput(
                message="the group %s of the inventory has no host, so there is no compute host" % group,
                remedy="Put the compute hosts into it.",
            )
        raise errors.InvalidInput(
            message="the inventory has no group %s, so there is no compute host" % group,
            remedy="Put the compute hosts into it, or name their group in bootflow_compute_group. %s"
            % suggestion(group, groups, "The list of groups"),
        )

    def _check_password_folder(self) -> None:
        """Passwords that cannot be left there would be lost when the guests have them."""
        folder = self.options["admin_password_dir"]
        if folder and not self.check_mode and host_settings.values(self, PLAYBOOKS).enable_instance_password:
            from ..plugin_utils.builds import passwords  # of few runs

            passwords.check_folder(folder)

    def _with_resumed(self, tx: Transaction, accepted: accept.Accepted, stale: list[str]) -> list[str]:
        """``stale`` and the hosts of builds that this run took over, whose guests may be built there by now."""
        taken = {r.host for r in instances.builds_taken_over(tx)} if accepted.resumed else set()
        return stale + [h for h in self._asked() if h in taken and h not in stale] if taken else stale

    def _asked(self) -> list[str]:
        """The compute hosts that this run can ask, also where it places no instance."""
        return self.within_limit(self.compute_hosts())

    def _end_what_died(self, ledger: Ledger) -> leases.Expired:
        from ..module_utils.flows.recovery import leases  # a tenth of all that is loaded

        return ledger.transact(leases.expire, self._asked())

    def _rehearse_deletions(self, tx: Transaction) -> None:
        from ..plugin_utils.settings import apply_plan  # with all that moves instances

        apply_plan.rehearse_deletions(self, tx)

    def _lines(self, accepted: accept.Accepted) -> list[str]:
        lines = []
        if not accepted.changed:
            count = len(accepted.unchanged)
            matches = " already matches" if count == 1 else "s already match"
            lines.append("Nothing to do: %d instance%s the request." % (count, matches))
        would = self.check_mode
        fields: dict[str, list[str]] = {}
        for change in accepted.changes:
            fields.setdefault(change["name"], []).append(change["field"])
        for name, changed in fields.items():
            lines.append("%s: %s %s." % (name, "would change" if would else "changed", ", ".join(changed)))
        if accepted.replaced:
            words = "never had a host: %s" % ("would be replaced" if would else "replaced")
            lines.append("%s %s." % (", ".join(accepted.replaced), words))
        for changes, names in accepted.drift.items():
            verb, they = ("keeps", "it was") if len(names) == 1 else ("keep", "they were")
            words = "%s %s the catalogue entries with which %s accepted; changed since then: %s."
            lines.append(words % (", ".join(names), verb, they, "; ".join(changes)))
        return lines

    def _warn_of_names(self, request: boot_request.BootRequest) -> None:
        """Of extra specs and image properties without effect, once for each flavor and image."""
        flavors = {r.flavor.name: r.flavor for r in request.requests}
        used = [image for r in request.requests for image in (r.image, r.root_image) if image is not None]
        images = {image.name: image for image in used}
        filters = set(request.filters or ())
        aggregates = {a for each in scheduler_settings.aggregates_of(self).values() for a in each}
        compared = {key for aggregate in aggregates for key in aggregate.metadata}
        of_flavors = compared if "AggregateInstanceExtraSpecsFilter" in filters else ()
        of_images = compared if "AggregateImagePropertiesIsolation" in filters else ()
        for text in (
            *without_effect(self.options["instances"] or ()),
            *unread_names(flavors.values(), (), of_flavors),
            *unread_names((), images.values(), of_images),
            *unread_requirements(flavors.values(), filters, scheduler_settings.has_own_filters(filters)),
            *scheduler_settings.unread(self, aggregates),
        ):
            self._display.warning(text)

    def _warn_of_user_data(self, request: boot_request.BootRequest) -> None:
        """Of user data that no program in a guest may read, once for each entry: such a guest comes up, without what it should have."""
        for entry in request.requests:
            doubt = user_data_doubt(entry.user_data)
            if doubt:
                self._display.warning("The user data of %s %s." % (entry.name, doubt))

    def _stale_storage(self, ledger: Ledger) -> list[str]:
        hosts = storage_settings.storage_hosts(self)
        return ledger.inspect(backends.stale_hosts, hosts, host_settings.facts_age(self.options))

    def _look(self, tx: Transaction) -> before_boot.Before:
        return before_boot.look(tx, host_settings.facts_age(self.options))
