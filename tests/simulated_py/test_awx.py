# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The project of docs/examples/awx in jobs of ansible-runner, as AWX starts them, on simulated hosts."""

from __future__ import annotations

import concurrent.futures
import json
import typing as t
from functools import partial
from pathlib import Path

import jq
import pytest
import yaml
from awx_job import Controller, Job
from flow import ROOT
from postgres import PASSWORD, PostgresServer
from postgres_flow import PostgresFlow
from simulated_site import Site, entry

ADMIN_PASSWORD = "hunter2-of-the-guest"
USER_DATA = "#cloud-config\n# swordfish-of-the-user\n"


class SharedSite(PostgresFlow, Site):
    """Simulated hosts with a ledger that several controllers share."""


@pytest.fixture
def shared_site(tmp_path: Path, home: Path) -> t.Iterator[SharedSite]:
    with PostgresServer() as server:
        name = server.create()
        with server.connect() as conn:
            conn.execute("ALTER DATABASE %s OWNER TO checked" % name)
        made = SharedSite(tmp_path, home)
        made.server = server
        made.use(name)
        yield made
        assert made.problems() == ""
        made.check_ledger()


@pytest.fixture
def controller(site: Site, tmp_path: Path) -> Controller:
    return Controller(site, tmp_path / "awx")


def test_plan_boot_again_list_and_delete(site: Site, controller: Controller) -> None:
    """Answers of surveys are texts: the request is JSON, names are a text with commas, truth is "true"."""
    request = json.dumps([entry("web", max_count=2, admin_password=ADMIN_PASSWORD, user_data=USER_DATA)])
    plan = controller.launch("boot", check=True, instances=request)
    assert plan.status == "successful" and "Plan (nothing is touched):" in plan.stdout, plan.stdout
    assert site.left_on_hosts() == {} and not site.ledger_path.exists()
    booted = controller.launch("boot", instances=request)
    assert booted.status == "successful" and booted.changed() > 0, booted.stdout
    assert {state for state, _host in site.places().values()} == {"active"}
    again = controller.launch("boot", instances=request)
    assert again.status == "successful" and again.changed() == 0, again.stdout
    listed = controller.launch("list", list_refresh="true")
    for job in (booted, listed):
        guests = job.statistics()["bootflow_guests"]
        assert [(g["name"], g["vm_state"]) for g in guests] == [("web-1", "active"), ("web-2", "active")]
    (user,) = {row["user"] for row in site.query("SELECT DISTINCT user_name AS user FROM instance_actions")}
    assert user == "alice"
    deleted = controller.launch("delete", names="web-1,web-2")
    assert deleted.status == "successful", deleted.stdout
    assert site.residue() == {}
    for job in (plan, booted, again, listed, deleted):
        kept = job.everything()
        assert "bootflow" in kept
        for secret in (ADMIN_PASSWORD, "swordfish", "c3dvcmRmaXNo"):
            assert secret not in kept


def test_a_text_of_a_survey_is_no_template(site: Site, controller: Controller) -> None:
    """Somebody who answers a survey cannot have the controller evaluate anything."""
    job = controller.launch("delete", names="{{ lookup('ansible.builtin.pipe', 'touch %s') }}" % (site.folder / "ran"))
    assert job.status == "failed" and not (site.folder / "ran").exists(), job.stdout
    assert "InstanceNotFound" in json.dumps(job.results("runner_on_failed")[-1]["res"])


def test_an_event_of_a_failure_has_code_and_remedy(site: Site, controller: Controller) -> None:
    job = controller.launch("boot", instances=json.dumps([entry("big", flavor="huge")]))
    assert job.status == "failed"
    result = job.results("runner_on_failed")[-1]["res"]
    assert result["error_code"] == "BootFailed" and result["remedy"], result
    (item,) = result["failed_items"]
    assert item["name"] == "big" and item["error"]["code"] == "NoValidHost" and item["error"]["remedy"]
    assert site.places() == {"big": ("error", None)}
    assert controller.launch("delete", names="big").status == "successful"
    assert site.residue() == {}


def test_a_job_after_a_cancelled_one_goes_on(site: Site, controller: Controller) -> None:
    request = json.dumps([entry("web", max_count=3)])
    for host in site.hosts.values():
        host.is_slow("instance_build", 30.0, times=1)
    begun = controller.launch(
        "boot", cancel=lambda: any("instance_build" in h.asked() for h in site.hosts.values()), instances=request
    )
    assert begun.status == "canceled", begun.stdout
    assert {state for state, _host in site.places().values()} == {"building"}
    for host in site.hosts.values():
        host.heal()
    again = controller.launch("boot", instances=request, lease_seconds=30)
    assert again.status == "successful", again.stdout
    assert sorted(site.places()) == ["web-1", "web-2", "web-3"]
    assert {state for state, _host in site.places().values()} == {"active"}


SLICES = (("kvm1", "kvm3"), ("kvm2",))


def at_once(*launches: t.Callable[[], Job]) -> list[Job]:
    """The jobs in the order of ``launches``."""
    with concurrent.futures.ThreadPoolExecutor(len(launches)) as pool:
        return [begun.result() for begun in [pool.submit(launch) for launch in launches]]


def test_slices_of_jobs(shared_site: SharedSite, tmp_path: Path) -> None:
    """Each slice has some of the hosts. Of the same request one slice boots all; requests of their own both boot."""
    site, controller = shared_site, Controller(shared_site, tmp_path / "awx")
    controller.password = PASSWORD
    first = controller.launch("boot", instances=json.dumps([entry("first")]))
    assert first.status == "successful", first.stdout
    request = json.dumps([entry("web", max_count=4)])
    same = at_once(*(partial(controller.launch, "boot", hosts=hosts, instances=request) for hosts in SLICES))
    booted = [job for job in same if job.status == "successful" and job.changed()]
    assert len(booted) == 1, [job.stdout for job in same]
    for job in same:
        if job.status == "failed":
            told = job.results("runner_on_failed")[-1]["res"]["errors"]
            assert {error["code"] for error in told} == {"InstanceBusy"} and all(e["remedy"] for e in told)
    own = at_once(
        *(
            partial(controller.launch, "boot", hosts=hosts, instances=json.dumps([entry("of-" + hosts[0])]))
            for hosts in SLICES
        )
    )
    assert [job.status for job in own] == ["successful"] * 2, [job.stdout for job in own]
    places = site.places()
    assert len(places) == 7 and {state for state, _host in places.values()} == {"active"}
    for hosts, job in zip(SLICES, same):
        if job in booted:
            assert {places["web-%d" % number][1] for number in range(1, 5)} <= set(hosts)
    for hosts in SLICES:
        assert places["of-" + hosts[0]][1] in hosts
    synced = at_once(*(partial(controller.launch, "power_sync", hosts=hosts) for hosts in SLICES))
    assert [(job.status, job.changed()) for job in synced] == [("successful", 0)] * 2, [job.stdout for job in synced]
    assert site.places() == places
    for job in (first, *same, *own, *synced):
        assert PASSWORD not in job.everything()


def test_instances_are_counted_as_nodes_once(site: Site, controller: Controller) -> None:
    """Automation Controller runs the queries of extensions/audit on the results of tasks. source: awx/main/tasks/host_indirect.py"""
    queries = yaml.safe_load((ROOT / "extensions" / "audit" / "event_query.yml").read_text())
    assert all((ROOT / "plugins" / "modules" / (name.rpartition(".")[2] + ".py")).exists() for name in queries)
    request = json.dumps([entry("web", max_count=2), entry("big", flavor="huge")])
    booted = controller.launch("boot", instances=request)
    stopped = controller.launch("stop", names="web-1")
    listed = controller.launch("list")
    uuids = {name: row["uuid"] for name, row in site.instances().items()}
    assert booted.status == "failed" and stopped.status == listed.status == "successful"
    assert counted_nodes(queries, booted) == {uuids["web-1"]: "web-1", uuids["web-2"]: "web-2"}
    assert counted_nodes(queries, stopped) == {uuids["web-1"]: "web-1"}
    assert counted_nodes(queries, listed) == {}


def counted_nodes(queries: t.Mapping[str, t.Mapping[str, str]], job: Job) -> dict[str, str]:
    """Names of instances by the names of their nodes."""
    nodes: dict[str, dict[str, t.Any]] = {}
    names: dict[str, str] = {}
    for event in job.events:
        data = event.get("event_data", {})
        if "res" not in data or data.get("resolved_action") not in queries:
            continue
        for node in jq.compile(queries[data["resolved_action"]]["query"]).input(data["res"]).all():
            facts = node["canonical_facts"]
            assert facts and all(isinstance(value, str) for value in facts.values()), "the controller leaves out others"
            # Two rows of one name undo all rows of the job.
            assert nodes.setdefault(node["name"], facts) == facts
            names[node["name"]] = node["facts"]["name"]
            assert node["facts"]["device_type"] == "VM"
    return names


@pytest.mark.long
def test_a_service_runs_its_playbooks_within_the_job(site: Site, controller: Controller) -> None:
    """Playbooks that a playbook runs have the command line of the job; and make no events of ansible-runner."""
    booted = controller.launch("boot", instances=json.dumps([entry("web")]))
    assert booted.status == "successful", booted.stdout
    tasks = site.folder / "update.yml"
    tasks.write_text(yaml.safe_dump([{"name": "Update", "ansible.builtin.debug": {"msg": "updated"}}]))
    job = controller.launch("service", service_name="autumn", service_tasks=str(tasks), drain_live="false")
    assert job.status == "successful", job.stdout
    assert "x1b" not in job.stdout and "kvm3: is in use again" in job.stdout, job.stdout
    assert [path.name for path in job.folder.rglob("*-partial.json")] == []  # what other playbooks would leave
    (play,) = {data.get("play") for data in job.results("playbook_on_play_start")}
    assert play == "Service hosts"
