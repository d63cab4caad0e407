# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The builds of a round on their way from the controller's task to the hosts' tasks, and their outcomes on the way back.

One transaction takes the builds of all hosts into their first stage, and one writes what became of them: a host's task reads and
writes a file in the folder of this ansible-playbook process (mode 0700, gone with it) instead of opening the ledger.
Ansible's own way, a registered result, would be walked through several times by its main process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import typing as t
from dataclasses import asdict, dataclass
from urllib.parse import unquote

from ...module_utils.core.networks.network_info import PortRecord
from ...module_utils.flows.boot import builds as ledger_builds
from ...module_utils.flows.boot.builds import Build, Ended
from ...module_utils.ledger.compute import ports
from ...module_utils.ledger.compute.instances import PlacedInstance
from ...module_utils.ledger.database import Ledger, no_garbage_sought
from ..run.ledger_action import LedgerAction
from ..run.stage_results import folder_of, path_of, write_whole

# So many seconds after the last write, a host's task writes the outcomes of all: the ledger shows guests that run while others are built.
WRITTEN_EVERY = 3.0
WRITTEN = "written"


@dataclass(frozen=True)
class Given:
    """Builds and data that were handed to a host's task."""

    builds: list[Build]
    more: bool  # the ledger may have builds for the host that wait for volumes
    later: bool  # outcomes may be left to the controller's next task
    at: float  # when that was


def give(action: LedgerAction, builds: t.Mapping[str, t.Sequence[Build]], more: t.Collection[str], later: bool) -> None:
    """Hand over the builds of a round: host -> builds, in the first stage. What was given before is void.

    :arg more: hosts with builds that wait for volumes. :arg later: see Given
    """
    folder, at = folder_of(action), action.context().now
    for path in folder.glob("*.builds"):
        path.unlink()
    made: dict[tuple[str, t.Any], str] = {}
    with no_garbage_sought():
        for host in {*builds, *more}:
            how = json.dumps({"more": host in more, "later": later, "at": at})
            write_whole(path_of(folder, host, "builds"), "%s\n%s" % (how, to_text(builds.get(host, ()), made)))
    (folder / WRITTEN).touch(mode=0o600)


def is_idle(action: LedgerAction, host: str) -> bool:
    """Whether builds were given to hosts, and ``host`` has none of them."""
    folder = folder_of(action)
    return not path_of(folder, host, "builds").exists() and (folder / WRITTEN).exists()


def take(action: LedgerAction, host: str) -> Given | None:
    """Take the data that was handed to ``host``, once. Returns None if there was none: the ledger knows its builds."""
    path = path_of(folder_of(action), host, "builds")
    try:
        how, _newline, builds = path.read_text().partition("\n")
    except FileNotFoundError:
        return None
    path.unlink()
    return Given(from_text(builds), **json.loads(how))


def untaken(action: LedgerAction) -> list[str]:
    """The hosts whose tasks never took what they were given."""
    return sorted(unquote(path.stem) for path in folder_of(action).glob("*.builds"))


def leave(action: LedgerAction, host: str, ended: t.Iterable[Ended]) -> None:
    """Leave the outcomes of a host's builds for collect(), which is called here when it is time."""
    folder = folder_of(action)
    write_whole(path_of(folder, host, "ended"), json.dumps([asdict(outcome) for outcome in ended]))
    if time.time() - (folder / WRITTEN).stat().st_mtime >= WRITTEN_EVERY:
        collect(action, None, wait=False)


def collect(action: LedgerAction, ledger: Ledger | None, wait: bool = True) -> list[str]:
    """Write the outcomes that hosts' tasks left. Returns the hosts with leftovers of builds that this run lost.

    :arg ledger: None: it is opened if there are outcomes. :arg wait: for another task that does so, otherwise leave it to that.
    """
    folder = folder_of(action)
    if not any(folder.glob("*.ended")):
        return []
    with contextlib.ExitStack() as held:
        lock = held.enter_context(open(folder / WRITTEN, "ab"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return []
        paths = sorted(folder.glob("*.ended"))
        outcomes = [Ended(**outcome) for path in paths for outcome in json.loads(path.read_text())]
        hosts = (ledger or action.open_ledger()).transact(ledger_builds.ended_elsewhere, outcomes)
        for path in paths:
            path.unlink()
        os.utime(folder / WRITTEN)
    return hosts


def to_text(builds: t.Iterable[Build], made: dict[tuple[str, t.Any], str]) -> str:
    """Builds as JSON. :arg made: the parts that many builds share, as texts: made once for the builds of all hosts"""

    def once(kind: str, key: t.Any, data: t.Any) -> str:
        if (kind, key) not in made:
            made[kind, key] = json.dumps(data, default=asdict)
        return made[kind, key]

    texts = []
    for build in builds:
        row = {name: value for name, value in vars(build.row).items() if name not in ("spec", "digest")}
        data = {name: value for name, value in vars(build).items() if name not in ("row", "ports", "facts", "volumes")}
        networks = [once("network", n.id, n) for _p, n in build.ports]
        spec_id = build.row.request_spec_id
        parts = {
            "build": json.dumps(data),
            "row": json.dumps(row),
            "spec": once("spec", spec_id, build.row.spec),
            "digest": once("digest", spec_id, build.row.digest),
            "facts": once("facts", id(build.facts), build.facts),
            "ports": json.dumps([vars(port) for port, _network in build.ports]),
            "networks": "[%s]" % ", ".join(networks),
        }
        texts.append("{%s}" % ", ".join('"%s": %s' % part for part in parts.items()))
    return "[%s]" % ", ".join(texts)


def from_text(text: str) -> list[Build]:
    """The builds of to_text()."""
    return [
        Build(
            row=PlacedInstance(data["row"], data["spec"], data["digest"]),
            ports=[
                (PortRecord(**{**port, "fixed_ips": tuple(port["fixed_ips"])}), ports.network_from(network))
                for port, network in zip(data["ports"], data["networks"])
            ],
            facts=data["facts"],
            **data["build"],
        )
        for data in json.loads(text)
    ]
