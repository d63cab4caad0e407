# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How Ansible reaches the guests of a project, as the inventory of the fleet says."""

from __future__ import annotations

import typing as t

from ansible.template import trust_as_template

from ...module_utils.ledger.compute import instances, views
from ...module_utils.ledger.db.transaction import Transaction
from ..devices.ssh_connections import JUMP, known_host
from ..run.ledger_action import LedgerAction

#: A guest without a host key that the ledger knows was made for this job, as molecule's own options for ssh have it.
UNKNOWN_KEY = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"


def connections(action: LedgerAction, project: str, is_direct: bool) -> dict[str, dict[str, str]]:
    """Return the variables of the connections to the instances of a project, by name. Those without an address are left out.

    :arg is_direct: the controller reaches their addresses without their compute hosts
    """

    def read(tx: Transaction) -> list[dict[str, t.Any]]:
        return views.instance_views(tx, instances.select_live(tx, project=project))

    return {
        view["name"]: {
            "ansible_host": sorted(view["addresses"], key=lambda a: int(a["version"]))[0]["ip_address"],
            "ansible_ssh_common_args": _arguments(action, view, is_direct),
        }
        for view in action.open_ledger().inspect(read)
        if view["addresses"]
    }


def _arguments(action: LedgerAction, view: t.Mapping[str, t.Any], is_direct: bool) -> str:
    known = known_host(view) or UNKNOWN_KEY
    if is_direct:
        return known
    templar = action._templar.copy_with_new_env(available_variables={**action.task_vars, "bootflow_instance": view})
    return ("%s %s" % (known, templar.template(trust_as_template(JUMP)))).strip()
