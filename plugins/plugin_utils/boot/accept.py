# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A request is accepted: instances are in the ledger, without a host yet."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.reading.nearest import suggestion
from ...module_utils.core.request.guest_data import GuestSecrets
from ...module_utils.core.settings.plans import PLANS
from ...module_utils.core.settings.run import PLAYBOOKS, RUN
from ...module_utils.flows.boot import accept
from ...module_utils.ledger.compute import before_boot, instances
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.plans import plans
from ...module_utils.ledger.storage import attachments, backends
from ..guest_data import guest_data_place
from ..run import host_settings, inventory_hosts, tables
from ..run.firewall import port_filters
from ..run.ledger_action import LedgerAction
from ..run.ovn import northbound
from ..run.results import diff
from ..run.stage_results import StageResults
from ..settings import (
    boot_request,
    boot_volume_settings,
    ledger_images,
    scheduler_settings,
    storage_settings,
    variable_names,
    volume_settings,
)
from .request_warnings import warn_of_names, warn_of_user_data

if t.TYPE_CHECKING:
    from ...module_utils.flows.recovery import leases
    from ..plans.chosen import Chosen

Result = t.Dict[str, t.Any]  # of a task


class BootAccept:
    """The request of a boot, by the options of the action."""

    def __init__(self, action: LedgerAction):
        self.action = action
        self.options = action.options

    def run(self) -> Result:
        """Accept the request; in check mode, roll it back. Returns the result of the task, which later stages find in the folder of the run."""
        result = StageResults(self.action, "boot_accept").begin("accept", self._run)
        over = not (result["changed"] or self.action.check_mode or self.options["follow_file"])
        return {**result, **(self._report() if over else {}), "over": over}

    def _report(self) -> Result:
        """Report the instances of a request that changes nothing: no task follows."""
        from .report import REPORT_IF_FINISHED, BootReport  # other boots need it much later

        return BootReport(self.action, REPORT_IF_FINISHED).run()

    def _run(self) -> Result:
        self.request = self._read_request()
        self.no_database = northbound.refusal(self.action, self.request.networks_used())
        self.hosts = self.action.hosts_to_use()
        variable_names.warn(self.action, scheduler_settings.variables_of_hosts(self.action))
        warn_of_names(self.action, self.request)
        warn_of_user_data(self.action, self.request)
        self.accept_options = boot_volume_settings.accept_options(self.action, self.request)
        ledger = self.action.rehearsal_ledger() if self.action.check_mode else self.action.open_ledger()
        self._choose_plan(ledger)
        makes_volumes = boot_volume_settings.makes_volumes(self.request.requests)
        configurations = volume_settings.configurations(self.action) if makes_volumes else None
        accepted, stale = (self._rehearse if self.action.check_mode else self._accept)(ledger, configurations)
        lines = accepted_lines(accepted, self.action.check_mode)
        if lines and self.options["print_table"] and not self.options["follow_file"]:
            tables.show(self.action.ports.display, lines)
        return {
            "changed": accepted.changed,
            "again": accepted.builds,
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
            "ask": stale,
            "volumes": accepted.builds and boot_volume_settings.uses_volumes(self.request.requests),
            "storage": self._stale_storage(ledger) if accepted.builds and makes_volumes else [],
        }

    def _read_request(self) -> boot_request.BootRequest:
        request = boot_request.BootRequest(
            self.options,
            scheduler_settings.reading_of(self.action),
            scheduler_settings.zones(self.action),
            self.action.context().actor,
            ledger_images=ledger_images.images_of(self.action),
            filters_ports=port_filters.are_filtered(self.action),
        )
        if not self.options["follow_file"]:
            request.refuse_fields_of_apply()
        scheduler_settings.check(self.action)
        guest_data_place.check(self.action)
        return request

    def _choose_plan(self, ledger: Ledger) -> None:
        """Find the plan that is used, and check that it would still do. :raises BootflowError: it would not"""
        self.plan: Chosen | None = None
        settings = host_settings.values(self.action, PLANS)
        if (settings.plan is not None or settings.plan_out is not None) and not self.options["follow_file"]:
            from ..plans import boot_plans  # of few runs

            self.plan = boot_plans.checked(self.action, ledger, self.hosts)

    # --- the ledger -----------------------------------------------------------------------------------------------------

    def _rehearse(
        self, ledger: Ledger, configurations: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]] | None
    ) -> tuple[accept.Accepted, list[str]]:
        """Accept the request, and roll it back. :arg configurations: of the backends of volumes; None: no volume is made"""
        with ledger.rehearse() as tx:
            if configurations is not None:
                backends.configure(tx, configurations)
            if self.options["follow_file"]:
                self._rehearse_steps(tx)
            if plans.any_expired(tx):
                self._rehearse_expiry(tx)
            accepted, stale, _due = self._write(tx)
            if host_settings.values(self.action, PLANS).plan_out is not None and not self.options["follow_file"]:
                self._check_holdable(tx, accepted)
        return accepted, stale

    def _accept(
        self, ledger: Ledger, configurations: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]] | None
    ) -> tuple[accept.Accepted, list[str]]:
        """Accept the request, and settle what dead runs left. Returns also the hosts that are to report before the scheduling."""
        if configurations is not None:
            ledger.transact(backends.configure, configurations)  # apart: accepting locks projects before backends
        accepted, stale, due = ledger.transact(self._write, collisions=3)
        # A separate transaction, after this run took over what it requested: accept has locked subnets, and no instance is
        # locked after them.
        expired = self._expire_leases(ledger) if due else None
        if expired is not None:
            now = ledger.inspect(self._look).ask(self.hosts) if expired.to_clean else []
            stale += [h for h in dict.fromkeys([*now, *expired.to_ask]) if h not in stale]
        having = [r for r in self.request.requests if r.user_data is not None or r.injected_files]
        if having:
            secrets = [GuestSecrets(r.user_data, tuple(r.injected_files)) for r in having]
            guest_data_place.of_action(self.action).keep_or_warn(self.action, secrets)
        return accepted, stale

    def _write(self, tx: Transaction) -> tuple[accept.Accepted, list[str], bool]:
        """Accept the request. Returns also the hosts that are to report, and whether dead runs left work."""
        accepted = self._accepted(tx)
        if not accepted.builds:
            return accepted, [], False
        self._check_group()
        if accepted.created:
            if self.no_database is not None:  # what exists already needs nothing of it
                raise self.no_database
            ledger_images.check_active(tx, self.request.catalogue.ledger_images, self.request.image_ids())
            self.request.check_image_files()
        self._check_password_folder()
        if boot_volume_settings.uses_volumes(self.request.requests):
            inventory_hosts.in_inventory(self.action, attachments.storage_hosts(tx, accepted.created))
        before = self._look(tx)
        if self.plan is not None:  # its hosts have reported, and no other is needed
            return accepted, [], before.left_work
        return accepted, self._add_hosts_of_resumed(tx, accepted, before.ask(self.hosts)), before.left_work

    def _accepted(self, tx: Transaction) -> accept.Accepted:
        if self.plan is None:
            return accept.accept(tx, self.request.requests, self.accept_options)
        from ...module_utils.flows.plans import held  # of few runs

        return held.use(tx, self.plan.plan, self.plan.file, self.request.requests, self.accept_options)

    def _check_group(self) -> None:
        """:raises InvalidInput: the inventory has no compute host, by which group it should."""
        if self.action.compute_hosts():
            return
        groups = set(self.action.task_vars.get("groups") or ()) - {"all", "ungrouped"}
        group = host_settings.values(self.action, RUN).compute_group
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
        """Check that passwords can be written before guests get them. :raises InvalidInput: they cannot"""
        folder = self.options["admin_password_dir"]
        if (
            folder
            and not self.action.check_mode
            and host_settings.values(self.action, PLAYBOOKS).enable_instance_password
        ):
            from ..builds import passwords  # of few runs

            passwords.check_folder(folder)

    def _add_hosts_of_resumed(self, tx: Transaction, accepted: accept.Accepted, stale: list[str]) -> list[str]:
        """Return ``stale`` and the hosts of builds that this run took over: their guests may be built there by now."""
        adopted_hosts = {r.host for r in instances.builds_taken_over(tx)} if accepted.resumed else set()
        return (
            stale + [h for h in self._hosts_to_ask() if h in adopted_hosts and h not in stale]
            if adopted_hosts
            else stale
        )

    def _hosts_to_ask(self) -> list[str]:
        """Return the compute hosts that this run can ask, also where it places no instance."""
        return self.action.within_limit(self.action.compute_hosts())

    def _expire_leases(self, ledger: Ledger) -> leases.Expired:
        from ...module_utils.flows.recovery import leases  # a tenth of all that is loaded

        return ledger.transact(leases.expire, self._hosts_to_ask())

    def _rehearse_steps(self, tx: Transaction) -> None:
        from ..settings import apply_plan  # with all that moves instances

        apply_plan.take_planned(self.action, tx)
        apply_plan.rehearse_deletions(self.action, tx)

    def _rehearse_expiry(self, tx: Transaction) -> None:
        from ...module_utils.flows.plans import held  # of few runs

        held.expire(tx)

    @staticmethod
    def _check_holdable(tx: Transaction, accepted: accept.Accepted) -> None:
        from ...module_utils.flows.plans import held  # of few runs

        held.check_holdable(tx, accepted)

    def _stale_storage(self, ledger: Ledger) -> list[str]:
        hosts = storage_settings.storage_hosts(self.action)
        return ledger.inspect(backends.stale_hosts, hosts, host_settings.facts_age(self.options))

    def _look(self, tx: Transaction) -> before_boot.Before:
        return before_boot.look(tx, host_settings.facts_age(self.options))


def accepted_lines(accepted: accept.Accepted, check_mode: bool) -> list[str]:
    """Return what a boot changes without a build, as lines."""
    lines = []
    if not accepted.changed:
        count = len(accepted.unchanged)
        matches = " already matches" if count == 1 else "s already match"
        lines.append("Nothing to do: %d instance%s the request." % (count, matches))
    would = check_mode
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
