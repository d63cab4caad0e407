# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Outcomes of attaching and detaching interfaces: from the answers of hosts to the errors of instances, and to the table that people read.

An item has the fields of an interface when the operation began: ``port_id``, ``uuid``, ``name`` and ``host`` of its instance, ``mac_address``, ``network``,
``fixed_ips``, and ``new``, if this run made the port or took it from its guest.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from .. import errors
from ..instances.verdicts.answer import Answer, error_of

Item = t.Mapping[str, t.Any]
Items = t.Sequence[Item]
Failed = t.Dict[str, errors.BootflowError]  # by the port's id

# Of a detach that did not come to its end: what the guest has is not known.
AGAIN = "Run the same command again: it continues with this interface, which keeps the addresses until then."


def words(item: Item) -> str:
    """Return the interface in words."""
    addresses = ", ".join(item["fixed_ips"]) or item["mac_address"]
    return "interface %s of network %s, instance %s" % (addresses, item["network"], item["name"])


# --- on a host ----------------------------------------------------------------------------------------------------------


def detach_of(item: Item) -> dict[str, t.Any]:
    """Return the element of the option ``interfaces`` of the module domain_interface that detaches an interface."""
    return {
        "id": item["port_id"],
        "uuid": item["uuid"],
        "mac": item["mac_address"],
        "state": "detached",
        "network": item["source"],
    }


def stays_in_ledger(error: errors.BootflowError) -> errors.BootflowError:
    """Return ``error``, which others may have too, for an interface that the instance keeps in the ledger."""
    kept_error = errors.from_dict(error.as_dict())
    kept_error.remedy = "The ledger has the interface: run the same command again, or detach it. %s" % error.remedy
    return kept_error


def left_host(item: Item, host: str) -> errors.BootflowError:
    """Return the error of an interface whose instance went to another host, or got another run."""
    return errors.Conflict(
        message="instance %s left host %s, or a run began to work on it" % (item["name"], host),
        remedy=AGAIN,
    )


def detached_meanwhile(item: Item, error: errors.BootflowError | None) -> errors.BootflowError:
    """Return the error of an interface that another run detached before its guest had it.

    :arg error: why the guest has it still; None: it has not
    """
    if error is None:
        return errors.Conflict(
            message="another run detached the %s meanwhile" % words(item),
            remedy="Run the same command again to attach another one.",
        )
    return errors.Conflict(
        message="another run detached the %s meanwhile, and its guest does not release it: %s"
        % (words(item), error.message),
        remedy="Reboot the instance with bootflow_reboot_type: HARD, which defines the guest as the ledger has it.",
    )


def refused_by_guests(failed: Failed) -> list[str]:
    """Return the interfaces that guests keep for good: the end of the others that failed is not known."""
    return sorted(key for key, error in failed.items() if isinstance(error, errors.DeviceDetachFailed))


# --- on the controller --------------------------------------------------------------------------------------------------


@dataclass
class Results:
    """The results of all hosts."""

    items: list[dict[str, t.Any]] = field(default_factory=list)  # each with its host
    failed: Failed = field(default_factory=dict)
    done: set[str] = field(default_factory=set)  # ports that changed; the others were as requested
    of_instances: dict[str, list[errors.BootflowError]] = field(
        default_factory=dict
    )  # uuid -> errors of its interfaces

    def note_of(self, item: Item) -> str:
        """Return the note of an interface in the table."""
        error = self.failed.get(item["port_id"])
        if error is not None:
            return error.code
        return "" if item["port_id"] in self.done else "nothing to do"

    @property
    def failed_items(self) -> list[dict[str, t.Any]]:
        return [
            errors.failed_item(words(i), i["uuid"], self.failed[i["port_id"]].as_dict(), host=i["host"])
            for i in self.items
            if i["port_id"] in self.failed
        ]

    @property
    def good(self) -> list[dict[str, t.Any]]:
        """The interfaces that are as requested."""
        fields = ("port_id", "mac_address", "network", "fixed_ips", "host")
        return [
            {name: i[name] for name in fields} | {"instance": i["name"], "uuid": i["uuid"]}
            for i in self.items
            if i["port_id"] not in self.failed
        ]


def results_of(items: t.Iterable[Item], answers: t.Mapping[str, Answer]) -> Results:
    """Return the results of interfaces. :arg answers: of their hosts, by port; silence() where a host answered nothing"""
    results = Results()
    for item in items:
        answer = answers[item["port_id"]]
        results.items.append(dict(item))
        errors_of_instance = results.of_instances.setdefault(item["uuid"], [])
        error = error_of(answer)
        if error is not None:
            results.failed[item["port_id"]] = error
            errors_of_instance.append(error)
        elif answer.get("changed"):
            results.done.add(item["port_id"])
    return results
