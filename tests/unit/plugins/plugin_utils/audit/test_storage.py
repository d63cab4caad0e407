# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an audit asks hosts and has them remove: on a real ledger, with modules that answer as the real ones do."""

from __future__ import annotations

import types

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as rules
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.evidence import Evidence
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.migrations import runner
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import volume_views
from ansible_collections.bootflow.compute.plugins.plugin_utils.audit import storage as audit_storage
from ansible_collections.bootflow.compute.plugins.plugin_utils.audit.audit import Audit

LEDGER = "1ed9e000-0000-4000-8000-000000000001"
NOW = 1_700_000_000.0
GIB = 1024**3
PREFIX = "iqn.2010-10.org.openstack:"
LOST, OTHER, KNOWN = ("6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d%02x" % n for n in range(3))
VARIABLES = {
    "bootflow_storage_ip": "192.0.2.1",
    "bootflow_storage_backends": [{"name": "lvm"}, {"name": "old", "volume_group": "old", "target": "tgt"}],
}
DOWN = errors.CommandFailed(cmd="tgtadm", rc=107, stderr="not connected", remedy="Start the service tgt.")


def lv(volume_id, kind="volume", **more):
    name = {"volume": "volume-", "snapshot": "_snapshot-", "image": "image-"}[kind] + volume_id
    values = {"kind": kind, "id": volume_id, "name": name, "size": 2 * GIB, "open": False, "origin": "", "pool": ""}
    return {**values, "path": "/dev/x/" + name, "project": "default", "complete": True, **more}


def target(volume_id, **more):
    values = {"iqn": PREFIX + "volume-" + volume_id, "volume_id": volume_id, "path": "/dev/x/volume-" + volume_id}
    return {**values, "sessions": [], "running": True, "ours": True, **more}


class Host:
    """A host as an action sees it. Its modules remember what they were told, and fail as they are told."""

    def ledger_id(self):
        return LEDGER

    def __init__(self, host="s1", volumes=(), targets=()):
        self.task_vars = {
            "inventory_hostname": host,
            "groups": {"bootflow_storage": ["s1", "s2"]},
            "hostvars": {"s1": dict(VARIABLES), "s2": {}},
        }
        self.volumes, self.targets = list(volumes), list(targets)
        self.calls = []
        self.fails = {}
        self.guest_content = []
        self.warnings = []
        self._display = types.SimpleNamespace(warning=self.warnings.append)

    def variable(self, _name, default=None):
        return default

    def context(self):
        return context()

    def run_module(self, name, arguments):
        self.calls.append((name, arguments))
        if name in self.fails:
            raise self.fails[name]
        if name != "storage_backend_info":
            return {"outcomes": self.outcomes(name, arguments)}
        found = [v for v in self.volumes if v["id"] not in arguments["known"] and v["kind"] != "image"]
        capacity = {"total_capacity_gb": 100.0, "free_capacity_gb": 90.0, "provisioned_capacity_gb": 10.0}
        good = {**capacity, "boot_id": "b", "read_at": 5.0, "volumes": self.volumes, "orphans": found, "error": None}
        bad = {"error": errors.DriverNotInitialized(message="no volume group old", remedy="vgcreate").as_dict()}
        answers = {"lio": {"exports": self.targets, "error": None}, "tgt": {"exports": [], "error": DOWN.as_dict()}}
        return {
            "backends": {"lvm": good, "old": bad},
            "targets": [{**asked, **answers[asked["target"]]} for asked in arguments["targets"]],
            "guest_content": self.guest_content,
        }

    def outcomes(self, name, arguments):
        option, key = {
            "iscsi_target": ("exports", "volume_id"),
            "iscsi_initiator": ("connections", "volume_id"),
            "iscsi_secret": ("secrets", "iqn"),
        }[name]
        wishes = arguments[option]
        assert len({w[key] for w in wishes}) == len(wishes), "the modules refuse doubles"
        failed = {w[key]: self.fails.get(w[key]) for w in wishes}
        return {k: {"changed": not e, "error": e.as_dict() if e else None} for k, e in failed.items()}


def context(run="a"):
    identity = this_run.RunIdentity("run-" + run, "controller", "boot", "", 1, 1, "ann")
    return Context(run=identity, request_id="req-" + run, clock=lambda: NOW)


@pytest.fixture
def ledger(tmp_path):
    ledger = database.open_ledger(str(tmp_path / "ledger.db"), create=True, check_revision=False)
    with ledger.write() as tx:
        runner.upgrade(tx)
    yield ledger
    ledger.close()


def know(ledger, volume_id=KNOWN, **fields):
    """A volume of 2 GB that no report has yet."""
    values = {"id": volume_id, "project": "default", "size": 2, "status": "available", "pool_host": "s1@lvm#lvm"}
    values.update(made=True, pending_gb=2, spec={}, meta={}, image_metadata={})
    values.update(created_at=NOW - 50, updated_at=NOW - 50, launched_at=NOW - 50, deleted="", **fields)
    with ledger.write() as tx:
        tx.execute(volume_tables.volumes.insert().values(**values))


def rows(ledger, table):
    with ledger.read() as tx:
        return list(tx.execute(table.select()))


def plan(ledger, found, compute=None, remove=False):
    evidence = Evidence(storage=audit_storage.evidence(found, compute or {}), remove_orphans=remove)
    return ledger.for_run(context()).inspect(audit.plan, evidence)


def test_one_call_asks_for_everything_and_its_answer_is_entered_as_a_report(ledger):
    know(ledger)
    image = lv("0" * 40, "image")
    host = Host(volumes=[lv(KNOWN), lv(LOST), image], targets=[target(LOST)])
    first = audit_storage.ask(host, ledger, "s1")
    ((name, arguments),) = host.calls
    assert name == "storage_backend_info" and [b["name"] for b in arguments["backends"]] == ["lvm", "old"]
    assert arguments["targets"] == [{"target": kind, "iqn_prefix": PREFIX} for kind in ("lio", "tgt")]
    assert (first["inspected"], first["began_at"]) == (True, NOW)
    found = plan(ledger, {"s1": first})
    assert [(f.kind, f.what, f.action) for f in found] == [
        (rules.ORPHAN_TARGET, "target %svolume-%s" % (PREFIX, LOST), rules.REPORT),
        (rules.ORPHAN_VOLUME, "volume-%s at s1@lvm#lvm" % LOST, rules.REPORT),
        (rules.UNREAD, "s1@old#old", rules.MARK),
        (rules.UNREAD, "targets of tgt (%s)" % PREFIX, rules.REPORT),
    ]
    assert [f.remedy for f in found[2:]] == ["vgcreate", "Start the service tgt."]

    audit_storage.record(ledger.for_run(context()), {"s1": first})
    good, bad = sorted(rows(ledger, volume_tables.storage_backends), key=lambda r: r.pool_host)
    assert (good.free_gb, good.reported_at, good.error, bad.error["message"]) == (
        90.0,
        NOW,
        None,
        "no volume group old",
    )
    assert "volumes" not in good.report
    assert rows(ledger, volume_tables.volumes)[0].pending_gb == 0, "the report has its logical volume"
    again = audit_storage.ask(host, ledger, "s1")
    assert host.calls[-1][1]["known"] == [KNOWN]
    audit_storage.record(ledger.for_run(context()), {"s1": again})
    (view, _bad) = ledger.inspect(volume_views.backends)
    assert view["orphans"] == ["volume-" + LOST], "volume_list has its column"
    assert [f for f in plan(ledger, {"s1": again}) if f.changes] == [], "a second audit has nothing to do"


def test_a_backend_that_is_gone_from_the_inventory_may_have_left_targets(ledger):
    host = Host()
    first = audit_storage.ask(host, ledger, "s1")
    audit_storage.record(ledger.for_run(context()), {"s1": first})
    host.task_vars["hostvars"]["s1"]["bootflow_storage_backends"] = [{"name": "lvm", "iqn_prefix": "iqn.2026-01.a:"}]
    audit_storage.ask(host, ledger, "s1")
    asked = {(each["target"], each["iqn_prefix"]) for each in host.calls[-1][1]["targets"]}
    assert asked == {("lio", PREFIX), ("tgt", PREFIX), ("lio", "iqn.2026-01.a:")}


def test_a_host_that_does_not_answer_stops_nothing_and_is_told(ledger):
    host = Host()
    audit_storage.record(ledger.for_run(context()), {"s1": audit_storage.ask(host, ledger, "s1")})
    host.fails["storage_backend_info"] = errors.HostUnreachable(host="s1", reason="no route")
    silent = audit_storage.ask(host, ledger, "s1")
    assert not silent["inspected"] and silent["error"]["code"] == "HostUnreachable" and host.warnings
    (found,) = plan(ledger, {"s1": silent})
    assert (found.kind, found.host, found.action) == (rules.HOST_UNREACHABLE, "s1", rules.MARK)
    audit_storage.record(ledger.for_run(context()), {"s1": silent})
    assert [b.error["code"] for b in rows(ledger, volume_tables.storage_backends)] == ["HostUnreachable"] * 2
    (found,) = plan(ledger, {"s1": silent})
    assert found.action == rules.REPORT
    del host.fails["storage_backend_info"]
    back = plan(ledger, {"s1": audit_storage.ask(host, ledger, "s1")})
    assert [(f.kind, f.what, f.new) for f in back if f.changes] == [(rules.HOST_FACTS, "s1@lvm#lvm not ready", None)]


def test_backends_of_one_volume_group_tell_each_logical_volume_once():
    there = [lv(KNOWN), lv(LOST, pool="vg-pool"), lv(OTHER, pool="somebodys")]

    def backend(name, pool):
        configuration = {"volume_group": "vg", "thin_pool": pool}
        capacity = {"vg_uuid": "uuid of vg"}
        fields = {"pool_host": "s1@%s#%s" % (name, name), "configuration": configuration, "capacity": capacity}
        return {**fields, "name": name, "error": None, "volumes": there}

    answer = {"inspected": True, "began_at": NOW, "targets": []}
    answer["backends"] = [backend("thick", ""), backend("thin", "vg-pool")]
    told = audit_storage.evidence({"s1": answer}, {}).storage["s1"]
    assert [(b.pool_host, b.group, [v.id for v in b.volumes]) for b in told.backends] == [
        ("s1@thick#thick", "uuid of vg", [KNOWN, OTHER]),
        ("s1@thin#thin", "uuid of vg", [LOST]),
    ]


def test_the_answers_of_hosts_that_were_asked(tmp_path):
    host = Host()
    host.options, host.ports = {}, types.SimpleNamespace(folder=lambda: tmp_path / "run")
    told = {"inspected": False, "error": {}}
    audit_of_run = Audit(host, "audit")
    audit_of_run.results.leave("inspect", "s1", {"changed": False, "storage": told})
    audit_of_run.results.leave("inspect", "h1", {"changed": False, "inspected": True})
    assert audit_of_run._answers_of_storage() == {"s1": told}, "s2 has left nothing, h1 keeps no volumes"


def test_the_ends_of_a_compute_host(ledger):
    ends = {
        "sessions": [
            {
                "iqn": PREFIX + "volume-" + LOST,
                "volume_id": LOST,
                "session": True,
                "luns": [1],
                "portals": ["192.0.2.1:3260"],
                "in_use": [],
            }
        ],
        "secrets": [{"iqn": PREFIX + "volume-" + OTHER, "volume_id": OTHER}],
        "error": None,
    }
    answers = {"h1": {"inspected": True, "began_at": NOW, "iscsi": ends}, "h2": {"inspected": False}}
    found = plan(ledger, {}, answers, remove=True)
    assert [(f.kind, f.host, f.action) for f in found] == [
        (rules.ORPHAN_SECRET, "h1", rules.REMOVE),
        (rules.ORPHAN_SESSION, "h1", rules.REMOVE),
    ]
    broken = {"sessions": [], "secrets": [], "error": DOWN.as_dict()}
    (found,) = plan(ledger, {}, {"h1": {"inspected": True, "began_at": NOW, "iscsi": broken}})
    assert (found.kind, found.remedy) == (rules.UNREAD, "Start the service tgt.")
    assert plan(ledger, {}, {"h1": {"inspected": True, "began_at": NOW, "iscsi": {}}}) == []


# --- removing -----------------------------------------------------------------------------------------------------------


def session(volume_id, prefix=PREFIX):
    return {"volume_id": volume_id, "iqn": prefix + "volume-" + volume_id, "lun": 0, "portals": ["192.0.2.1:3260"]}


def test_sessions_and_secrets_are_removed_and_what_fails_is_told(ledger):
    host = Host("h1")
    host.fails[OTHER] = errors.VolumePathNotRemoved(message="it is in use")
    other_prefix = "iqn.2026-01.a:"
    sessions = [session(LOST), session(OTHER), session(LOST, other_prefix)]
    secrets = [{"volume_id": LOST, "iqn": PREFIX + "volume-" + LOST}]
    found = audit_storage.unplug(host, ledger.for_run(context()), sessions, secrets)
    assert {iqn: e and e.message for iqn, e in found.items()} == {
        PREFIX + "volume-" + LOST: None,
        PREFIX + "volume-" + OTHER: "it is in use",
        other_prefix + "volume-" + LOST: None,
    }
    assert [name for name, _a in host.calls] == ["iscsi_initiator", "iscsi_initiator", "iscsi_secret"]
    assert {c["state"] for _n, a in host.calls[:2] for c in a["connections"]} == {"disconnected"}
    assert host.calls[2][1]["secrets"] == [{"iqn": PREFIX + "volume-" + LOST, "state": "absent"}]


def test_targets_are_removed_by_their_kind(ledger):
    host = Host()
    wishes = [
        {"volume_id": v, "iqn": PREFIX + "volume-" + v, "target": kind, "iqn_prefix": PREFIX}
        for v, kind in ((LOST, "lio"), (OTHER, "tgt"), (KNOWN, "lio"))
    ]
    host.fails[KNOWN] = errors.ISCSITargetRemoveFailed(message="somebody is logged in")
    found = audit_storage.end_targets(host, ledger.for_run(context()), wishes)
    assert sorted(iqn for iqn, e in found.items() if e) == [PREFIX + "volume-" + KNOWN] and len(found) == 3
    assert [(a["target"], [e["volume_id"] for e in a["exports"]]) for _n, a in host.calls] == [
        ("lio", [LOST, KNOWN]),
        ("tgt", [OTHER]),
    ]
    assert {e["state"] for _n, a in host.calls for e in a["exports"]} == {"absent"}
    assert not any("force" in e for _n, a in host.calls for e in a["exports"])


def test_what_became_somebodys_is_not_touched(ledger):
    know(ledger)
    with ledger.write() as tx:
        tx.execute(
            volume_tables.volume_attachments.insert().values(
                id="a1",
                volume_id=KNOWN,
                instance_uuid=OTHER,
                attach_status="attaching",
                storage_host="s1",
                created_at=NOW,
                deleted="",
            )
        )
    host = Host()
    wish = {**session(KNOWN), "target": "lio", "iqn_prefix": PREFIX}
    assert audit_storage.end_targets(host, ledger.for_run(context()), [wish]) == {}
    assert audit_storage.unplug(host, ledger.for_run(context()), [wish], [wish]) == {}
    assert host.calls == [] and rows(ledger, volume_tables.volumes)[0].status == "available"


def test_nothing_to_remove_calls_nothing(ledger):
    host = Host()
    assert audit_storage.unplug(host, ledger.for_run(context()), [], []) == {}
    assert audit_storage.end_targets(host, ledger.for_run(context()), []) == {}
    assert host.calls == []


def test_a_host_that_went_away_fails_all_of_it(ledger):
    host = Host()
    host.fails["iscsi_target"] = errors.HostUnreachable(host="s1", reason="no route")
    wish = {**session(LOST), "target": "lio", "iqn_prefix": PREFIX}
    problems = audit_storage.end_targets(host, ledger.for_run(context()), [wish])
    assert [p.as_dict()["code"] for p in problems.values()] == ["HostUnreachable"]
