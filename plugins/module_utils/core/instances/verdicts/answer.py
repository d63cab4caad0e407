# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answer of a host for an instance in a stage: a mapping that has an ``error`` where the stage failed."""

from __future__ import annotations

import typing as t

from ... import errors
from .. import states

Answer = t.Mapping[str, t.Any]


def silence(host: str) -> dict[str, t.Any]:
    """Return the answer of a host that answered nothing."""
    error = errors.HostUnreachable(host=host, reason="it returned no result")
    return {"error": error.as_dict(), "silent": True}


def is_silence(answer: Answer) -> bool:
    """Whether the host answered nothing; an answer with an error is one."""
    return bool(answer.get("silent"))


def error_of(answer: Answer) -> errors.BootflowError | None:
    """Return the error of an answer."""
    return errors.from_dict(answer["error"]) if answer.get("error") else None


def guest_of(answer: Answer, error: errors.BootflowError | None) -> tuple[int, bool]:
    """Return the power_state of the guest, and whether its host is known to have no domain of it.

    After a failure an answer has a ``power_state`` only if that is known: NOSTATE is that of a guest without a domain.
    """
    power_state = answer.get("power_state")
    domain_missing = error is not None and (power_state == states.NOSTATE or isinstance(error, errors.InstanceNotFound))
    return int(power_state or states.NOSTATE), domain_missing
