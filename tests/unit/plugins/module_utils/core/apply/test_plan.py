# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a fleet that follows its file: what it does is what its lines say, and done once it leaves nothing to do."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.apply import fields, plan
from ansible_collections.bootflow.compute.plugins.module_utils.core.apply.plan import Change, Plan, Present, Wanted
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.request import ServerRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import (
    BlockDevice,
    Flavor,
    Image,
    NetworkRequest,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network_info import PortRecord
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.expand import request_digest

IMAGES = {n: Image(name=n, id=n, disk_format="qcow2") for n in ("debian", "alpine")}
FLAVORS = {
    n: Flavor(name=n, memory_mb=memory, vcpus=1) for n, memory in (("small", 512), ("medium", 1024), ("large", 2048))
}


def volume(word: str, **more: t.Any) -> BlockDevice:
    return BlockDevice(source_type="volume", destination_type="volume", uuid=word, **more)


def request(name: str = "web-1", flavor: str = "small", image: str = "debian", **more: t.Any) -> ServerRequest:
    return ServerRequest(name=name, flavor=FLAVORS[flavor], image=IMAGES[image], **more)


def wanted(name: str = "web-1", allow: t.Collection[str] = (), **more: t.Any) -> Wanted:
    own = {n: more.pop(n) for n in ("state", "locked", "locked_reason") if n in more}
    return Wanted(name, "default", request_digest(request(name, **more)), allow=frozenset(allow), **own)


def present(name: str = "web-1", vm_state: str = states.ACTIVE, **more: t.Any) -> Present:
    columns = {f.name for f in dataclasses.fields(Present)}
    own = {n: more.pop(n) for n in list(more) if n in columns}
    return Present("uuid-" + name, name, "default", vm_state, request_digest(request(name, **more)), **own)


def lines(*, want: t.Iterable[Wanted] = (), have: t.Iterable[Present] = (), **more: t.Any) -> list[str]:
    return plan.plan(want, have, **more).lines()


# --- what people read -----------------------------------------------------------------------------------------------


def test_the_plan_as_a_person_reads_it() -> None:
    found = plan.plan(
        [wanted("web-1", flavor="large", allow=["resize"]), wanted("web-2"), wanted("web-10"), wanted("web-3")],
        [present("web-1"), present("web-2"), present("old")],
        prune=True,
    )
    assert found.lines({"web-3": "on kvm-2"}) == [
        "- old: delete",
        "~ web-1 flavor small -> large: resize, restarts the guest",
        "+ web-3 boot on kvm-2",
        "+ web-10 boot",
        "2 to boot, 1 to change, 1 to delete; 1 as the file has it.",
    ]


def test_what_is_not_allowed_and_what_cannot_be() -> None:
    have = [present("web-1"), present("web-2"), present("web-3")]
    want = [wanted("web-1", image="alpine"), wanted("web-2", flavor="large"), wanted("web-3", config_drive=False)]
    assert lines(want=want, have=have) == [
        "! web-1 image debian -> alpine: needs rebuild in bootflow_apply_allow (rebuild, replaces the guest's local disks)",
        "! web-2 flavor small -> large: needs resize in bootflow_apply_allow (resize, restarts the guest)",
        "! web-3 config_drive none -> false: cannot be changed, it is made when an instance is booted; delete it and boot it again",
        "nothing to do, 2 not allowed, 1 cannot be changed; 0 as the file has them.",
    ]


def test_a_hostname_changes_live_and_a_key_pair_by_a_rebuild() -> None:
    have = [present("web-1"), present("web-2"), present("web-3", config_drive=False)]
    key = {"key_name": "ops", "key_data": "ssh-ed25519 AAAA"}
    want = [wanted("web-1", hostname="new"), wanted("web-2", **key), wanted("web-3", **key)]
    found = plan.plan(want, have, allow=["rebuild"])
    assert found.lines() == [
        "~ web-1 hostname none -> new: the guest's config drive keeps the old one",
        "~ web-2 key_name none -> ops: rebuild, replaces the guest's local disks",
        "! web-3 key_name none -> ops: cannot be changed, the instance has no config drive; delete it and boot it again",
        "2 to change, 1 cannot be changed; 0 as the file has them.",
    ]
    assert [c.steps for c in found.to_do] == [(), ("rebuild",)]


def test_what_left_the_file_is_told_in_one_line() -> None:
    have = [present("old"), present("web-1"), present("older")]
    assert lines(want=[wanted()], have=have) == [
        "= not in the file, kept without bootflow_prune: old, older",
        "nothing to do, 2 not in the file; 1 as the file has it.",
    ]


def test_a_run_resizes_to_several_flavors_and_confirms_what_a_dead_one_left() -> None:
    left = present("c", flavor="large", vm_state=states.RESIZED, power_state=states.RUNNING)
    have = [present("a"), present("b"), left]
    want = [wanted("a", flavor="large"), wanted("b", flavor="medium"), wanted("c", flavor="large", state="stopped")]
    found = plan.plan(want, have, allow=["resize"])
    assert found.lines()[:-1] == [
        "~ a flavor small -> large: resize, restarts the guest",
        "~ b flavor small -> medium: resize, restarts the guest",
        "~ c resize to large: confirm",
        "~ c state running -> stopped: stop",
    ]
    assert [c.steps for c in found.to_do] == [("resize",), ("resize",), ("confirm_resize",), ("stop",)]
    assert not plan.plan(want[2:], have[2:]).to_do, "somebody else's decision"
    away = plan.plan(want[2:], [present("c", flavor="large", vm_state=states.RESIZED, away=True)], allow=["resize"])
    assert not away.to_do and "! c resize to large: the host is down" in away.lines()[0]


@pytest.mark.parametrize(
    ("power_state", "state", "steps"),
    [
        (states.RUNNING, "running", []),
        (states.RUNNING, None, []),
        (states.RUNNING, "paused", ["pause"]),
        (states.RUNNING, "stopped", ["stop"]),
        (states.SHUTDOWN, "running", ["start"]),
        (states.SHUTDOWN, "stopped", []),
        (states.SHUTDOWN, "suspended", ["start", "suspend"]),
    ],
)
def test_what_a_dead_run_left_resized_is_confirmed_and_brought_to_its_state(
    power_state: int, state: str | None, steps: list[str]
) -> None:
    have = [present(vm_state=states.RESIZED, power_state=power_state)]
    found = plan.plan([wanted(state=state, networks=on("web"), metadata={"a": "b"})], have, allow=["resize"])
    assert all(c.done for c in found.changes)
    assert [c.kind for c in found.changes][:3] == [plan.CONFIRM, "live", plan.ATTACH_INTERFACE]
    assert [s for c in found.changes for s in c.steps] == [plan.CONFIRM, *steps]


def test_a_resize_whose_host_lacks_the_guest_is_not_confirmed_and_keeps_no_other() -> None:
    """Nova's word: only what is there can be confirmed."""
    have = [present(vm_state=states.RESIZED), present("db", vm_state=states.RESIZED, power_state=states.RUNNING)]
    found = plan.plan([wanted(state="stopped"), wanted("db")], have, allow=["resize"])
    assert [(c.name, c.kind, c.done) for c in found.changes] == [
        ("db", plan.CONFIRM, True),
        ("web-1", plan.CONFIRM, False),
    ]
    assert "revert_resize" in found.changes[1].how


def test_what_is_being_deleted_is_not_booted() -> None:
    (change,) = plan.plan([wanted(flavor="large", state="stopped")], [present(deleting=True)]).changes
    assert (change.kind, change.done, change.later) == (plan.BOOT, False, True)
    assert change.line().startswith("! web-1 is not booted: it is being deleted, and has its name")


def test_metadata_changes_live_and_the_config_drive_is_told() -> None:
    have, want = [present(metadata={"role": "db"}, tags=("a",))], [wanted(metadata={"role": "web"}, tags=("a", "b"))]
    assert lines(want=want, have=have)[:2] == [
        "~ web-1 metadata.role db -> web: the guest's config drive keeps the old one",
        "~ web-1 tags a -> a, b",
    ]
    stuck = [dataclasses.replace(have[0], vm_state=states.RESCUED)]
    assert lines(want=want, have=stuck)[:2] == [
        "! web-1 metadata.role db -> web: it is rescued: unrescue it first",
        "! web-1 tags a -> a, b: it is rescued: unrescue it first",
    ]
    without = [dataclasses.replace(have[0], config_drive=False)]
    assert lines(want=want, have=without)[0] == "~ web-1 metadata.role db -> web"
    rebuilt = [wanted(metadata={"role": "web"}, tags=("a",), user_data="new", allow=["rebuild"])]
    assert lines(want=rebuilt, have=have)[:2] == [
        "~ web-1 metadata.role db -> web",
        "~ web-1 user_data none -> set: rebuild, replaces the guest's local disks",
    ], "the drive is made anew"


def test_drift_of_the_catalogue_is_told_and_nothing_is_done() -> None:
    grown = {**FLAVORS, "small": Flavor(name="small", memory_mb=1024, vcpus=1)}
    digest = request_digest(ServerRequest(name="web-1", flavor=grown["small"], image=IMAGES["debian"]))
    found = plan.plan([Wanted("web-1", "default", digest)], [present()])
    assert found.changes == () and found.lines() == [
        "= web-1 keeps the catalogue entries with which it was booted; changed since then: flavor.memory_mb: was 512, is 1024",
        "nothing to do; 1 as the file has it.",
    ]


@pytest.mark.parametrize(
    ("vm_state", "state", "steps"),
    [
        (states.ACTIVE, "stopped", ("stop",)),
        (states.PAUSED, "running", ("unpause",)),
        (states.SUSPENDED, "stopped", ("resume", "stop")),
        (states.STOPPED, "paused", ("start", "pause")),
        (states.ERROR, "stopped", ("stop",)),
        (states.ERROR, "suspended", ("reboot", "suspend")),
    ],
)
def test_operations_that_lead_to_a_state(vm_state: str, state: str, steps: tuple[str, ...]) -> None:
    (change,) = plan.plan([wanted(state=state)], [present(vm_state=vm_state)], allow=["restart"]).changes
    assert change.done and change.steps == steps


def test_an_error_is_left_only_where_a_restart_is_allowed() -> None:
    have, want = [present(vm_state=states.ERROR)], [wanted(state="running")]
    assert lines(want=want, have=have)[0] == (
        "! web-1 state error -> running: needs restart in bootflow_apply_allow (hard reboot, restarts the guest)"
    )
    assert lines(want=[dataclasses.replace(want[0], allow=frozenset(["restart"]))], have=have)[0].startswith("~ web-1")
    assert plan.plan([wanted()], have).changes == plan.plan(want, have).changes, "no file wants an error"
    assert lines(want=[wanted(state="paused", allow=["restart"])], have=have)[0] == (
        "~ web-1 state error -> paused: hard reboot, restarts the guest, then pause"
    )


@pytest.mark.parametrize(
    ("vm_state", "power_state", "state", "line"),
    [
        (states.STOPPED, states.RUNNING, "stopped", "~ web-1 state running -> stopped: stop"),
        (states.ACTIVE, states.POWER_PAUSED, "running", "~ web-1 state paused -> running: unpause"),
        (states.ACTIVE, states.SHUTDOWN, "running", "~ web-1 state stopped -> running: start"),
        (states.PAUSED, states.RUNNING, "paused", "~ web-1 state running -> paused: pause"),
        (states.STOPPED, states.RUNNING, "running", "~ web-1 state stopped -> running: start"),
        (states.STOPPED, states.RUNNING, None, "nothing to do; 1 as the file has it."),
        (states.STOPPED, states.SHUTDOWN, "stopped", "nothing to do; 1 as the file has it."),
    ],
)
def test_a_guest_that_somebody_else_changed_is_brought_back_where_the_file_has_a_state(
    vm_state: str, power_state: int, state: str | None, line: str
) -> None:
    have = [present(vm_state=vm_state, power_state=power_state)]
    assert lines(want=[wanted(state=state)], have=have)[0] == line


def test_a_rebuild_that_did_not_end_is_done_again_where_one_is_allowed() -> None:
    have = [present(vm_state=states.ERROR, torn=True)]
    assert lines(want=[wanted(allow=["restart"])], have=have)[0] == (
        "! web-1 state error -> running: needs rebuild in bootflow_apply_allow (rebuild, replaces the guest's local disks)"
    )
    (change,) = plan.plan([wanted(state="stopped", allow=["rebuild"])], have).to_do
    assert (change.steps, change.what) == (("rebuild", "stop"), "state error -> stopped")
    both = plan.plan([wanted(state="paused", image="alpine", allow=["rebuild"])], have)
    assert [c.steps for c in both.to_do] == [("rebuild",), ("pause",)], "once"


GONE = "state %s (its domain is gone from its host) -> %s"


@pytest.mark.parametrize(
    ("vm_state", "state", "steps", "what"),
    [
        (states.STOPPED, "running", ("reboot",), GONE % ("stopped", "running")),
        (states.ACTIVE, "running", ("reboot",), GONE % ("running", "running")),
        (states.ACTIVE, None, ("reboot",), GONE % ("running", "running")),
        (states.ACTIVE, "paused", ("reboot", "pause"), GONE % ("running", "paused")),
        (states.PAUSED, None, ("reboot", "pause"), GONE % ("paused", "paused")),
        (states.SUSPENDED, "stopped", ("reboot", "stop"), GONE % ("suspended", "stopped")),
    ],
)
def test_a_lost_domain_is_defined_anew_where_a_restart_is_allowed(
    vm_state: str, state: str | None, steps: tuple[str, ...], what: str
) -> None:
    have = [present(vm_state=vm_state, domain_missing=True)]
    (change,) = plan.plan([wanted(state=state)], have).changes
    assert (change.done, change.needs, change.what) == (False, "restart", what)
    (change,) = plan.plan([wanted(state=state)], have, allow=["restart"]).changes
    assert (change.done, change.steps, change.what) == (True, steps, what)


def test_an_instance_that_is_to_be_off_needs_no_domain_but_its_devices_do() -> None:
    off = [present(vm_state=states.STOPPED, domain_missing=True)]
    for state in ("stopped", None):
        assert plan.plan([wanted(state=state)], off, allow=["restart"]).changes == ()
    (stopped,) = plan.plan([wanted(state="stopped")], [present(domain_missing=True)], allow=["restart"]).changes
    assert stopped.steps == ("stop",)
    with_volume = wanted(block_device_mapping=(volume("data"),), flavor="large", metadata={"a": "b"})
    found = plan.plan([with_volume], off, allow=["resize", "restart"])
    assert [(c.kind, c.done) for c in found.changes] == [("resize", False), ("live", True), ("attach", False)]
    assert found.changes[2].how == "the domain is gone from the host: a hard reboot defines it again"
    on = plan.plan([dataclasses.replace(with_volume, state="running")], off, allow=["resize", "restart"])
    assert all(c.done for c in on.changes), "the reboot comes first"


def test_a_rebuild_is_enough_for_a_lost_domain() -> None:
    new = wanted(image="alpine", networks=on("web"), state="running")
    for vm_state, steps in ((states.ACTIVE, []), (states.STOPPED, [("start",)])):
        found = plan.plan([new], [present(vm_state=vm_state, domain_missing=True)], allow=["rebuild", "restart"])
        assert all(c.done for c in found.changes) and [c.early for c in found.changes if c.kind == fields.REBUILD] == [
            True
        ]
        assert [c.steps for c in found.changes if c.kind == plan.STATE] == steps
    suspended = plan.plan(
        [new], [present(vm_state=states.SUSPENDED, domain_missing=True)], allow=["rebuild", "restart"]
    )
    assert [c.steps for c in suspended.changes if c.steps] == [("rebuild",), ("reboot",)]
    assert not any(c.early for c in suspended.changes), "a suspended one cannot be rebuilt"


def test_what_a_rebuild_leads_out_of_error_gets_its_interfaces_in_the_same_run() -> None:
    new = wanted(networks=on("web"), image="alpine", allow=["rebuild"])
    for torn in (True, False):
        found = plan.plan([new], [present(vm_state=states.ERROR, torn=torn)])
        assert [(c.kind, c.done, c.early) for c in found.changes] == [
            (fields.REBUILD, True, True),
            (plan.ATTACH_INTERFACE, True, False),
        ]
    running = plan.plan([new], [present()])
    assert not any(c.early for c in running.changes), "a guest that runs lets go of its devices before"


def test_a_state_from_which_no_operation_leads_is_told() -> None:
    assert lines(want=[wanted(state="running")], have=[present(vm_state=states.RESIZED)])[0] == (
        "! web-1 state resized -> running: its resize waits to be confirmed or reverted"
    )


def test_what_another_user_locked_is_left_alone() -> None:
    have = [present(locked=True, locked_by_another="ann", metadata={"a": "1"}), present("old", locked_by_another="ann")]
    assert lines(want=[wanted(locked=False, state="stopped")], have=have, prune=True)[:-1] == [
        "! old delete: locked by ann",
        "! web-1 metadata.a 1 -> none: locked by ann",
        "! web-1 state running -> stopped: locked by ann",
        "! web-1 unlock: locked by ann",
    ]
    assert plan.plan([wanted(locked=True)], [present(locked=True, locked_by_another="ann")]).changes == ()


def test_an_instance_that_never_ran_does_not_keep_its_name() -> None:
    failed = present(vm_state=states.ERROR, launched=False)
    (again,) = plan.plan([wanted(tags=("new",))], [failed]).changes
    assert again.kind == plan.BOOT
    (replaced,) = plan.plan([wanted(flavor="large")], [failed]).changes
    assert (replaced.kind, replaced.done) == (plan.REPLACE, True)
    assert replaced.line() == "+ web-1 boot again: it never ran, and the file has another definition now"
    (replaced,) = plan.plan([wanted(flavor="large", state="stopped")], [failed]).changes
    assert replaced.line().endswith("and the file has another definition now; then stop")


def test_volumes_come_and_go_and_what_the_file_never_had_stays() -> None:
    have = [
        present(block_device_mapping=(volume("data"), volume("logs")), volumes=("id-data", "id-logs", "id-by-hand"))
    ]
    want = [wanted(block_device_mapping=(volume("data"), volume("new", tag="fast", delete_on_termination=True)))]
    found = plan.plan(want, have, ids={"data": "id-data", "logs": "id-logs", "new": "id-new"}, names={"id-new": "new"})
    assert [c.line() for c in found.changes] == ["~ web-1 attach volume new", "~ web-1 detach volume logs"]
    assert [dict(c.volume) for c in found.changes] == [
        {"instance": "uuid-web-1", "volume": "id-new", "tag": "fast", "delete_on_termination": True},
        {"instance": "uuid-web-1", "volume": "id-logs"},
    ]


def test_disks_that_are_made_with_the_instance_stay_and_so_does_what_a_volume_is_attached_as() -> None:
    local = BlockDevice(source_type="blank", destination_type="local", volume_size=1)
    have = [present(block_device_mapping=(volume("data"),), volumes=("data",))]
    assert not any(c.done for c in plan.plan([wanted(block_device_mapping=(volume("data"), local))], have).changes)
    found = plan.plan([wanted(block_device_mapping=(volume("data", tag="x"),))], have)
    assert [c.done for c in found.changes] == [False]


def port(network: str, address: str = "", number: int = 1, tag: str | None = None) -> PortRecord:
    fixed = ({"subnet_id": "s", "ip_address": address},) if address else ()
    return PortRecord("port-%d" % number, network, "fa:16:3e:00:00:%02x" % number, fixed, tag=tag)


def on(*networks: NetworkRequest | str) -> tuple[NetworkRequest, ...]:
    return tuple(NetworkRequest(network=n) if isinstance(n, str) else n for n in networks)


def test_existing_ports_come_and_go() -> None:
    front, back = NetworkRequest(port="front"), NetworkRequest(port="back")
    named = dataclasses.replace(port("web"), name="front")
    have = present(networks=(front,), ports=(named, port("data", number=2)))
    assert plan.plan([wanted(networks=(front,))], [have]).changes == ()
    found = plan.plan([wanted(networks=(back,))], [have]).changes
    assert [c.line() for c in found] == ["~ web-1 attach interface port back", "~ web-1 detach interface port front"]
    assert [dict(c.interface) for c in found] == [
        {"instance": "uuid-web-1", "port": "back"},
        {"instance": "uuid-web-1", "port_id": "port-1"},
    ]


def test_interfaces_come_and_go_and_what_the_file_never_had_stays() -> None:
    fixed = NetworkRequest(network="data", fixed_ip="10.2.0.9", tag="fast")
    have = [present(networks=on("web", "logs"), ports=(port("web"), port("by-hand", number=2), port("logs", number=3)))]
    found = plan.plan([wanted(networks=on("web", fixed))], have, names={"data": "data-net"})
    assert [c.line() for c in found.changes] == [
        "~ web-1 attach interface data-net 10.2.0.9",
        "~ web-1 detach interface logs",
    ]
    assert [dict(c.interface) for c in found.changes] == [
        {"instance": "uuid-web-1", "network": "data", "fixed_ip": "10.2.0.9", "tag": "fast"},
        {"instance": "uuid-web-1", "port_id": "port-3"},
    ]
    # What was attached by hand, and is in the file now, is there already.
    want = [wanted(networks=on("web", "logs", "by-hand"))]
    assert plan.plan(want, have).changes == ()
    half = [dataclasses.replace(have[0], half_attached=True)]
    assert [c.line() for c in plan.plan(want, half).changes] == ["~ web-1 attach interface by-hand"]
    # What somebody detached by hand comes back.
    detached = [dataclasses.replace(have[0], ports=have[0].ports[:2])]
    assert [c.line() for c in plan.plan([wanted(networks=on("web", "logs"))], detached).changes] == [
        "~ web-1 attach interface logs"
    ]
    # Two of one network: one goes.
    twice = [present(networks=on("web", "web"), ports=(port("web"), port("web", number=2)))]
    assert [dict(c.interface) for c in plan.plan([wanted(networks=on("web"))], twice).changes] == [
        {"instance": "uuid-web-1", "port_id": "port-2"}
    ]
    leaving = [dataclasses.replace(twice[0], ports=(port("web"),), leaving=(port("web", number=2),))]
    assert [dict(c.interface) for c in plan.plan([wanted(networks=on("web"))], leaving).changes] == [
        {"instance": "uuid-web-1", "port_id": "port-2"}
    ], "half detached by a run that died"


def test_interfaces_of_a_guest_whose_state_does_not_allow_it() -> None:
    have = [present(vm_state=states.SUSPENDED, networks=on("web"), ports=(port("web"),))]
    assert (
        lines(want=[wanted(networks=on("web", "data"))], have=have)[0]
        == "! web-1 attach interface data: not while the instance is suspended"
    )
    resumed = plan.plan([wanted(state="running", networks=on("web", "data"))], have).changes
    assert [(c.kind, c.done) for c in resumed] == [(plan.ATTACH_INTERFACE, True), (plan.STATE, True)]


def test_every_field_of_a_digest_has_its_rule() -> None:
    assert set(request_digest(request())) - {"key_data"} == set(fields.FIELDS)


def test_every_operation_is_one() -> None:
    named = {*plan.UP.values(), *plan.DOWN.values(), plan.HARD_REBOOT, plan.CONFIRM, fields.REBUILD, fields.RESIZE} - {
        ""
    }
    assert set(plan.OPERATIONS) == named
    assert named <= {*states.ACTIONS, "reboot"}


# --- properties -----------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "web-1", "web-2", "web-10"])
REQUESTED = st.fixed_dictionaries(
    {},
    optional={
        "flavor": st.sampled_from(sorted(FLAVORS)),
        "image": st.sampled_from(sorted(IMAGES)),
        "metadata": st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2),
        "description": st.sampled_from(["", "one", "two"]),
        "user_data": st.sampled_from(["one", "two"]),
        "block_device_mapping": st.lists(st.sampled_from("vw"), unique=True).map(lambda ws: tuple(map(volume, ws))),
    },
)
WANTED = st.builds(
    lambda name, given, own: wanted(name, **given, **own),
    NAMES,
    REQUESTED,
    st.fixed_dictionaries(
        {},
        optional={
            "state": st.sampled_from(sorted(plan.VM_STATES)),
            "locked": st.booleans(),
            "allow": st.lists(st.sampled_from(fields.ALLOWABLE), unique=True),
        },
    ),
)
PRESENT = st.builds(
    lambda name, given, own: present(name, **given, **own),
    NAMES,
    REQUESTED,
    st.fixed_dictionaries(
        {},
        optional={
            "vm_state": st.sampled_from(
                [s for s in states.VM_STATES if s not in (states.DELETED, states.SOFT_DELETED)]
            ),
            "launched": st.booleans(),
            "torn": st.booleans(),
            "domain_missing": st.booleans(),
            "power_state": st.sampled_from([states.NOSTATE, states.SHUTDOWN]),
            "locked": st.booleans(),
            "volumes": st.lists(st.sampled_from("vwz"), unique=True).map(tuple),
        },
    ),
).map(lambda p: p if p.vm_state == states.RESIZED else dataclasses.replace(p, power_state=states.NOSTATE))
FILE = st.lists(WANTED, unique_by=lambda w: w.name, max_size=5)
FLEET = st.lists(PRESENT, unique_by=lambda p: p.name, max_size=5)
ALLOW = st.lists(st.sampled_from(fields.ALLOWABLE), unique=True)


def done(change: Change, want: Wanted | None, had: Present | None) -> Present | None:
    """What is there after ``change``: a model of what the playbooks do."""
    if change.kind == plan.DELETE:
        return None
    assert want is not None
    if change.kind in (plan.BOOT, plan.REPLACE):
        devices = [str(d["uuid"]) for d in want.digest["block_device_mapping"]]
        return Present("new-" + want.name, want.name, "default", states.ACTIVE, want.digest, volumes=tuple(devices))
    assert had is not None
    if change.kind == fields.REBUILD and had.vm_state == states.ERROR:
        had = dataclasses.replace(had, vm_state=states.ACTIVE, torn=False)
    if change.early or plan.HARD_REBOOT in change.steps:
        had = dataclasses.replace(had, domain_missing=False)
    if change.kind in (fields.LIVE, fields.RESIZE, fields.REBUILD) and change.field != "state":
        return dataclasses.replace(had, digest={**had.digest, change.field: want.digest[change.field]})
    if change.kind == plan.LOCK:
        return dataclasses.replace(had, locked=bool(want.locked), locked_reason=want.locked_reason)
    if change.kind == plan.ATTACH:
        return dataclasses.replace(had, volumes=(*had.volumes, change.volume["volume"]))
    if change.kind == plan.DETACH:
        return dataclasses.replace(had, volumes=tuple(v for v in had.volumes if v != change.volume["volume"]))
    now = had.vm_state
    if change.kind == plan.CONFIRM:
        off = had.power_state == states.SHUTDOWN
        return dataclasses.replace(had, vm_state=states.STOPPED if off else states.ACTIVE)
    for step in sorted(set(change.steps) - {fields.REBUILD}, key=plan.OPERATIONS.index):
        rule = states.check_action("hard_reboot" if step == plan.HARD_REBOOT else step, now, None)
        now = str(rule.result)
    return dataclasses.replace(had, vm_state=now)


def applied(found: Plan, want: t.Sequence[Wanted], have: t.Sequence[Present]) -> list[Present]:
    there = {p.name: p for p in have}
    for change in found.to_do:
        target = next((w for w in want if w.name == change.name), None)
        after = done(change, target, there.pop(change.name, None))
        if after is not None:
            there[change.name] = after
    return list(there.values())


@given(FILE, FLEET, st.booleans(), ALLOW)
def test_a_plan_that_was_done_leaves_nothing_to_do(
    want: list[Wanted], have: list[Present], prune: bool, allow: list[str]
) -> None:
    options: dict[str, t.Any] = {"prune": prune, "allow": allow}
    after = have
    # What is booted follows its state and its lock in the same run (see _after_boot).
    for _run in range(2):
        after = applied(plan.plan(want, after, **options), want, after)
    again = plan.plan(want, after, **options)
    assert again.to_do == [], again.lines()
    if prune:
        assert {p.name for p in after} <= {w.name for w in want}
    assert {w.name for w in want} <= {p.name for p in after}


@given(FILE, FLEET, st.booleans(), st.randoms())
def test_the_order_of_the_file_does_not_matter(
    want: list[Wanted], have: list[Present], prune: bool, chance: t.Any
) -> None:
    expected = plan.plan(want, have, prune)
    mixed, shuffled = list(want), list(have)
    chance.shuffle(mixed)
    chance.shuffle(shuffled)
    assert plan.plan(mixed, shuffled, prune) == expected


@given(FILE, FLEET)
def test_nothing_that_restarts_a_guest_is_done_without_being_allowed(want: list[Wanted], have: list[Present]) -> None:
    for change in plan.plan(want, have).to_do:
        allowed = next((w.allow for w in want if w.name == change.name), frozenset())
        if change.kind in fields.ALLOWABLE:
            assert change.kind in allowed
