# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks against the lab and its storage host, and looks at what is left of volumes anywhere."""

from __future__ import annotations

import json
import re
import time
import typing as t
from contextlib import contextmanager
from pathlib import Path

from flow import Flow

GROUPS = {"thick": "boot-thick", "thin": "boot-thin"}
PORTS = {"thick": 3260, "thin": 3261}
TARGETS = {"thick": "lio", "thin": "tgt"}
LIO_LOGINS = "/sys/kernel/config/target/iscsi/iqn*/tpgt_1/acls/*/auth"
PREFIX = "iqn.2010-10.org.openstack:"
IQN = PREFIX + "volume-"  # of no ledger
# Of any ledger, or of none; its group is the volume's id.
TARGET = re.compile(re.escape(PREFIX) + r"(?:ledger-[0-9a-f]{8}\.)?volume-([0-9a-f-]{36})")
# tgt beside LIO listens at a port of its own.
TGTD = "pidof tgtd >/dev/null || { tgtd --iscsi portal=%s:%d && sleep 1; }"


class VolumeFlow(Flow):
    """Two backends on the storage host: thick exported by LIO, thin exported by tgt. Each is a volume type."""

    def __init__(self, lab, folder: Path, image: Path, storage):
        super().__init__(lab, folder, image)
        self.storage = storage
        address = storage.vm.address
        backends = [
            {
                "name": kind,
                "volume_group": GROUPS[kind],
                "provisioning": kind,
                "target": TARGETS[kind],
                "portals": ["%s:%d" % (address, PORTS[kind])],
            }
            for kind in GROUPS
        ]
        self.inventory = storage.vm.write_inventory(
            str(folder / "storage.json"), {"bootflow_storage_backends": backends}
        )
        self.variables.update(
            bootflow_volume_attach="qemu",
            bootflow_volume_types=[{"name": k, "extra_specs": {"volume_backend_name": k}} for k in GROUPS],
        )
        self.storage_is_back()

    def storage_is_back(self) -> None:
        """What its service manager would have started; this host has none."""
        self.storage.sh("vgchange -q -ay %s" % " ".join(GROUPS.values()))
        self.storage.sh(TGTD % (self.storage.vm.address, PORTS["thin"]))

    def arguments(self, playbook: str, variables: dict, *options: str) -> list[str]:
        argv = super().arguments(playbook, variables, *options)
        return [*argv[:2], "-i", self.inventory, *argv[2:]]

    def create(self, *entries: dict) -> None:
        done = self.run("volume_create", bootflow_volumes=list(entries))
        assert done.returncode == 0, done.output

    def remove(self, *names: str) -> None:
        done = self.run("volume_delete", bootflow_volume_names=list(names), bootflow_missing_ok=True)
        assert done.returncode == 0, done.output

    # --- what is where ------------------------------------------------------------------------------------------------

    def volumes(self) -> list[t.Any]:
        return self.query("SELECT * FROM volumes WHERE deleted = '' ORDER BY created_at, id")

    def attached_to(self, row: t.Any) -> list[str]:
        """The volumes of an instance."""
        rows = self.query(
            "SELECT volume_id FROM volume_attachments WHERE deleted = '' AND instance_uuid = ? ORDER BY mountpoint",
            row["uuid"],
        )
        return [r["volume_id"] for r in rows]

    @property
    def iqn(self) -> str:
        """The beginning of the names of this ledger's targets; the volume's id follows."""
        (row,) = self.query("SELECT id FROM ledger_identity")
        return "%sledger-%s.volume-" % (PREFIX, row["id"][:8])

    def exported(self) -> dict[str, str]:
        """volume id -> the kind of target that has it."""
        lio = self.storage.sh("ls /sys/kernel/config/target/iscsi 2>/dev/null || true")
        tgt = self.storage.sh("tgtadm --lld iscsi --op show --mode target 2>/dev/null || true")
        found = {}
        for kind, text in (("lio", lio), ("tgt", tgt)):
            found.update(dict.fromkeys(TARGET.findall(text), kind))
        return found

    def until_console(self, row: t.Any, text: str, timeout: float = 180) -> None:
        end = time.monotonic() + timeout
        while text not in (found := self.console(row["host"], row["uuid"])):
            assert time.monotonic() < end, "the guest never said %s:\n%s" % (text, found[-1500:])
            time.sleep(0.5)

    def everything_written(self) -> str:
        """All that the runs left on the controller: the ledger's rows, logs."""
        tables = self.query("SELECT name FROM sqlite_master WHERE type = 'table'")
        rows = [tuple(r) for table in tables for r in self.query("SELECT * FROM %s" % table["name"])]
        return json.dumps(rows, default=str)

    def secrets_in(self, text: str) -> list[str]:
        """CHAP users and secrets of the storage host's targets that are found in the text."""
        lio = self.storage.sh("cat %s/userid %s/password 2>/dev/null || true" % (LIO_LOGINS, LIO_LOGINS))
        tgt = self.storage.sh("cat /etc/tgt/conf.d/*.conf 2>/dev/null || true")
        secrets = lio.split() + [word for login in re.findall(r"incominguser (\S+) (\S+)", tgt) for word in login]
        assert secrets, "targets have secrets"
        return [s for s in secrets if s.strip('"') in text]

    def secrets_read_by_others(self) -> str:
        """What a user without capabilities reads of LIO's and tgt's logins on the storage host."""
        files = "%s/* /etc/tgt/conf.d/*.conf /etc/rtslib-fb-target/*.json" % LIO_LOGINS
        reads = "setpriv --reuid 65534 --regid 65534 --clear-groups cat"
        return self.storage.sh("for file in %s; do %s $file 2>/dev/null; done || true" % (files, reads)).strip()

    @contextmanager
    def portal_unreachable(self) -> t.Iterator[None]:
        """Packets of the compute hosts to the portals go nowhere."""
        for host in self.lab.hosts:
            host.run("ip", "route", "add", "blackhole", self.storage.vm.address)
        try:
            yield
        finally:
            for host in self.lab.hosts:
                host.run("ip", "route", "delete", "blackhole", self.storage.vm.address)

    def residue(self) -> dict[str, object]:
        found = super().residue()
        for kind, group in GROUPS.items():
            left = [n for n in self.storage.lvs(group) if n.startswith(("volume-", "_snapshot-"))]
            if left:
                found["logical volumes of %s" % kind] = left
        if self.exported():
            found["targets"] = self.exported()
        if self.storage.temporary_files():
            found["temporary files"] = self.storage.temporary_files()
        configured = self.storage.sh("ls /etc/tgt/conf.d 2>/dev/null || true").split()
        if configured:
            found["files of tgt"] = configured
        for host in self.lab.hosts:
            secrets = host.run("virsh", "-q", "-c", "qemu:///system", "secret-list").stdout.strip()
            if secrets:
                found["secrets on %s" % host.name] = secrets
        for table in ("volumes", "volume_snapshots", "volume_attachments"):
            rows = self.query("SELECT * FROM %s WHERE deleted = ''" % table)
            if rows:
                found[table] = [dict(r) for r in rows]
        return found
