# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input through the playbooks: an error with its code and its remedy, nothing half done, nothing left behind."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest
from flow import Flow, Run, entry
from refusals import refused, says

READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
ODD_NAME = 'a<b>&"../c'
NOT_WRITABLE = "Put bootflow_ledger_url on a folder that this user may write, or correct its permissions."


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_ledgers_that_cannot_be_used(flow: Flow, tmp_path: Path) -> None:
    web = {"bootflow_instances": [entry("web")]}
    relative = "LedgerError: The ledger sqlite:///ledger.db cannot be used: the path is relative Remedy: Give an absolute path: sqlite:////"
    refused(flow, relative, bootflow_ledger_url="sqlite:///ledger.db", **web)
    refused(
        flow,
        "LedgerError: The ledger ledger.db cannot be used: the URL is neither a path nor a ",
        "Remedy: Set bootflow_ledger_url, ",
        bootflow_ledger_url="ledger.db",
        **web,
    )
    assert not (flow.folder / "ledger.db").exists() and not Path("ledger.db").exists()

    noise = tmp_path / "noise.db"
    noise.write_bytes(b"this is no ledger\n" * 1000)
    damaged_remedy = "Remedy: The file is not a ledger or is damaged: restore a backup, or set another file."
    done = refused(
        flow,
        "LedgerError: The ledger sqlite:///%s cannot be used: file is not a database" % noise,
        damaged_remedy,
        bootflow_ledger_url=str(noise),
        **web,
    )
    assert noise.read_bytes() == b"this is no ledger\n" * 1000, done.output
    refused(
        flow,
        "LedgerError: ",
        "cannot be used: the path is a folder Remedy: Name a file in it: %s/ledger.db." % tmp_path,
        bootflow_ledger_url=str(tmp_path),
        **web,
    )

    made = flow.run("ledger")
    assert made.returncode == 0, made.output
    with contextlib.closing(sqlite3.connect(flow.ledger_path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = flow.ledger_path.read_bytes()
    torn = tmp_path / "torn.db"
    torn.write_bytes(whole[:1024] + b"\xff" * (len(whole) - 1024))
    refused(
        flow,
        "LedgerError: The ledger sqlite:///%s cannot be used: database disk image is malformed" % torn,
        damaged_remedy,
        bootflow_ledger_url=str(torn),
        **web,
    )
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE instances (id INTEGER)")
    refused(
        flow,
        "LedgerError: ",
        "the database is not a ledger, but has tables with a ledger's names (instances) Remedy: Name another file",
        bootflow_ledger_url=str(foreign),
        **web,
    )
    with sqlite3.connect(foreign) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("instances",)]

    newer = tmp_path / "newer.db"
    newer.write_bytes(whole)
    with sqlite3.connect(newer) as connection:
        connection.execute("INSERT INTO ledger_revision (revision) VALUES ('9999')")
    text = (
        "LedgerTooNew: The ledger sqlite:///%s is at revision 9999, which this version does not know (its newest is "
        % newer
    )
    for playbook in ("boot", "delete", "list", "ledger"):
        refused(
            flow,
            text,
            "Remedy: Upgrade bootflow.compute on this controller.",
            playbook=playbook,
            bootflow_ledger_url=str(newer),
            bootflow_names=["web"],
            **web,
        )

    # Root may write what the permissions forbid: a mount that is read-only, seen by this run alone.
    for url, where in (
        (flow.ledger_path, "%s" % flow.ledger_path),
        (flow.folder / "new" / "ledger.db", "%s" % (flow.folder / "new")),
    ):
        read_only = subprocess.run(
            [
                "unshare",
                "--mount",
                "sh",
                "-c",
                'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"',
                str(flow.folder),
            ]
            + flow.arguments("boot", {"bootflow_ledger_url": str(url), **web}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=flow.environment(ANSIBLE_LOCAL_TEMP="/tmp"),
            cwd="/",
            timeout=60,
            check=False,
        )
        says(
            Run(read_only.returncode, read_only.stdout),
            "LedgerError: The ledger sqlite:///%s cannot be used: " % url,
            where,
            "Remedy: " + NOT_WRITABLE,
        )
    assert flow.ledger_path.read_bytes() == whole
    assert flow.residue() == {}


# --- what the ledger and the hosts find out -----------------------------------------------------------------------------


@pytest.fixture
def web_server(flow: Flow, tmp_path: Path):
    """An empty web server where the hosts reach it; its URL."""
    (tmp_path / "www").mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "www"))
    server = http.server.ThreadingHTTPServer((flow.lab.controller_address, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield "http://%s:%d" % server.server_address[:2]
    server.shutdown()
    server.server_close()


def hostile_images(folder: Path, good: Path, url: str) -> list[dict]:
    """Entries of bootflow_images that no host may boot from."""

    def qcow2(name: str, *arguments: str) -> Path:
        path = folder / name
        subprocess.run(
            ["qemu-img", "create", "-q", "-f", "qcow2", *arguments[:-1], str(path), arguments[-1]], check=True
        )
        return path

    secret = folder / "secret"
    secret.write_bytes(b"root:secret\n" * 100)
    files = {
        "backing": qcow2("backing.qcow2", "-b", str(secret), "-F", "raw", "16M"),
        "external": qcow2("external.qcow2", "-o", "data_file=%s,data_file_raw=on" % (folder / "data.raw"), "16M"),
        "large": qcow2("large.qcow2", "3G"),
        "wrong-format": good,
    }
    images = [
        {
            "name": name,
            "path": str(path),
            "disk_format": "qcow2",
            "checksum": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for name, path in files.items()
    ]
    images[-1]["disk_format"] = "raw"
    images.append({"name": "wrong-sum", "path": str(good), "disk_format": "qcow2", "checksum": "0" * 64})
    for name, address in (("nobody", "http://127.0.0.1:1/x"), ("gone", url + "/gone.qcow2")):
        images.append({"name": name, "url": address, "disk_format": "qcow2", "checksum": "0" * 64})
    images.append({"name": "no-file", "path": str(folder / "no-file"), "disk_format": "qcow2", "checksum": "0" * 64})
    return images


def tried_hosts(flow: Flow, name: str) -> list[str]:
    """The hosts that a build was rescheduled from, in order."""
    query = (
        "SELECT f.host FROM instance_faults f JOIN instances i ON i.uuid = f.instance_uuid"
        " WHERE display_name = ? AND f.details = 'rescheduled' ORDER BY f.id"
    )
    return [row["host"] for row in flow.query(query, name)]


def brought(flow: Flow) -> set[tuple[str, str]]:
    """What Ansible brought to lab hosts, and left there: (host, folder)."""
    find = ("find", "/root/.ansible", "-name", "ansible-*tmp*")
    return {(host.name, path) for host in flow.lab.hosts for path in host.run(*find).stdout.split()}


@pytest.mark.long
def test_bad_images_end_their_own_builds_only_and_an_odd_name_is_a_name(
    flow: Flow, tmp_path: Path, web_server: str
) -> None:
    good = flow.variables["bootflow_images"]
    images = hostile_images(tmp_path, Path(good[0]["path"]), web_server)
    flow.variables["bootflow_images"] = good + images
    *bad, no_file = [entry(i["name"], image=i["name"], networks=[{"network": "guests"}]) for i in images]
    refused(
        flow,
        "instances[1].image: ImageUnacceptable: Image no-file is unacceptable: the file %s is not on the controller Remedy: Correct its path in "
        "bootflow_images." % (tmp_path / "no-file"),
        bootflow_instances=[bad[0], no_file],
    )
    before = brought(flow)  # runs that other tests killed had no time to clean
    done = flow.boot(entry(ODD_NAME), *bad, expect=2, **READY)
    reach = "Remedy: Check the URL and that this host reaches it."
    faults = {
        "backing": "ImageUnacceptable: Image backing is unacceptable: fmt=qcow2 backed by: %s" % (tmp_path / "secret"),
        "external": "ImageUnacceptable: Image external is unacceptable: the data is in another file (qcow2 data file) Remedy: Use another image; ",
        "large": "FlavorDiskSmallerThanImage: Flavor's disk is too small for requested image. Flavor disk is 1073741824 bytes, image is 3221225472",
        "wrong-format": "ImageUnacceptable: Image wrong-format is unacceptable: the format is qcow2, the catalogue says raw Remedy: Correct disk_format in ",
        "wrong-sum": "ImageChecksumMismatch: Image wrong-sum is unacceptable: sha256 is %s, the catalogue says %s Remedy: Fetch the image again"
        % (good[0]["checksum"][7:], "0" * 64),
        "nobody": "%s: ImageDownloadFailed: Image nobody could not be fetched from http://127.0.0.1:1/x: [Errno 111] Connection refused "
        + reach,
        "gone": "%s: ImageDownloadFailed: Image gone could not be fetched from "
        + web_server
        + "/gone.qcow2: HTTP 404 File not found "
        + reach,
    }
    for name in ("nobody", "gone"):
        faults[name] %= "on " + ", ".join(tried_hosts(flow, name))
    says(
        done,
        "BootFailed: 7 of 8 instances are not ACTIVE.",
        "bytes. Remedy: Choose a flavor with a larger root_gb.",
        *faults.values(),
    )
    for name in faults:
        row = flow.instances()[name]
        assert (row["vm_state"], row["task_state"], row["host"]) == ("error", None, None)
        tried = tried_hosts(flow, name)
        assert len(tried) == len(set(tried)) == (3 if name in ("nobody", "gone") else 0), (
            "only a fetch may go better elsewhere"
        )

    # Nova takes path and XML specials in a name; they are harmless.
    row = flow.instances()[ODD_NAME]
    assert row["vm_state"] == "active"
    console = flow.console(row["host"], row["uuid"])
    assert "BOOTFLOW-GUEST hostname=%s " % row["hostname"] in console and "BOOTFLOW-GUEST-READY" in console
    host = flow.lab.host(row["host"])
    assert host.run("virsh", "-q", "-c", "qemu:///system", "list", "--all", "--name").stdout.split() == [
        row["domain_name"]
    ]
    folders = set(host.run("ls", "/var/lib/bootflow/instances").stdout.split())
    assert {name for name in folders if not name.startswith("_")} - {"locks"} == {row["uuid"]}
    listed = flow.run("list", bootflow_names=[ODD_NAME])
    assert ODD_NAME in listed.output and row["uuid"] in listed.output
    assert [(c["n"], c["instance_uuid"]) for c in flow.query("SELECT count(*) AS n, instance_uuid FROM claims")] == [
        (1, row["uuid"])
    ]
    assert flow.query("SELECT count(*) AS n FROM ports")[0]["n"] == 1
    flow.check_ledger()
    for host in flow.lab.hosts:
        left = host.run("sh", "-c", "ls -A /var/lib/bootflow/instances/_base 2>/dev/null || true").stdout.split()
        assert not [name for name in left if "part" in name or "upload" in name], left
    assert brought(flow) - before == set()

    # An address that is taken; a quota; no host. The ledger has nothing of them but the instance that no host had room for.
    address = flow.query("SELECT ip_address FROM ip_allocations")[0]["ip_address"]
    refused(
        flow,
        "instances[1].networks: FixedIpAlreadyInUse: IP address %s already allocated in subnet guests-v4 Remedy: Port "
        % address,
        " has it. Choose another fixed_ip, or leave it out.",
        bootflow_instances=[entry("free"), entry("taken", networks=[{"network": "guests", "fixed_ip": address}])],
    )
    refused(
        flow,
        "instances[1].count: OverQuota: Quota exceeded for instances: Requested 3, but already used ",
        "Remedy: Delete instances, ask for fewer, or raise bootflow_quotas.",
        bootflow_instances=[entry("few"), entry("many", min_count=3)],
        bootflow_quotas={"instances": 11},
    )
    assert flow.instances()[ODD_NAME]["vm_state"] == "active"
    flow.delete(ODD_NAME, *faults)
    assert flow.residue() == {}
