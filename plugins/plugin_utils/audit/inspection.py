# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inspection of compute hosts: the question, and its answers as evidence."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.audit.evidence import DhcpNetwork, Domain, Reservation, Snapshot, Unplugged
from ...module_utils.flows.recovery import audit as ledger_audit
from ...module_utils.ledger.database import Ledger
from ..run import host_settings, host_variables
from ..run.ledger_action import LedgerAction

Answer = t.Mapping[str, t.Any]
_RESERVATION = ("mac", "address", "complete", "used")


def ledger_to_read(action: LedgerAction) -> Ledger:
    """Return the ledger; in check mode an empty one where there is none yet."""
    return action.rehearsal_ledger() if action.check_mode else action.open_ledger()


def inspect_compute_host(action: LedgerAction, host: str, begun: Answer) -> dict[str, t.Any]:
    """Ask the current host, a compute host. The question names the volumes that the first stage read, so the answer has the time of that stage.

    :arg begun: the result of the first stage
    """
    configuration = host_settings.configuration(host_variables.of_host(action.task_vars["hostvars"], host), host)
    arguments = {
        **host_settings.node_info_arguments(action, configuration),
        "iqn_prefixes": begun.get("iqn_prefixes") or [],
        "known_targets": (begun.get("known_targets") or {}).get(host, []),
        "list_reservations": True,
        "list_other_disks": True,
        "volumes": (begun.get("volumes") or {}).get(host, {}),
    }
    try:
        answer = action.run_module("compute_node_info", arguments)
    except errors.BootflowError as e:
        action.ports.display.warning("%s did not answer: %s" % (host, e.paragraph))
        return {"inspected": False, "error": e.as_dict()}
    return {
        "inspected": True,
        "began_at": begun["began_at"],
        "compute_node": answer["compute_node"],
        "iscsi": answer.get("iscsi") or {},
        "dhcp": answer.get("dhcp") or {},
        "configuration": configuration,
    }


def read_snapshot(host: str, answer: Answer, resumes: bool) -> Snapshot:
    """Return the answer of a host as evidence. :arg resumes: guests are started again after a restart of the host"""
    facts = answer["compute_node"]
    return Snapshot(
        host=host,
        node=facts["hypervisor_hostname"],
        began_at=answer["began_at"],
        domains=[Domain.from_fact(d) for d in facts["domains"]],
        folders=list(facts.get("instance_folders") or ()),
        volumes=dict(facts.get("instance_volumes") or {}),
        columns=ledger_audit.columns_of(facts, answer["configuration"]),
        networks=_networks(answer["dhcp"]),
        unplugged=[Unplugged(**tap) for tap in answer["dhcp"].get("unplugged") or ()],
        networks_error=answer["dhcp"].get("error"),
        boot_id=facts.get("boot_id") or "",
        at_work=frozenset(facts.get("at_work") or ()),
        complete=frozenset(facts.get("complete_guests") or ()),
        resumes=resumes,
        machine=facts.get("host_uuid") or "",
    )


def _networks(dhcp: Answer) -> dict[str, DhcpNetwork] | None:
    if not dhcp or dhcp.get("error"):
        return None
    return {
        n["name"]: DhcpNetwork(n["ours"], [Reservation(**{f: r[f] for f in _RESERVATION}) for r in n["reservations"]])
        for n in dhcp["networks"]
    }
