# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A boot and its plan where the host that the scheduler prefers lacks something that another host has."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import (
    boot_accept,
    boot_build,
    boot_report,
    boot_schedule,
    compute_report,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import power_states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import host_reports
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import (
    WorldPorts,
    action_of,
    leave_report,
    limit_run,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import node
from ansible_collections.bootflow.compute.tests.unit.worlds.world import STAGES, World

VARIABLES: dict[str, t.Any] = {
    "bootflow_flavors": [{"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1}],
    "bootflow_images": [
        {
            "name": "efi",
            "disk_format": "qcow2",
            "allow_unverified": True,
            "url": "http://x.example/efi.qcow2",
            "properties": {"hw_firmware_type": "uefi"},
        }
    ],
    "bootflow_networks": [
        {"name": "net", "type": "bridge", "source": "br0", "subnets": [{"cidr": "192.0.2.0/24", "gateway_ip": None}]}
    ],
}


class Boot:
    """One entry and these hosts; h1 has the most memory and no firmware."""

    def __init__(
        self,
        world: World,
        *with_uefi: str,
        count: int = 1,
        devices: t.Any = None,
        reported: bool = True,
        **variables: t.Any,
    ):
        self.world = world
        hosts = ("h1", "h2", "h3")
        entry = {"name": "web", "flavor": "small", "image": "efi", "networks": ["net"], "count": count}
        if devices is not None:
            entry["block_device_mapping"] = devices
        everywhere = {**VARIABLES, **variables, "bootflow_instances": [entry]}
        inventory = dict.fromkeys(("localhost", *hosts), everywhere)
        groups = {"all": list(inventory), "bootflow_compute": list(hosts)}
        self.of = {
            h: {"inventory_hostname": h, "groups": groups, "hostvars": inventory, **everywhere} for h in inventory
        }
        for number, host in enumerate(hosts if reported else ()):
            node(world, host, memory_mb=8192 - 1024 * number, uefi=host in with_uefi)

    def __call__(self, module: t.Any, host: str = "localhost", **how: t.Any) -> tuple[dict[str, t.Any], list[str]]:
        ports = WorldPorts(self.world, "a", self._run_module)
        result = action_of(module, ports, self.of[host], **how).act()
        return result, ports.shown

    def _run_module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        items = next(arguments[key] for key in ("networks", "drives", "domains", "instances") if key in arguments)
        return {"outcomes": {i.get("uuid") or i["name"]: {"power_state": power_states.RUNNING} for i in items}}


def test_claims_and_warnings_of_the_scheduler_are_shown(world: World) -> None:
    boot = Boot(world, "h1")
    boot(boot_accept)
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(host="gone"))
    ports = WorldPorts(world, "a")
    action_of(boot_schedule, ports, boot.of["localhost"]).act()
    assert any("Claim successful on node h1" in line for line in ports.verbose)
    assert any(line.startswith("web: the ledger had a host before the claim, gone") for line in ports.warnings)
    boot = Boot(world, "h1", count=2)
    ports = WorldPorts(world, "b")
    ports.display.verbosity = 0
    action_of(boot_schedule, ports, boot.of["localhost"]).act()
    assert not ports.verbose


def test_settings_that_the_ledger_does_not_have_yet_are_written_and_scheduled_by(world: World) -> None:
    """Also where nothing waits for a host."""
    boot = Boot(world, "h1", "h2", "h3")
    boot(boot_accept)
    boot.of["localhost"]["hostvars"]["h1"] = {**VARIABLES, "bootflow_disabled": True}
    assert [p["host"] for p in boot(boot_schedule)[0]["placed"]] == ["h2"]
    assert [r.host for r in world.rows(tables.compute_nodes) if r.disabled] == ["h1"]
    boot.of["localhost"]["hostvars"]["h3"] = {**VARIABLES, "bootflow_disabled": True}
    assert boot(boot_schedule)[0]["placed"] == []
    assert [r.host for r in world.rows(tables.compute_nodes) if r.disabled] == ["h1", "h3"]


def test_a_plan_goes_on_with_the_host_that_has_the_firmware(world: World) -> None:
    """The error says that another host may: the plan is that of the boot, which tries it."""
    boot = Boot(world, "h3", count=2)
    before = world.everything()
    result, shown = boot(boot_schedule, check_mode=True)
    assert world.everything() == before
    assert [(p["host"], p["error"]) for p in result["plan"]] == [("h3", None)] * 2
    assert all("firmware='efi'" in p["xml"] or 'firmware="efi"' in p["xml"] for p in result["plan"])
    assert any("rescheduled: HostLacksHardware: Host h2 has no UEFI firmware" in line for line in shown)
    assert any("addresses: 192.0.2." in line for line in shown)


SLOW = (
    "guests run emulated, many times slower than with KVM: a guest hangs. Enable virtualization in its firmware, or set"
)


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("reported_in_this_run", [False, True])
def test_a_boot_warns_of_chosen_hosts_whose_guests_run_without_kvm(
    world: World, check_mode: bool, reported_in_this_run: bool
) -> None:
    """By the ledger, where a heartbeat before the boot asked them; a host that reported in this run was warned of then."""
    boot = Boot(world, "h1", "h2", "h3", count=2)
    for number, host in enumerate(("h1", "h2", "h3")):
        slow = {"stats": {"emulated": "a guest hangs"}}
        node(world, host, memory_mb=8192 - 1024 * number, uefi=True, **(slow if host != "h2" else {}))
    if reported_in_this_run:
        report = {"reported": True, "compute_node": world.rows(tables.node_facts)[0].facts}
        leave_report(WorldPorts(world, "a"), "h1", report)
    boot(boot_accept, check_mode=check_mode)
    ports = WorldPorts(world, "a", boot._run_module)
    result = action_of(boot_schedule, ports, boot.of["localhost"], check_mode=check_mode).act()
    assert {p["host"] for p in result["plan" if check_mode else "placed"]} == {"h1", "h2"}
    expected = [] if reported_in_this_run else ["h1: " + SLOW]
    assert [w[: len(SLOW) + 4] for w in ports.warnings if "emulated" in w] == expected


def test_a_warning_of_a_device_that_qemu_may_not_open_has_its_remedy(world: World) -> None:
    """It is in the reason; the firmware of such a host is in order."""
    ports = WorldPorts(world, "a")
    reason = "QEMU runs as libvirt-qemu, which may not open /dev/kvm (group 994, mode 0660). Give it to the group kvm"
    host_reports.warn_of_emulation(action_of(boot_schedule, ports, Boot(world, "h1").of["localhost"]), {"h1": reason})
    text = (
        "h1: guests run emulated, many times slower than with KVM: %s. Set bootflow_virt_type to qemu if that is meant."
    )
    assert ports.warnings == [text % reason]


@pytest.mark.parametrize(("manage", "count"), [(True, 3), (True, 1), (False, 3)])
def test_a_plan_says_that_guests_of_a_managed_network_on_two_hosts_do_not_reach_each_other(
    world: World, manage: bool, count: int
) -> None:
    network = {"name": "net", "source": "net", "manage": manage, "subnets": [{"cidr": "192.0.2.0/24"}]}
    boot = Boot(world, "h1", "h2", "h3", count=count, bootflow_networks=[network])
    boot(boot_accept, check_mode=True)
    result, shown = boot(boot_schedule, check_mode=True)
    hosts = sorted({p["host"] for p in result["plan"]})
    said = "Network net is managed: each host has a separate one, and its guests on different hosts (here %s) do not reach each"
    assert any(said % ", ".join(hosts) in text for text in shown) is (manage and len(hosts) > 1)
    assert any("do not reach" in text for text in shown) is (manage and len(hosts) > 1)
    assert (len(hosts) > 1) == (count == 3)


@pytest.mark.parametrize(
    ("settings", "facts", "said"),
    [
        (
            {"bootflow_cpu_mode": "custom", "bootflow_cpu_model": "Skylake-Klient"},
            {"cpu_models": ["EPYC", "Skylake-Client"]},
            "no CPU model Skylake-Klient: libvirt does not know it there",
        ),
        (
            {"bootflow_cpu_mode": "maximum", "bootflow_cpu_model_extra_flags": ["+pcid", "-nosuch"]},
            {"unknown_cpu_flags": ["nosuch"]},
            "no CPU feature nosuch: libvirt does not know it there",
        ),
    ],
)
def test_a_plan_with_a_cpu_that_no_host_knows_says_so(
    world: World, settings: dict[str, t.Any], facts: dict[str, t.Any], said: str
) -> None:
    boot = Boot(world, "h1", "h2", "h3", **settings)
    for host in ("h1", "h2", "h3"):
        node(world, host, memory_mb=8192, uefi=True, **facts)
    result, shown = boot(boot_schedule, check_mode=True)
    (plan,) = result["plan"]
    assert result["failed"] and plan["error"] and any(said in text for text in (*shown, result["msg"]))


def test_a_plan_that_no_host_can_run_says_so(world: World) -> None:
    result, _shown = Boot(world, count=1)(boot_schedule, check_mode=True)
    (plan,) = result["plan"]
    assert result["failed"] and (plan["host"], plan["xml"]) == (None, None)
    assert plan["error"]["code"] in ("MaxRetriesExceeded", "NoValidHost")


def test_a_plan_whose_volume_fits_no_backend_fails_as_the_boot_does(bworld: BootWorld) -> None:
    blank = {"source_type": "blank", "destination_type": "volume", "volume_size": 1}
    boot = Boot(bworld, "h1", "h2", "h3", devices=[blank], bootflow_volume_attach="qemu")
    boot.of["localhost"]["groups"]["bootflow_storage"] = ["s1"]
    backend = {"name": "lvm", "portals": ["192.0.2.1:3260"]}
    boot.of["localhost"]["hostvars"]["s1"] = {**VARIABLES, "bootflow_storage_backends": [backend]}
    result, shown = boot(boot_schedule, check_mode=True)
    (plan,) = result["plan"]
    assert result["failed"] and (plan["host"], plan["error"]["code"]) == ("h1", "NoValidBackend")
    assert "1 of 1 instances cannot be placed on any host, or their volumes on any backend." in result["msg"]
    assert "\n".join(shown).count("No valid backend was found") == 1 and "No valid backend" not in result["msg"]
    assert result["failed_items"][0]["error"]["message"].startswith("No valid backend was found")
    result, shown = boot(boot_schedule, check_mode=True, print_table=False)
    assert "web: NoValidBackend: No valid backend was found" in result["msg"] and not shown


def test_a_build_goes_on_to_the_host_that_has_the_firmware(world: World) -> None:
    boot = Boot(world, "h2")
    boot(boot_accept)
    (uuid,) = [r.uuid for r in world.rows(tables.instances)]
    for number in (1, 2):
        for host in boot(boot_schedule, round=number)[0]["compute"]:
            boot(boot_build, host)
    assert world.state(uuid) == ("active", None, "h2")
    assert [f.error_code for f in world.rows(tables.instance_faults)] == ["HostLacksHardware"]


@pytest.mark.parametrize(
    "variables, run_limit, placed",
    [
        ({}, None, "h1"),
        ({}, ["localhost", "h2", "h3"], "h2"),
        ({"bootflow_hosts": ["h3"]}, None, "h3"),
        ({"bootflow_hosts": "slow"}, None, "h3"),
        ({"bootflow_hosts": ["h1", "h3"]}, ["localhost", "h3"], "h3"),
    ],
)
def test_instances_are_placed_on_hosts_that_the_run_is_limited_to(
    world: World, variables: dict[str, t.Any], run_limit: list[str] | None, placed: str
) -> None:
    """Plays of a run with a limit reach no other host, and a build there would wait for ever."""
    boot = Boot(world, "h1", "h2", "h3", **variables)
    for of_host in boot.of.values():
        of_host["groups"]["slow"] = ["h3"]
    limit_run(WorldPorts(world, "a"), run_limit)
    plan = boot(boot_schedule, check_mode=True)[0]["plan"]
    boot(boot_accept)
    result = boot(boot_schedule)[0]
    assert [p["host"] for p in plan] == result["compute"] == [placed]
    assert run_limit is None or set(plan[0]["alternates"]) <= set(run_limit)


def test_hosts_that_are_named_and_are_not_there_are_refused(world: World) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        Boot(world, bootflow_hosts=["h2", "h9"])(boot_accept)
    assert [e["path"] for e in refused.value.errors] == ["bootflow_hosts"]
    assert "names h9" in refused.value.errors[0]["message"]


class TestBetweenRounds:
    """What follows a round that took long, or that a host's task left without an answer."""

    @pytest.fixture
    def boot(self, world: World) -> Boot:
        boot = Boot(world, "h1", "h2", "h3")
        boot(boot_accept)
        assert boot(boot_schedule)[0]["compute"] == ["h1"]
        (self.uuid,) = [r.uuid for r in world.rows(tables.instances)]
        return boot

    def refresh(self, boot: Boot) -> dict[str, t.Any]:
        return boot(boot_schedule, phase="refresh")[0]

    def test_hosts_report_again_before_a_round_that_needs_them(self, world: World, boot: Boot) -> None:
        """A round longer than service_down_time (900 s) found every host down in the next."""
        world.begin(STAGES[0], "h1")
        world.fail("h1", self.uuid, errors.RemoteError(reason="broken"))
        world.time += 1000
        with world.ledger.write() as tx:
            nodes.record_unreachable(tx, "h3", "no route")
        refreshed = self.refresh(boot)
        assert refreshed["ask"] == ["h1", "h2"], "a host that was silent in this run is not asked again"
        assert refreshed["reports"] == {"compute": ["h1", "h2"], "storage": []} and refreshed["again"] is True
        node(world, "h2", memory_mb=4096, uefi=True)
        assert boot(boot_schedule)[0]["compute"] == ["h2"]

    def test_no_host_reports_for_a_round_without_work(self, world: World, boot: Boot) -> None:
        assert boot(boot_build, "h1")[0]["builds"]
        world.time += 1000
        refreshed = self.refresh(boot)
        assert (refreshed["ask"], refreshed["given_back"], refreshed["again"]) == ([], [], False)
        assert world.state(self.uuid) == ("active", None, "h1")

    @pytest.mark.parametrize("stages", [0, 1, 2, 3])
    def test_a_build_that_a_task_left_goes_to_another_host(self, world: World, boot: Boot, stages: int) -> None:
        """A task that a timeout of Ansible ended, or whose worker was killed, writes no outcome."""
        for given in WorldPorts(world, "a").folder().glob("*.builds") if stages else ():
            given.unlink()  # its task began
        for stage in STAGES[1:stages]:
            assert world.begin(stage, "h1")[0]
        refreshed = self.refresh(boot)
        assert refreshed["given_back"] == [self.uuid] and refreshed["again"] and refreshed["ask"] == []
        assert world.state(self.uuid) == ("building", "scheduling", None)
        (fault,) = world.rows(tables.instance_faults)
        assert (fault.error_code, fault.host) == ("HostUnreachable", "h1")
        assert bool(world.used("h1")[0] > 512) == bool(stages), (
            "what a stage may have made keeps its claim until it is gone"
        )
        assert boot(boot_schedule)[0]["compute"] == ["h2"], "h1 is left out"

    def test_after_the_last_round_it_ends_in_error(self, world: World, boot: Boot) -> None:
        world.begin(STAGES[0], "h1")
        for host in ("h2", "h3"):
            with world.ledger.write() as tx:
                nodes.record_unreachable(tx, host, "no route")
        result = boot(boot_report, uuids=[self.uuid])[0]
        assert result["failed"] and "its task ended without an answer" in result["msg"]
        assert world.state(self.uuid) == ("error", None, None)


def test_a_boot_without_a_host_says_why_in_numbers(world: World) -> None:
    """In the result, in the fault, and where the boot ends."""
    large = [{"name": "small", "memory_mb": 99999, "vcpus": 1, "root_gb": 1}]
    boot = Boot(world, "h1", bootflow_flavors=large)
    created = boot(boot_accept)[0]["created"]
    told = boot(boot_schedule)[0]["explanations"][created[0]]
    assert [(r["filter"], r["hosts"], r["best"], r["needed"]) for r in told["rejected"]] == [
        ("RamFilter", 3, "h1", 99999)
    ]
    assert told["nearest_miss"]["host"] == "h1" and "would have fitted on h1" in told["nearest_miss"]["smallest_change"]
    result, shown = boot(boot_report, uuids=created)
    for words in (
        "RamFilter rejected 3 hosts, the nearest is h1",
        "Nearest miss: h1 lacks ",
        " MiB of memory instead of 99999 would have fitted on h1",
    ):
        assert words in result["msg"]
    assert result["failed_items"][0]["error"]["message"] == result["instances"][0]["fault"]["message"]
    again = boot(boot_schedule)[0]
    assert (again["not_placed"], again["explanations"]) == ([], {})


def test_a_plan_shows_like_instances_once(world: World) -> None:
    """One domain XML of an entry, and what differs in the others; one explanation of what fits nowhere."""
    boot = Boot(world, "h1", "h2", "h3", count=5)
    result, shown = boot(boot_schedule, check_mode=True)
    first, second = result["diff"][:2]
    assert first["before"] == "" and first["after"] == result["plan"][0]["xml"]
    assert (second["before"], second["after"]) == (first["after"], result["plan"][1]["xml"])
    assert (second["before_header"], second["after_header"]) == ("web-1 on h1", "web-2 on h2")
    assert "web-1 (flavor small)" in "\n".join(shown) and "\n".join(shown).count("  hosts: as above") == 2
    explained = [p["decision"] and (p["uuid"], p["explained_by"]) for p in result["plan"]]
    assert explained == [(p["uuid"], p["uuid"]) for p in result["plan"][:3]] + [None] * 2
    assert result["plan"][4]["explained_by"] == result["plan"][2]["uuid"]
    flavors = [{**VARIABLES["bootflow_flavors"][0], "memory_mb": 99999}]
    result, shown = Boot(world, "h1", count=5, bootflow_flavors=flavors, bootflow_project="other")(
        boot_schedule, check_mode=True
    )
    text = "\n".join(shown)
    assert "web-1, web-2, web-3, web-4, web-5 (flavor small)" in text and text.count("  nearest miss: ") == 1
    plans = result["plan"]
    assert text.count("No valid host was found") == 1 and "No valid host" not in result["msg"]
    assert "  web-1, web-2, web-3, web-4, web-5: NoValidHost\nRemedy: The plan says why." in result["msg"]
    assert [p["decision"] and len(p["decision"]["hosts"]) for p in plans] == [3, 3, 3, None, None]
    assert [p["explained_by"] for p in plans] == [p["uuid"] for p in plans[:3]] + [plans[2]["uuid"]] * 2
    assert "  - h2  RamFilter: memory: needs 97.7 GiB, the whole host has 7 GiB" in text


@pytest.mark.parametrize("planned", [False, True])
def test_a_boot_on_hosts_that_never_reported_says_at_its_end_what_they_said(world: World, planned: bool) -> None:
    """Not only in warnings between its tasks; and a plan has the same words."""
    boot = Boot(world, reported=False)
    words = {"h1": "ann@h1: Permission denied (publickey).", "h2": "ssh: Could not resolve hostname h2"}
    for host, why in words.items():
        ports = WorldPorts(world, "a", lambda _name, _arguments, why=why: {"unreachable": True, "msg": why})  # type: ignore[misc]
        action_of(compute_report, ports, boot.of[host], check_mode=planned).act()
    said = "h1 (down: the host never reported: Host h1 is unreachable: ann@h1: Permission denied (publickey))."
    if planned:
        lines = boot(boot_schedule, check_mode=True)[1][0].splitlines()
        assert any("NoValidHost" in line and line.endswith(said) for line in lines)
        down = "  - %s  ComputeFilter: down: the host never reported%s"
        for host, why in words.items():
            assert down % (host, ": Host %s is unreachable: %s" % (host, why.rstrip("."))) in lines
        assert down % ("h3", "") in lines, "it was not asked"
    else:
        created = boot(boot_accept)[0]["created"]
        boot(boot_schedule)
        result = boot(boot_report, uuids=created)[0]
        assert "web: NoValidHost" in result["msg"] and said in result["msg"]
