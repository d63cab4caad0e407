# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compute host that was taken over, and has the token of one guest that is to leave it: what it can do on the guest's new host."""

from __future__ import annotations

import json
import subprocess
import typing as t
from pathlib import Path

import pytest
from flow import Flow, entry
from host_python import PYTHON, ModuleRunner
from test_moves import traces
from test_operations import operate

TOKEN, STOP = "t" * 64, "s" * 64

# On the host that was taken over, with the real client library of libvirt, through the way that the real migration takes.
_ATTACK = """
import json, re, sys
sys.path[:0] = [sys.argv[1]]
import libvirt
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.server import Place
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live import channels, relay
libvirt.registerErrorHandler(lambda _context, _error: None, None)
given = json.load(sys.stdin)
sockets = channels.sockets_of(given["token"], given["name"])
relay.start(sockets, Place(given["address"], given["port"], given["fingerprint"]), given["token"], (0, 0), 120)
uri = "qemu+unix:///system?socket=" + sockets.path(channels.LIBVIRT)
pool = "<pool type='dir'><name>all</name><target><path>/etc</path></target></pool>"
calls = {
    "list": lambda c: c.listAllDomains(),
    "own": lambda c: c.lookupByUUIDString(given["uuid"]).destroy(),
    "other": lambda c: c.lookupByName(given["other"]).destroy(),
    "define": lambda c: c.defineXML(given["xml"]),
    "create": lambda c: c.createXML(given["xml"], 0),
    "pool": lambda c: c.storagePoolCreateXML(pool, 0),
    "pools": lambda c: c.listAllStoragePools(),
    "secret": lambda c: c.secretDefineXML("<secret ephemeral='no' private='no'/>", 0),
    "network": lambda c: c.networkLookupByName("default").destroy(),
    "capabilities": lambda c: c.getCapabilities(),
    "node": lambda c: c.nodeDeviceLookupByName("computer"),
    "ordinary": lambda c: None,
}
said = {}
for name, call in calls.items():
    try:
        connection = libvirt.open(uri)
        call(connection)
        said[name] = "permitted"
        connection.close()
    except libvirt.libvirtError as error:
        said[name] = error.get_error_message()
own = libvirt.open("qemu:///system").lookupByUUIDString(given["uuid"])
flags = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER | libvirt.VIR_MIGRATE_PERSIST_DEST | libvirt.VIR_MIGRATE_NON_SHARED_DISK
honest = own.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE)
honest = re.sub("<backingStore type=.*?</backingStore>", "<backingStore/>", honest, flags=re.DOTALL)  # as the module sends it
for name, (found, by) in given["changes"].items():
    if found not in honest:
        said[name] = "cannot be changed: " + honest
        continue
    parameters = {
        "migrate_uri": "unix://" + sockets.path(channels.MEMORY), "disks_uri": "unix://" + sockets.path(channels.DISKS),
        "migrate_disks": ["vda"],
        "destination_xml": honest.replace(found, by),
    }
    try:
        own.migrateToURI3(uri, parameters, flags)
        said[name] = "permitted"
    except libvirt.libvirtError as error:
        said[name] = error.get_error_message()
relay.end(sockets)
print(json.dumps(said))
"""


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_a_source_host_that_was_taken_over(flow: Flow, tmp_path: Path) -> None:
    """It may do what the migration of this guest takes, and nothing else; an ordinary migration passes afterwards."""
    home, away = flow.lab.hosts[:2]
    flow.boot(entry("web"), bootflow_hosts=[home.name])
    flow.boot(entry("other"), bootflow_hosts=[away.name])
    web, other = (flow.instances()[name] for name in ("web", "other"))
    uuid = web["uuid"]
    folder = "/var/lib/bootflow/instances/%s" % uuid
    here, there = (ModuleRunner(str(tmp_path / h.name), h.command()) for h in (home, away))
    guest = here("domain_migration", step="describe", uuids=[uuid])["outcomes"][uuid]["guest"]
    honest = home.run("virsh", "dumpxml", "--migratable", uuid).stdout
    network = honest.split("<source network='")[1].split("'")[0]
    mac, dev = (honest.split(before)[1].split("'")[0] for before in ("<mac address='", "<target dev='tap"))
    interface = {"type": "network", "network": network, "bridge": None, "dev": "tap" + dev, "bandwidth": {}}
    limits = {
        "ledger_id": honest.split('ledger="')[1].split('"')[0],
        "memory_mb": 192,
        "vcpus": 1,
        "disks": {"disk": 1024**3},
        "vnc_listen": "127.0.0.1",
        "interfaces": {mac: interface},
    }
    coming = {"uuid": uuid, "token": TOKEN, "guest": guest, "limits": limits}
    gate = there(
        "domain_migration", step="prepare", arriving_guests=[coming], stop_token=STOP, ledger_id=limits["ledger_id"]
    )
    assert gate["outcomes"][uuid]["error"] is None, gate
    changes = {
        "a file of the host": ("%s/disk'" % folder, "/etc/shadow'"),
        "a disk of another guest": ("%s/disk'" % folder, "/var/lib/bootflow/instances/%s/disk'" % other["uuid"]),
        "another format": ("type='qcow2'", "type='raw'"),
        "another network": ("network='%s'" % network, "network='default'"),
        "another log": ("console.log", "../console.log"),
        "another owner": ('ledger="', 'ledger="x'),
        "a base below": (
            "<backingStore/>",
            "<backingStore type='file'><format type='raw'/><source file='/etc/shadow'/></backingStore>",
        ),
        "random numbers": (">/dev/urandom<", ">/dev/null<"),
    }
    given = {
        "token": TOKEN, "name": guest["name"], "uuid": uuid, "other": other["domain_name"], "xml": honest, "changes": changes,
        "address": away.address, "port": gate["port"], "fingerprint": gate["fingerprint"],
    }  # fmt: skip
    done = subprocess.run(
        [*home.command(), PYTHON, "-c", _ATTACK, here.library],
        input=json.dumps(given),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, t.Any] = json.loads(done.stdout.splitlines()[-1])
    assert said.pop("ordinary") == "permitted", said
    for name in changes:
        text = said.pop(name, "")
        assert "host %s refuses: " % away.name in text and "definition of guest %s" % uuid in text, (name, done.stdout)
    refused = {name: text for name, text in said.items() if "is not part of a migration" not in text}
    assert not refused, refused

    assert there("domain_migration", step="close", stop_token=STOP, port=gate["port"], fingerprint=gate["fingerprint"])[
        "changed"
    ]
    assert traces(flow, "other") == {away.name: (True, "running")}
    assert away.run("virsh", "list", "--all", "--uuid").stdout.split() == [other["uuid"]]
    assert not away.run("virsh", "pool-list", "--all", "--name").stdout.split()
    assert home.run("virsh", "domstate", uuid).stdout.strip() == "running"
    away.run("rm", "-r", folder)

    operate(flow, "live_migrate", "web", bootflow_live_migrate_host=away.name)
    assert traces(flow, "web") == {away.name: (True, "running")}
    flow.delete("web", "other")
