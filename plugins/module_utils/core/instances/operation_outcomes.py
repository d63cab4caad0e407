# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Outcomes of an operation: from the answers of hosts to the states of instances, and what people read of them.

An answer is what a host's task returns for one instance: ``changed``, ``power_state``, ``vm_state`` where the work decides it, ``error``
(as_dict()), ``forced``, ``restarted``, ``gone``. An item is what the beginning of the operation knew of the instance.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .. import errors
from . import states
from .verdicts.answer import guest_of, is_silence

Answer = t.Dict[str, t.Any]
Answers = t.Dict[str, Answer]  # by the uuids of instances
Item = t.Mapping[str, t.Any]
Errors = t.Mapping[str, errors.BootflowError]  # by the uuids of instances


@dataclass(frozen=True)
class Outcome:
    """The result for one instance on its host."""

    power_state: int = states.NOSTATE  # after a failure: if it is known
    error: errors.BootflowError | None = None
    vm_state: str | None = None  # what its host made of it; None: by the operation's rule
    domain_missing: bool = False  # after a failure: its host has no domain of it, which is known

    @classmethod
    def of_answer(
        cls, answer: t.Mapping[str, t.Any], error: errors.BootflowError | None, vm_state: str | None = None
    ) -> Outcome:
        """Return what a host answered. See guest_of()."""
        power_state, domain_missing = guest_of(answer, error)
        return cls(power_state, error, vm_state, domain_missing)


def vm_state_after(rule: states.Action, fails_to: str | None, outcome: Outcome) -> str | None:
    """Return the vm_state that an instance gets by an operation; None: it keeps its own.

    :arg fails_to: vm_state after a failure whose guest does not run; None: always as before.
    source: Nova's reboot_instance
    """
    if outcome.vm_state is not None:
        return outcome.vm_state
    if outcome.error is None:
        return rule.result
    if fails_to is None:
        return None
    if outcome.domain_missing:
        return fails_to
    if outcome.power_state == states.NOSTATE:  # not known
        return None
    return rule.result if outcome.power_state == states.RUNNING else fails_to


# --- on a host ----------------------------------------------------------------------------------------------------------


def with_errors(answers: Answers, problems: t.Mapping[str, Answer]) -> Answers:
    """Add the errors of instances to their answers. :arg problems: uuid -> {error}"""
    return {**answers, **{uuid: {**answers.get(uuid, {}), **problem} for uuid, problem in problems.items()}}


def accept_missing_domains(problems: Errors) -> tuple[Answers, dict[str, errors.BootflowError]]:
    """Count a missing domain as a guest that is off, for an operation that has guests off.

    Returns the answers of these instances, and the errors of the others.
    """
    missing_uuids = {uuid for uuid, error in problems.items() if isinstance(error, errors.InstanceNotFound)}
    off: Answers = {uuid: {"changed": True, "power_state": states.NOSTATE, "gone": True} for uuid in missing_uuids}
    return off, {uuid: error for uuid, error in problems.items() if uuid not in missing_uuids}


def not_restarted(answers: t.Mapping[str, Item]) -> set[str]:
    """Return the instances whose guests did not restart when they were asked: a hard reboot follows."""
    return {uuid for uuid, answer in answers.items() if not answer.get("error") and answer.get("restarted") is False}


def with_reset_guests(answers: Answers, deaf: t.Collection[str]) -> Answers:
    """Mark guests as forced that were rebooted hard because they did not restart. :arg deaf: see not_restarted()"""
    return {uuid: {**answer, "forced": uuid in deaf or bool(answer.get("forced"))} for uuid, answer in answers.items()}


# --- on the controller --------------------------------------------------------------------------------------------------


def after_death(item: Item, answer: Item, dies_to: str | None) -> Item:
    """Return the answer of a host for an instance, with the vm_state that the instance has if its run died.

    :arg dies_to: vm_state of an instance in which its run died. One that a dead run left in the middle of the operation has it after any
        failure, the others after silence.
    """
    if is_silence(answer):
        return {"error": answer["error"], "vm_state": dies_to}
    if answer.get("error") and dies_to and "before" not in item:  # a dead run began it
        return {"vm_state": dies_to, **answer}
    return answer


def outcome_of(answer: Item, error: errors.BootflowError | None) -> Outcome:
    """Return the outcome of an answer. :arg error: of the instance, which may be another one than its host's"""
    return Outcome.of_answer(answer, error, answer.get("vm_state"))


def summary_of(
    item: Item, answer: Item, error: errors.BootflowError | None, vm_state: str | None, missing: str
) -> dict[str, t.Any]:
    """Return what people read of an instance at the end of an operation.

    :arg vm_state: see vm_state_after(). :arg missing: the note of an instance whose domain is missing, where this counts as success
    """
    domain_missing = answer.get("gone")
    return {
        "name": item["name"],
        "uuid": item["uuid"],
        "host": item["host"],
        "vm_state": vm_state or item["vm_state"],
        "power_state": states.NOSTATE if domain_missing else answer.get("power_state") or item["power_state"],
        "forced": bool(answer.get("forced")),
        "note": missing if domain_missing else item.get("note", ""),
        "error": None if error is None else error.as_dict(),
    }


def note_of(summary: Item, forced: str) -> str:
    """Return the note of an instance in the table. :arg forced: the note of a guest that had to be forced"""
    if summary["error"]:
        return str(summary["error"]["code"])
    return "; ".join(filter(None, (summary["note"], forced if summary["forced"] else "")))
