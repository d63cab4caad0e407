# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pool that answers as ``rbd`` and ``ceph`` do (Ceph 16.2.15, captured), for tests of what is built on them."""

from __future__ import annotations

import json
import os
import stat
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import command
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.command import Completed

FSID = "99b63e7a-b54e-45c2-9b7f-0ddc9c7c9654"
KEY = "AQC+uwxrfXuXJxAAzXdVGMtCYdczKnlZyGYwdA=="
GIB = 1024**3
NOT_FOUND = "rbd: error opening image %s: (2) No such file or directory\n"
BUSY = (
    "2026-11-29T23:56:56.267+0000 7f68fdd3e6c0 -1 librbd::SnapshotUnprotectRequest: cannot unprotect: at least 1 child(ren) [1038a4795c06] in pool 'volumes'\n"
    "\n"
    "rbd: unprotecting snap failed: (16) Device or resource busy\n"
)
EXISTS = "rbd: image creation failed\nImporting image: 0% complete...failed.\nrbd: import failed: (17) File exists\n"
HUNG = (
    "2026-11-29T23:58:33.835+0000 7fd2cf890380 -1 librbd::api::Image: list_images: error listing v1 images: (110) Connection timed out\n"
    "\n"
    "rbd: listing images failed: (110) Connection timed out\n"
)
REFUSED = (
    "2026-11-29T23:58:54.751+0000 7f02affff6c0 -1 monclient(hunting): handle_auth_bad_method server allowed_methods [2] but i only support [2,1]\n"
    "\n"
    "rbd: couldn't connect to the cluster!\n"
    "rbd: listing images failed: (13) Permission denied\n"
)
NO_MANAGER = {"available": False}


class Pool:
    """``images``: name -> {size, snapshots, parent, meta, watchers, locks}. ``broken``: beginning of a command -> (exit code, what it writes)."""

    def __init__(self) -> None:
        self.images: dict[str, dict[str, t.Any]] = {}
        self.broken: dict[str, Completed] = {}
        self.flags = "hashpspool,selfmanaged_snaps"
        self.manager = True
        self.keeps = False  # rm says that an image is not found, and removes nothing
        self.fenced: list[str] = []
        self.unfenced = False  # clients that are fenced have images open still
        self.lines: list[str] = []
        self.key_files: list[tuple[str, int, int]] = []

    def add(self, name: str, size: int = GIB, **fields: t.Any) -> None:
        self.images[name] = {
            "size": size,
            "snapshots": {},
            "parent": None,
            "meta": {},
            "watchers": [],
            "locks": [],
            **fields,
        }

    def run(self, argv: t.Sequence[str], **_options: t.Any) -> Completed:
        words = list(argv)
        program = os.path.basename(words[0])
        file = words[words.index("--keyfile") + 1]
        with open(file, encoding="ascii") as stream:
            mode = stat.S_IMODE(os.stat(file).st_mode), stat.S_IMODE(os.stat(os.path.dirname(file)).st_mode)
            self.key_files.append((stream.read().strip(), *mode))
        assert KEY not in " ".join(words)
        for option in (
            "-c",
            "-m",
            "--id",
            "--keyfile",
            "--client_mount_timeout",
            "--rados_osd_op_timeout",
            "--connect-timeout",
            "--format",
        ):
            if option in words:
                at = words.index(option)
                del words[at : at + 2]
        words = [word for word in words[1:] if word not in ("--no-progress",)]
        line = " ".join([program, *words])
        self.lines.append(line)
        for beginning, done in self.broken.items():
            if line.startswith(beginning):
                return done
        answer = getattr(self, "_%s" % program)(words)
        return (
            answer if isinstance(answer, Completed) else Completed(0, "" if answer is None else json.dumps(answer), "")
        )

    def _ceph(self, words: list[str]) -> t.Any:
        if words[:2] == ["osd", "dump"]:
            return {
                "fsid": FSID,
                "flags": "sortbitwise",
                "pools": [{"pool_name": "volumes", "flags_names": self.flags}],
            }
        if words == ["status"]:
            return {"fsid": FSID, "mgrmap": {"available": self.manager}}
        if words == ["df"]:
            stats = {"stored": 2 * GIB, "max_avail": 10 * GIB, "bytes_used": 2 * GIB}
            return {"pools": [{"name": "volumes", "id": 1, "stats": stats}]}
        if words[:3] == ["osd", "pool", "get-quota"]:
            return {"pool_name": "volumes", "quota_max_bytes": 0}
        assert words[:3] == ["osd", "blocklist", "add"], words
        self.fenced.append(words[3])
        for image in self.images.values():
            image["watchers"] = [a for a in image["watchers"] if a != words[3] or self.unfenced]
        return None

    def _rbd(self, words: list[str]) -> t.Any:
        verb = words[0]
        if verb == "ls":
            return self._rows() if "--long" in words else sorted(self.images)
        *_options, place = [word for word in words if word.startswith("volumes/")]
        image, _at, snapshot = place[len("volumes/") :].partition("@")
        if verb == "create":
            self.add(image, int(words[words.index("--size") + 1][:-1]) * 1024**2)
            return None
        if verb == "import":
            if image in self.images:
                return Completed(17, "", EXISTS)
            self.add(image, os.path.getsize(words[-2]) if os.path.exists(words[-2]) else GIB)
            return None
        if verb == "clone":
            source, _at, name = words[-2][len("volumes/") :].partition("@")
            self.add(
                image,
                self.images[source]["snapshots"][name],
                parent={"pool": "volumes", "image": source, "snapshot": name},
            )
            return None
        if verb == "rename":
            self.images[image] = self.images.pop(words[-2][len("volumes/") :])
            for other in self.images.values():
                if other["parent"] and other["parent"]["image"] == words[-2][len("volumes/") :]:
                    other["parent"]["image"] = image
            return None
        if verb == "image-meta":
            place = words[2]
            image = place[len("volumes/") :]
        if image not in self.images or (
            snapshot and words[1] != "create" and snapshot not in self.images[image]["snapshots"]
        ):
            return Completed(2, "", NOT_FOUND % image)
        row = self.images[image]
        return getattr(self, "_rbd_%s" % verb.replace("-", "_"))(words, row, image, snapshot)

    def _rows(self) -> list[dict[str, t.Any]]:
        rows = []
        for name, row in sorted(self.images.items()):
            parent = {"parent": row["parent"]} if row["parent"] else {}
            rows.append({"image": name, "id": "1", "size": row["size"], "format": 2, **parent})
            rows += [{"image": name, "id": "1", "snapshot": s, "size": size} for s, size in row["snapshots"].items()]
        return rows

    def _rbd_info(self, words: list[str], row: dict[str, t.Any], image: str, snapshot: str) -> t.Any:
        return {"name": image, "size": row["size"], **({"parent": row["parent"]} if row["parent"] else {})}

    def _rbd_image_meta(self, words: list[str], row: dict[str, t.Any], image: str, snapshot: str) -> t.Any:
        if words[1] == "list":
            return row["meta"] or None
        row["meta"][words[3]] = words[4]
        return None

    def _rbd_status(self, words: list[str], row: dict[str, t.Any], image: str, snapshot: str) -> t.Any:
        return {"watchers": [{"address": address, "client": 1, "cookie": 1} for address in row["watchers"]]}

    def _rbd_lock(self, words: list[str], row: dict[str, t.Any], image: str, snapshot: str) -> t.Any:
        return [{"id": "auto 1", "locker": "client.1", "address": address} for address in row["locks"]]

    def _rbd_resize(self, words: list[str], row: dict[str, t.Any], image: str, snapshot: str) -> t.Any:
        row["size"] = int(words[words.index("--size") + 1][:-1]) * 1024**2

    def _rbd_children(self, words: list[str], row: dict[str, t.Any], image: str, snapshot: str) -> t.Any:
        return [
            {"pool": "volumes", "pool_namespace": "", "image": name} for name in self._clones(image, snapshot)
        ] or None

    def _clones(self, image: str, snapshot: str) -> list[str]:
        wanted = {"pool": "volumes", "image": image, "snapshot": snapshot}
        return [name for name, row in self.images.items() if row["parent"] == wanted]

    def _rbd_flatten(self, words: list[str], row: dict[str, t.Any], image: str, snapshot: str) -> t.Any:
        row["parent"] = None

    def _rbd_snap(self, words: list[str], row: dict[str, t.Any], image: str, snapshot: str) -> t.Any:
        if words[1] == "ls":
            return [{"id": 1, "name": name, "size": size} for name, size in row["snapshots"].items()] or None
        if words[1] == "create":
            row["snapshots"][snapshot] = row["size"]
        elif words[1] == "unprotect" and self._clones(image, snapshot):
            return Completed(16, "", BUSY)
        elif words[1] == "rollback":
            row["size"] = row["snapshots"][snapshot]
        elif words[1] == "rm":
            del row["snapshots"][snapshot]
        return None

    def _rbd_rm(self, words: list[str], row: dict[str, t.Any], image: str, snapshot: str) -> t.Any:
        if self.keeps:
            return Completed(
                2, "", "Removing image: 0% complete...failed.\nrbd: delete error: (2) No such file or directory\n"
            )
        if row["snapshots"]:
            return Completed(
                39,
                "",
                "rbd: image has snapshots - these must be deleted with 'rbd snap purge' before the image can be removed.\n",
            )
        del self.images[image]
        return None


def answering(monkeypatch: t.Any) -> Pool:
    """A pool in place of the programs."""
    pool = Pool()
    monkeypatch.setattr(command, "run", pool.run)
    monkeypatch.setattr(command, "program", lambda name, package: "/usr/bin/" + name)
    return pool
