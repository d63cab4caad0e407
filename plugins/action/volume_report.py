# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.volume_report."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.request import QUOTA
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.volumes import VOLUME_SCHEDULER, VOLUME_SELECTION, VOLUME_WORK
from ..module_utils.core.volumes import states
from ..module_utils.flows.volumes import schedule
from ..module_utils.flows.volumes.extend import FormerSize, former_sizes
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage import volume_views
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import outcome
from ..plugin_utils.run.stage_results import StageResults
from ..plugin_utils.settings import volume_settings
from ..plugin_utils.volumes import volume_texts

# What a volume is in that nothing is wrong with.
GOOD = (states.AVAILABLE, states.IN_USE, states.RESERVED, states.ATTACHING, states.DETACHING)


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "volumes": VOLUME_WORK.named("volumes").but(required=False, default=()),
        **VOLUME_SELECTION.options("volume_ids"),
        **QUOTA.options("project"),
        **VOLUME_SCHEDULER.options(),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True, "msg": "The plan was shown before."}
        options = self.options
        context = self.context()
        names = _names(options["volumes"])

        def end(tx: Transaction) -> tuple[list[dict[str, t.Any]], list[FormerSize]]:
            schedule.give_up(tx, volume_settings.scheduler_options(options, context.now))
            if options["volume_ids"] is not None:
                return volume_views.volumes(tx, ids=options["volume_ids"]), former_sizes(tx, options["volume_ids"])
            return volume_views.volumes(tx, names=names, project=options["project"]) if names else [], []

        shown, small = self.open_ledger().transact(end)
        bad = [volume_texts.failed_item(v) for v in shown if v["status"] not in GOOD]
        bad += self._small(shown, small)
        if options["print_table"]:
            tables.show(self._display, volume_texts.volume_table(shown) if shown else ["No volumes."])
        return outcome(errors.VolumeFailed(bad, len(shown)), changed=False, volumes=shown)

    def _small(self, shown: t.Sequence[t.Mapping[str, t.Any]], small: t.Sequence[FormerSize]) -> list[errors.Item]:
        """Return the volumes that were extended, but not for their guests, with the reasons that their hosts gave in this run."""
        hosts = sorted({s.host for s in small if s.host})
        results = StageResults(self, "compute_attachments")
        answers = {host: results.read("work", host) or {} for host in hosts}
        names = {v["id"]: v["name"] or v["id"] for v in shown}
        items = []
        for attachment in small:
            why = answers.get(attachment.host or "", {}).get("problems", {}).get(attachment.volume_id)
            if not why or not attachment.ends_at_start(why["code"]):
                state = "the guest of %s has the former size" % attachment.instance
                name = names[attachment.volume_id]
                items.append(errors.failed_item(name, attachment.volume_id, why, host=attachment.host, state=state))
        return items


def _names(entries: t.Iterable[t.Any]) -> list[str]:
    """The names of entries as volume_accept has read them."""
    names = [e.get("name") or e.get("display_name") for e in entries if isinstance(e, t.Mapping)]
    return [str(name) for name in names if name]
