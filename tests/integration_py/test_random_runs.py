# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random playbooks by several people at once, runs that are killed and hosts that fail, in the lab; then everything is whole again.

That no guest ever runs twice is checked for each test (conftest.py). crowd.py says how another history is chosen.
"""

from __future__ import annotations

import random
import typing as t

import psycopg
import pytest
from crowd import Crowd, break_a_guest, is_whole
from flow import FLAVORS, GUEST_NETWORK, Flow, entry
from postgres_flow import PostgresFlow

NAMES = ("a", "b", "c", "d", "e")
DATA = {**GUEST_NETWORK, "name": "data", "source": "bf-data", "subnets": [{"name": "data-v4", "cidr": "10.78.0.0/24"}]}
# Operations, and the vm_states in which they may begin
OPERATIONS = {
    "stop": ("active", "error"),
    "start": ("stopped",),
    "reboot": ("active", "stopped", "paused", "suspended", "error"),
    "pause": ("active",),
    "unpause": ("paused",),
    "suspend": ("active",),
    "resume": ("suspended",),
    "rescue": ("active", "stopped", "error"),
    "unrescue": ("rescued",),
    "rebuild": ("active", "stopped", "error"),
    "resize": ("active", "stopped"),
    "migrate": ("active", "stopped"),
    "confirm_resize": ("resized",),
    "revert_resize": ("resized",),
    "live_migrate": ("active", "paused"),
    "attach_interface": ("active", "paused", "stopped"),
    "detach_interface": ("stopped",),  # a guest without a system lets go of nothing while it runs
    "reset_state": ("paused", "suspended", "rescued"),
    "restore": ("soft-delete",),
    "force_delete": ("soft-delete", "error", "resized"),
}


class People(Crowd):
    """They boot, change, move and delete the same instances, on hosts that fail and die."""

    def once(self, mine: random.Random) -> None:
        some = mine.sample(NAMES, mine.choice((1, 1, 2, 3)))
        kind = mine.choices(("boot", "apply", "delete", "others", "operation"), (22, 12, 10, 8, 48))[0]
        if kind == "apply":
            prune = mine.random() < 0.4
            with self.building():
                self.play(mine, "apply", bootflow_prune=prune, bootflow_shutdown_timeout=1, **a_file(mine, some))
        elif kind == "delete":
            interval = mine.choice((0, 0, 60))
            self.play(
                mine,
                "delete",
                bootflow_names=some,
                bootflow_missing_ok=True,
                bootflow_reclaim_instance_interval=interval,
            )
        elif kind == "others":
            playbook = mine.choice(("audit", "heartbeat", "power_sync", "reclaim", "drain", "host"))
            every = [h.name for h in self.flow.lab.hosts]
            of_hosts = {"bootflow_host": every, "bootflow_host_state": "enabled"} if playbook == "host" else {}
            self.play(mine, playbook, bootflow_drain_host=mine.choice(every), bootflow_shutdown_timeout=1, **of_hosts)
        elif kind == "boot" or not self.operate(mine):
            with self.building():
                self.play(mine, "boot", bootflow_instances=[entry(n, metadata={"of": kind}) for n in some])

    def operate(self, mine: random.Random) -> bool:
        """Mostly on instances in a state that allows it. Whether there was one."""
        operation = mine.choice(sorted(OPERATIONS))
        able = self.able(mine, OPERATIONS[operation])
        if not able:
            return False
        self.play(
            mine,
            operation,
            bootflow_names=able,
            bootflow_interfaces=[{"instance": name, "network": "data"} for name in able],
            bootflow_shutdown_timeout=mine.choice((0, 1)),
            bootflow_reboot_type=mine.choice(("SOFT", "HARD")),
            bootflow_wait_soft_reboot_seconds=1,
            bootflow_rescue_image_ref="newer",
            bootflow_rebuild_image=mine.choice(("guest", "newer")),
            bootflow_resize_flavor=mine.choice(("tiny", "more")),
            bootflow_allow_resize_to_same_host=mine.random() < 0.3,
        )
        return True

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    def break_something(self, mine: random.Random) -> None:
        kinds = ("guest", "guest", "libvirtd", "spawn", "network", "ssh", "restart", "dies", "dies", *self.more_kinds)
        host, kind = mine.choice(self.flow.lab.hosts), mine.choice(kinds)
        self.say(host.name, kind)
        if kind == "guest":
            break_a_guest(mine, [host])
        elif kind == "restart":
            host.restart()
        elif kind == "dies":
            self.lose(mine, host)
        elif kind in self.more_kinds:
            self.break_more(mine, kind)
        else:
            with self.nobody_builds():
                host.fail(kind)
            self.over.wait(mine.uniform(1.0, 12.0))
            host.restore()

    more_kinds: tuple[str, ...] = ()

    def break_more(self, mine: random.Random, kind: str) -> None:
        """What else can fail: one of ``more_kinds``."""


def a_file(mine: random.Random, names: t.Sequence[str]) -> dict[str, t.Any]:
    """Variables of apply: these instances as somebody wants to have them."""
    entries = [
        entry(
            name,
            flavor=mine.choice(("tiny", "more")),
            image=mine.choice(("guest", "newer")),
            state=mine.choice(("running", "running", "stopped", "paused", "suspended")),
            metadata={"of": mine.choice(("one", "two"))},
            allow=["rebuild", "resize", "restart"],
        )
        for name in names
    ]
    return {"bootflow_instances": entries, "bootflow_prune_max": len(NAMES)}


def check(crowd: People) -> None:
    """Live a history, and look at what it left."""
    flow = crowd.flow
    guest = flow.variables["bootflow_images"][0]
    flow.variables["bootflow_images"] = [guest, {**guest, "name": "newer"}]
    flow.variables["bootflow_flavors"] = [*FLAVORS, {"name": "more", "vcpus": 1, "memory_mb": 224, "root_gb": 1}]
    flow.variables["bootflow_networks"] = [GUEST_NETWORK, DATA]
    crowd.live(3, (4.0, 15.0))
    crowd.settle()
    is_whole(flow)
    assert not crowd.wrong, crowd.wrong
    flow.delete(*flow.instances(), bootflow_delete_force=True)
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_after_any_history_everything_is_whole(flow: Flow) -> None:
    check(People(flow))


class TeamOfPeople(People):
    """Their ledger is in PostgreSQL, which is restarted, stopped for a while, or crashes."""

    more_kinds = ("fast", "immediate", "away")

    def able(self, mine: random.Random, states: t.Container[str]) -> list[str]:
        try:
            return super().able(mine, states)
        except psycopg.OperationalError:  # the server is away
            return list(NAMES[:1])

    def break_more(self, mine: random.Random, kind: str) -> None:
        server = t.cast(PostgresFlow, self.flow).server
        server.halt("fast" if kind == "away" else kind)
        if kind == "away":
            self.over.wait(mine.uniform(1.0, 12.0))
        server.resume()


@pytest.mark.long
def test_after_any_history_of_a_team_everything_is_whole(postgres_flow: PostgresFlow) -> None:
    check(TeamOfPeople(postgres_flow))
