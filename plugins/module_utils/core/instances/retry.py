# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The retry record of a build: {num_attempts, hosts [[host, node]], exc, exc_reason}.

source: Nova's populate_retry and _do_build_and_run_instance. Every function returns a new record and
leaves the given one unchanged; a record of None means that the build is not retried.
"""

from __future__ import annotations

import typing as t

from ..errors import BootflowError, InvalidInput, MaxRetriesExceeded

Record = t.Dict[str, t.Any]


def populate_retry(
    record: t.Mapping[str, t.Any] | None,
    max_attempts: int,
    instance_uuid: str,
    force_hosts: t.Sequence[str] = (),
    force_nodes: t.Sequence[str] = (),
) -> Record | None:
    """The record for the attempt that begins.

    None if builds have a single attempt: max_attempts is 1, or exactly one host or node is forced.
    Raises MaxRetriesExceeded if the attempts are used up; InvalidInput if ``record`` is not a retry record.
    """
    if max_attempts == 1 or len(force_hosts) == 1 or len(force_nodes) == 1:
        return None
    new = _copy(record)
    new["num_attempts"] += 1
    reason = new.pop("exc_reason", None)
    if new["num_attempts"] > max_attempts:
        raise MaxRetriesExceeded(
            reason="Exceeded max scheduling attempts %d for instance %s. Last exception: %s"
            % (max_attempts, instance_uuid, reason),
            remedy="See the faults of the instance, one for each attempt. bootflow_max_attempts sets how many hosts are tried.",
        )
    return new


def record_host(record: t.Mapping[str, t.Any] | None, host: str, node: str) -> Record | None:
    """The record with the chosen host, which is not chosen again for this build."""
    if record is None:
        return None
    new = _copy(record)
    if [host, node] not in new["hosts"]:
        new["hosts"].append([host, node])
    return new


def record_failure(
    record: t.Mapping[str, t.Any] | None, host: str | None, node: str | None, error: BootflowError
) -> Record | None:
    """The record with the reason of the failed attempt on that host."""
    new = _copy(record) if host is None or node is None else record_host(record, host, node)
    if record is None or new is None:
        return None
    new["exc"] = "%s: %s" % (error.code, error.message)
    new["exc_reason"] = error.message
    return new


def _copy(record: t.Mapping[str, t.Any] | None) -> Record:
    try:
        new: Record = dict(record or {})
        new["num_attempts"] = int(new.get("num_attempts", 0))
        new["hosts"] = [[str(host), str(node)] for host, node in new.get("hosts", ())]
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            reason="the value is not a retry record", remedy="Use {num_attempts: 1, hosts: [[host, node]]}."
        ) from None
    return new
