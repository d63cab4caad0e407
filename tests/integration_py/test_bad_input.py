# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input through the playbooks: an error with its code and its remedy, nothing half done, nothing left behind."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest
from flow import GUEST_NETWORK, Flow, Run, entry

READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
ODD_NAME = 'a<b>&"../c'
TABLES = (
    "instances",
    "reservations",
    "request_specs",
    "ports",
    "ip_allocations",
    "claims",
    "instance_actions",
    "cleanups",
    "block_device_mappings",
)
NOT_WRITABLE = "Put bootflow_ledger_url on a folder that this user may write, or correct its permissions."


def words(done: Run) -> str:
    """The output as a person reads it: what Ansible prints above the task's JSON, in one line."""
    return " ".join(" ".join(line for line in done.output.splitlines() if not line.startswith("fatal: ")).split())


def rows(flow: Flow) -> dict[str, int]:
    """How much of instances the ledger has ever had; nothing where there is no ledger."""
    if not flow.ledger_path.exists():
        return dict.fromkeys(TABLES, 0)
    return {table: flow.query("SELECT count(*) AS n FROM %s" % table)[0]["n"] for table in TABLES}


def says(done: Run, *expected: str) -> None:
    assert done.returncode == 2, done.output
    text = words(done)
    for part in expected:
        assert part in text, "%r is not in what the person reads:\n%s" % (part, done.output)
    assert "Traceback" not in done.output and "Unknown error" not in done.output, done.output


def refused(flow: Flow, *expected: str, playbook: str = "boot", options: tuple[str, ...] = (), **variables) -> Run:
    """The playbook ends with these words, and nothing of it is in the ledger, on no host, in no later play."""
    before = rows(flow)
    done = flow.run(playbook, *options, **variables)
    says(done, *expected)
    assert rows(flow) == before, done.output
    assert "compute1" not in done.output.partition("PLAY RECAP")[2], "a host was asked:\n%s" % done.output
    return done


# --- the request ------------------------------------------------------------------------------------------------------


def test_all_errors_of_a_request_at_once(flow: Flow) -> None:
    cases = [
        (
            "web",
            "instances[0]: MalformedRequestBody: Malformed request body: an instance must be a mapping, not a text Remedy: Write each instance as a mapping",
        ),
        (
            entry("field", flavour="tiny"),
            "instances[1].flavour: InvalidInput: Unknown field 'flavour' Remedy: Did you mean flavor?",
        ),
        (
            {"flavor": "tiny", "image": "guest", "networks": "none"},
            "instances[2].name: InvalidInput: Server name is not defined Remedy: Add name.",
        ),
        (
            entry(""),
            "instances[3].name: InvalidInput: Invalid input for field name: must have at least 1 character, has 0 Remedy: Use 1 to 255 printable",
        ),
        (
            entry("x" * 256),
            "instances[4].name: InvalidInput: Invalid input for field name: must have at most 255 characters, has 256 Remedy: Use 1 to 255",
        ),
        (
            entry("a\x01b"),
            "instances[5].name: InvalidInput: Invalid input for field name: 'a\\x01b' character 2 (U+0001) is not printable Remedy: Use 1",
        ),
        (
            entry("line\nend"),
            "instances[6].name: InvalidInput: Invalid input for field name: 'line\\nend' character 5 (U+000A) is not printable Remedy: Use",
        ),
        (
            entry(" blank"),
            "instances[7].name: InvalidInput: Invalid input for field name: ' blank' must not begin or end with blanks Remedy: Use 1 to 255",
        ),
        (
            entry("list", metadata=["a"]),
            "instances[8].metadata: InvalidMetadata: Invalid input for field metadata: must be a mapping, not a list Remedy: ",
        ),
        (
            entry("less", min_count=3, max_count=2),
            "instances[9].min_count: InvalidInput: min_count must be <= max_count Remedy: Lower min_count, or raise",
        ),
        (
            entry("same", max_count=2, networks=[{"network": "guests", "fixed_ip": "10.77.0.20"}]),
            "instances[10].networks[0].fixed_ip: InvalidFixedIpAndMaxCountRequest: Failed to launch instances: max_count cannot be greater than 1",
        ),
        (
            entry("flavor", flavor="nix"),
            "instances[11].flavor: FlavorNotFound: Flavor nix could not be found. Remedy: bootflow_flavors has: full, huge, tiny.",
        ),
        (
            entry("image", image="nix"),
            "instances[12].image: ImageNotFound: Image nix could not be found. Remedy: bootflow_images has: almalinux-10, ",
        ),
        (
            entry("net", networks=[{"network": "nix"}]),
            "instances[13].networks[0].network: NetworkNotFound: Network nix could not be found. Remedy: bootflow_networks has: ",
        ),
        (
            entry("out", networks=[{"network": "guests", "fixed_ip": "10.99.0.20"}]),
            "instances[14].networks[0].fixed_ip: InvalidIpForNetwork: IP address 10.99.0.20 is not a valid IP for any of the subnets on the specified",
        ),
        (
            entry("pool", networks=[{"network": "pools", "fixed_ip": "10.78.0.5"}]),
            "instances[15].networks[0].fixed_ip: InvalidIpForAllocationPools: IP address 10.78.0.5 is not in the allocation pools of subnet pools-v4",
        ),
        (
            entry("groups", security_groups=["web"]),
            "instances[16].security_groups: NotSupportedYet: Security group 'web'",
        ),
        (entry("zone", availability_zone="nova:compute1"), "instances[17].availability_zone: ForcedHostForbidden: "),
        (
            entry("count", max_count="many"),
            "instances[18].max_count: InvalidInput: Invalid input for field max_count: 'many' must be an integer Remedy: Correct the value; docs/request.md",
        ),
        (
            entry("b64", user_data_base64="%%%"),
            "instances[19].user_data_base64: InstanceUserDataMalformed: Invalid input for field user_data_base64: is not valid base64 Remedy: Encode it",
        ),
    ]
    pools = {
        **GUEST_NETWORK,
        "name": "pools",
        "source": "bf-pools",
        "enforce_allocation_pools": True,
        "subnets": [
            {
                "name": "pools-v4",
                "cidr": "10.78.0.0/24",
                "allocation_pools": [{"start": "10.78.0.10", "end": "10.78.0.20"}],
            }
        ],
    }
    done = refused(
        flow,
        "The request has %d errors." % len(cases),
        *[text for _entry, text in cases],
        bootflow_instances=[wrong for wrong, _text in cases],
        bootflow_networks=[GUEST_NETWORK, pools],
    )
    for remedy in (
        "Write one entry per instance that needs its own address.",
        "Choose an address of one of its subnets.",
        "Choose an address of the pools, or set enforce_allocation_pools: false on the network.",
    ):
        assert "Remedy: " + remedy in words(done)
    assert words(done).count("Remedy: ") == len(cases), done.output
    assert flow.ledger_path.exists() and set(rows(flow).values()) == {0}
    assert flow.residue() == {}

    # Errors of images count for those who name them.
    image = flow.variables["bootflow_images"][0]
    refused(
        flow,
        "The request has 4 errors.",
        "images[guest].disk_format: InvalidInput: ",
        "images[guest].checksum: InvalidInput: checksum is not valid: a sha256 has 64 hexadecimal digits "
        "Remedy: Write sha256:<hex> as sha256sum prints it, or sha256:<address of the file with checksums>.",
        "images[none].checksum: InvalidInput: checksum is missing Remedy: Add what sha256sum or sha512sum FILE prints as "
        "sha256:<hex> or sha512:<hex>, or the address of the publisher's file with checksums as sha256:https://..., "
        "or set allow_unverified: true to trust the source.",
        "images[ftp].url: InvalidInput: url must begin with http://, https:// or file://",
        bootflow_images=[
            {**image, "checksum": "sha256:12", "disk_format": "floppy"},
            {**image, "name": "none", "checksum": ""},
            {**image, "name": "ftp", "path": "", "url": "ftp://images.example.org/x"},
            {"name": "unused"},
        ],
        bootflow_instances=[entry("web"), entry("none", image="none"), entry("ftp", image="ftp"), entry("again")],
    )
    refused(
        flow, "InvalidInput: bootflow_instances is not set Remedy: Set it in the inventory, in group_vars or with -e"
    )
    refused(flow, "InvalidInput: bootflow_instances must be a list Remedy: ", bootflow_instances="web")
    refused(
        flow,
        "InvalidInput: Invalid input received: no instance is selected Remedy: Give bootflow_names, bootflow_uuids ",
        playbook="delete",
    )
    assert flow.residue() == {}


def test_settings_are_checked_before_anything_is_written(flow: Flow, tmp_path: Path) -> None:
    mistyped = tmp_path / "mistyped.json"
    mistyped.write_text(
        json.dumps(
            {
                "bootflow_compute": {
                    "hosts": {
                        "compute1": {
                            "bootflow_reserved_memory_mb": "1.5",
                            "bootflow_disabled": "maybe",
                            "bootflow_config_drive_format": "floppy",
                        },
                        "compute2": {
                            "bootflow_ram_allocation_ratio": "many",
                            "bootflow_cpu_allocation_ratio": "nan",
                            "bootflow_disk_backend": "zfs",
                        },
                        "compute3": {
                            "bootflow_disk_allocation_ratio": -1,
                            "bootflow_wait_timeout": "soon",
                            "bootflow_cpu_allocation_ratio": "nan",
                        },
                    }
                }
            }
        )
    )
    correct = "Remedy: Correct it in the inventory"
    refused(
        flow,
        "The request has 12 errors.",
        "bootflow_max_attempts: InvalidInput: bootflow_max_attempts must be a whole number from 1 to 3, got 9 Remedy: Correct it in the inventory",
        "bootflow_filter_dirs: InvalidInput: folder /nowhere does not exist Remedy: Correct the path, or create the folder.",
        "scheduler: InvalidInput: Invalid input received: unknown filter NoFilter Remedy: bootflow_enabled_filters may hold: RetryFilter, ",
        "scheduler: InvalidInput: Invalid input received: unknown weigher NoWeigher Remedy: bootflow_weighers may hold: RAMWeigher, ",
        "host compute1: InvalidInput: bootflow_reserved_memory_mb must be a whole number of MiB, at least 0, got '1.5' "
        + correct,
        "host compute1: InvalidInput: bootflow_disabled must be true or false, got 'maybe' " + correct,
        "host compute1: InvalidInput: bootflow_config_drive_format must be one of iso9660, vfat, got 'floppy' "
        + correct,
        "host compute2: InvalidInput: bootflow_ram_allocation_ratio must be a number, at least 0, got 'many' "
        + correct,
        "hosts compute2, compute3: InvalidInput: bootflow_cpu_allocation_ratio must be a number, at least 0, got 'nan' "
        + correct,
        "host compute2: InvalidInput: bootflow_disk_backend must be one of qcow2, raw, lvm, qcow2_on_lvm, got 'zfs' "
        + correct,
        "host compute3: InvalidInput: bootflow_disk_allocation_ratio must be a number, at least 0, got -1 " + correct,
        "host compute3: InvalidInput: bootflow_wait_timeout must be a number of seconds, at least 0, got 'soon' "
        + correct,
        options=("-i", str(mistyped)),
        bootflow_instances=[entry("web")],
        bootflow_max_attempts=9,
        bootflow_enabled_filters=["RamFilter", "NoFilter"],
        bootflow_weighers=["NoWeigher"],
        bootflow_filter_dirs=["/nowhere"],
    )
    refused(
        flow,
        "InvalidInput: bootflow_facts_max_age must be a whole number of seconds, at least 0, got 'soon'",
        "Remedy: Correct it in the inventory",
        bootflow_instances=[entry("web")],
        bootflow_facts_max_age="soon",
    )
    assert flow.residue() == {}


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
        "instances[1].networks: FixedIpAlreadyInUse: IP address %s already allocated in subnet guests-v4 Remedy: Choose another fixed_ip, or leave it out."
        % address,
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


def test_no_host_is_left(flow: Flow) -> None:
    done = flow.boot(entry("huge", flavor="huge"), entry("small"), expect=2)
    says(
        done,
        "BootFailed: 1 of 2 instances are not ACTIVE.",
        "NoValidHost: No valid host was found. ",
        "Of 3 hosts: RamFilter rejected 3 hosts, the nearest is compute",
        "(memory: needs 8789.1 GiB, ",
        "Nearest miss: compute",
        " MiB of memory instead of 9000000 would have fitted on ",
    )
    found = flow.instances()
    assert (found["huge"]["vm_state"], found["huge"]["task_state"], found["huge"]["host"]) == ("error", None, None)
    assert found["small"]["vm_state"] == "active"
    assert flow.query("SELECT count(*) AS n FROM claims")[0]["n"] == 1
    plan = flow.run("boot", "--check", bootflow_instances=[entry("huge", flavor="huge"), entry("small")])
    assert plan.returncode == 2 and "RamFilter" in plan.output and "9000000" in plan.output, plan.output
    flow.delete("huge", "small")
    assert flow.residue() == {}
