# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Targets of tgt: tgtadm for the running configuration, a file with mode 0600 per volume for the next start of the service.

The service reads the files with tgt-admin, as in Cinder. We do not use tgt-admin, because it passes the CHAP secret to
tgtadm on the command line, where every user of the host can read it (at the start of the service it still does, as it has
no other way). Our secrets are sent to the socket of tgtd, see ``SecretCarrier``.

tgt has accounts and initiators of a target but does not relate them: comments in the file do, so that the
account is removed with its initiator. (An initiator that knows the credentials of another one can log in with them.) tgtd does
not return secrets; the secrets of the other initiators are kept from the file.

tgtd stores the accounts of a target in an array, and reads as many entries as there are accounts: accounts behind a gap are not
found, and ``--op show`` crashes tgtd. Therefore accounts are unbound only from the end of the array, see ``_set_accounts``.

The identity of a disk (VPD page 83h) is derived from the id of the volume. tgt would derive it from the number of the target, and
multipathd would merge the first disks of two storage hosts because of their equal identity.

source: Cinder's tgt target (Queens); targets.conf(5), tgtadm(8)
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import glob
import os
import re
import secrets
import select
import socket
import stat
import tempfile
import threading
import typing as t
import uuid

from ...core.errors import CommandFailed
from ...core.volumes.names import LUN_OF_TARGET, normal_name
from ..os.command import program, run
from ..os.files import fsync, write_file
from .target import UNKNOWN, Export, Found, create_failed

CONFIG = "/etc/tgt/targets.conf"
VOLUMES_DIR = "/etc/tgt/conf.d"
SOCKET = "/var/run/tgtd/socket"
#: An address that no host has. tgt accepts initiators with a bound name or a bound address, and tgt-admin binds ALL if its
#: file has no address.
NO_INITIATOR = "255.255.255.255"
MADE_BY_US = "# Made by bootflow.compute: changes are lost."
#: tgtd pings initiators every 5 seconds, and ends a session after two missed pings. Otherwise a host that lost its power, or a lost
#: portal, would keep the target in use for half an hour (TCP keepalive). LIO does this itself.
NOP = (("nop_interval", "5"), ("nop_count", "2"))
_LOGIN = "# login"  # initiator, user
_NEXUS = re.compile(r"I_T nexus: (\d+)\Z")
_TARGET = re.compile(r"^<target ([^>\s]+)>", re.MULTILINE)
_MODE_PAGE = "mode_page=8:0:18:%s:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0"


def parse_targets(text: str) -> dict[str, dict[str, t.Any]]:
    """Parse ``tgtadm --mode target --op show`` as {iqn: {tid, luns: {number: path}, ids: {number: SCSI ID}, nexuses, accounts, acls}}.

    ``nexuses``: {number: {"initiator": name, "connections": [number]}}.
    """
    targets: dict[str, dict[str, t.Any]] = {}
    current: dict[str, t.Any] = {}
    section = lun = nexus = ""
    for line in text.splitlines():
        words = line.strip()
        depth = len(line) - len(line.lstrip())
        if depth == 0 and words.startswith("Target "):
            number, dummy, iqn = words[len("Target ") :].partition(": ")
            current = {"tid": int(number), "luns": {}, "ids": {}, "nexuses": {}, "accounts": [], "acls": []}
            targets[iqn.strip()] = current
        elif depth == 4 and words.endswith(":"):
            section = words[:-1]
        elif section == "LUN information":
            if words.startswith("LUN: "):
                lun = words[len("LUN: ") :]
                current["luns"][int(lun)] = ""
            elif words.startswith("SCSI ID: "):
                current["ids"][int(lun)] = words[len("SCSI ID: ") :]
            elif words.startswith("Backing store path: "):
                current["luns"][int(lun)] = words[len("Backing store path: ") :]
        elif section == "I_T nexus information":
            match = _NEXUS.match(words)
            if match:
                nexus = match.group(1)
                current["nexuses"][nexus] = {"initiator": "", "connections": []}
            elif words.startswith("Initiator: "):
                current["nexuses"][nexus]["initiator"] = words[len("Initiator: ") :].split(" ")[0]
            elif words.startswith("Connection: "):
                current["nexuses"][nexus]["connections"].append(words[len("Connection: ") :])
        elif section == "Account information" and words:
            current["accounts"].append(words)
        elif section == "ACL information" and words:
            current["acls"].append(words)
    return targets


def parse_accounts(text: str) -> list[str]:
    """Parse ``tgtadm --mode account --op show``: the users."""
    return [line.strip() for line in text.splitlines() if line.startswith(" ") and line.strip()]


def free_tid(used_numbers: t.Collection[int]) -> int:
    """Return the lowest unused number of a target."""
    return next(number for number in range(1, len(used_numbers) + 2) if number not in used_numbers)


def config_text(export: Export) -> str:
    """Return the file that tgt-admin reads when the service starts."""
    identity = uuid.UUID(export.volume_id).hex
    lines = [
        MADE_BY_US,
        "<target %s>" % export.iqn,
        "    driver iscsi",
        "    <backing-store %s>" % export.path,
        "        lun %d" % LUN_OF_TARGET["tgt"],
        "        scsi_id %s" % identity,
        "        scsi_sn %s" % identity,
        "        write-cache %s" % ("on" if export.write_cache else "off"),
        "    </backing-store>",
    ]
    saved = {name: pair for name, pair in export.credentials.items() if name not in export.unsaved}
    lines.extend("    incominguser %s %s" % pair for pair in sorted({pair for pair in saved.values() if pair}))
    lines.extend("    %s %s %s" % (_LOGIN, name, pair[0]) for name, pair in saved.items() if pair)
    lines.extend("    %s %s" % (_acl_option(word), word) for word in (*saved, NO_INITIATOR))
    return "\n".join(lines + ["</target>", ""])


def parse_config(text: str) -> dict[str, t.Any]:
    """Return the values in one of our files that the service does not return: {"secrets": {user: secret}, "logins": {initiator: user},
    "write_cache"}.
    """
    values: dict[str, t.Any] = {"secrets": {}, "logins": {}, "write_cache": None}
    for line in text.splitlines():
        words = line.strip().strip("<>").split(" ")
        if words[0] == "incominguser" and len(words) == 3:
            values["secrets"][words[1]] = words[2]
        elif " ".join(words[:2]) == _LOGIN and len(words) == 4:
            values["logins"][words[2]] = words[3]
        elif words[0] == "write-cache" and len(words) == 2:
            values["write_cache"] = words[1] == "on"
    return values


class SecretCarrier:
    """Runs tgtadm without a secret in its arguments or environment.

    tgtadm accepts a password only as an argument, but TGT_IPC_SOCKET sets the socket of tgtd. It gets a placeholder
    of the same length as the secret, and our socket in a directory that only root can enter; the placeholder is replaced on the
    way to tgtd. Therefore nothing depends on how a version of tgt encodes its requests.
    """

    def __init__(self, server: str = SOCKET, timeout: float = 20.0) -> None:
        self.server = server
        self.timeout = timeout

    def run(self, argv: t.Sequence[str], secret: str, option: str = "--password") -> None:
        """Run ``argv`` with the secret as its last option. :raises CommandFailed: the program failed or did not use the socket."""
        word = secrets.token_hex(len(secret))[: len(secret)]
        with tempfile.TemporaryDirectory(prefix="bootflow-tgt-") as folder:
            path = os.path.join(folder, "s")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(path + ".0")
                listener.listen(1)
                state: dict[str, t.Any] = {"replaced": False, "error": ""}
                relay = threading.Thread(
                    target=self._relay, args=(listener, word.encode(), secret.encode(), state), daemon=True
                )
                relay.start()
                try:
                    done = run(
                        [program("env", "coreutils"), "TGT_IPC_SOCKET=" + path] + list(argv) + [option, word],
                        timeout=self.timeout,
                        check=False,
                    )
                finally:
                    listener.shutdown(socket.SHUT_RDWR)  # wakes the relay if the program did not connect
                relay.join(self.timeout)
        if done.rc != 0:
            raise CommandFailed(cmd="tgtadm", rc=done.rc, stderr=(done.stderr or done.stdout).strip() or state["error"])
        if not state["replaced"]:
            raise CommandFailed(cmd="tgtadm", rc=1, stderr="the installed tgtadm ignores TGT_IPC_SOCKET")

    def _relay(self, listener: socket.socket, word: bytes, secret: bytes, state: dict[str, t.Any]) -> None:
        try:
            client, dummy = listener.accept()
        except OSError:
            return  # the program ended without connecting
        try:
            with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
                server.connect(self.server + ".0")
                held = b""
                while True:
                    ready = select.select([client, server], [], [], self.timeout)[0]
                    if not ready:
                        return
                    for end in ready:
                        data = end.recv(65536)
                        if not data:
                            return
                        if end is server:
                            client.sendall(data)
                        elif state["replaced"]:
                            server.sendall(data)
                        else:
                            held += data
                            if held.count(word) == 1:
                                state["replaced"] = True
                                server.sendall(held.replace(word, secret))
        except OSError as error:
            state["error"] = str(error)


class TgtTarget:
    """tgtd on this host."""

    name = "tgt"
    lun = LUN_OF_TARGET["tgt"]

    def __init__(
        self, volumes_dir: str = VOLUMES_DIR, config: str = CONFIG, carrier: SecretCarrier | None = None
    ) -> None:
        self.volumes_dir = volumes_dir
        self.config = config
        self.carrier = carrier or SecretCarrier()
        self._targets: dict[str, dict[str, t.Any]] = {}

    # ---- what there is -------------------------------------------------------------------------------------------------

    def _shown(self) -> dict[str, dict[str, t.Any]]:
        """Return the running targets as parse_targets() has them, by their normalised names."""
        shown = parse_targets(self._tgtadm("target", "show").stdout)
        return {normal_name(iqn): target for iqn, target in shown.items()}

    def iqns(self) -> set[str]:
        iqns = set(self._shown())
        for path in glob.glob(os.path.join(glob.escape(self.volumes_dir), "volume-*.conf")):
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
                iqns.update(map(normal_name, _TARGET.findall(file.read())))
        return iqns

    def read(self, exports: t.Sequence[Export]) -> dict[str, Found]:
        self._targets = self._shown()
        result = {}
        for export in exports:
            live, saved = self._targets.get(export.iqn), self._saved(export)
            if live is not None or saved is not None:
                target_state = self._state_of(export.iqn, live, saved)
                identity = uuid.UUID(export.volume_id).hex
                marks = [saved is not None and saved[0].startswith(MADE_BY_US)]
                marks.append(live is not None and live["ids"].get(self.lun) == identity)
                result[export.iqn] = dataclasses.replace(target_state, ours=any(marks))
        return result

    def _state_of(self, iqn: str, live: dict[str, t.Any] | None, saved: tuple[str, int] | None) -> Found:
        saved_values = parse_config(saved[0]) if saved else parse_config("")
        if live is None:
            return Found(iqn, {}, saved=saved, details={"kept": saved_values})
        initiators = tuple(sorted(word for word in live["acls"] if word != NO_INITIATOR))
        # tgtd does not return secrets: the file has the ones that were set last.
        pairs = {user: (user, secret) for user, secret in saved_values["secrets"].items() if user in live["accounts"]}
        unknown = (UNKNOWN.user, UNKNOWN.secret) if live["accounts"] else None
        chap = {name: pairs.get(saved_values["logins"].get(name), unknown) for name in initiators}
        return Found(
            iqn,
            {
                "path": live["luns"].get(self.lun, ""),
                "chap": chap,
                "initiators": initiators,
                "accounts": tuple(sorted(live["accounts"])),
                "write_cache": saved_values["write_cache"],
            },
            sessions=tuple(sorted({nexus["initiator"] for nexus in live["nexuses"].values()})),
            saved=saved,
            details={"live": live, "kept": saved_values},
        )

    def _saved(self, export: Export) -> tuple[str, int] | None:
        try:
            with open(self._file(export), encoding="utf-8", errors="replace") as file:
                return file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        except FileNotFoundError:
            return None

    def _file(self, export: Export) -> str:
        return os.path.join(self.volumes_dir, export.name + ".conf")

    def aspects(self, export: Export) -> dict[str, t.Any]:
        return {
            "path": export.path,
            "chap": export.credentials,
            "initiators": export.initiators,
            "accounts": self._accounts_of(export),
            "write_cache": export.write_cache,
        }

    def _accounts_of(self, export: Export) -> tuple[str, ...]:
        """Return the accounts of its logins; all existing ones if the account of a login is unknown."""
        live = self._targets.get(export.iqn, {}).get("accounts", ()) if export.unsaved else ()
        return tuple(sorted({*export.users, *live}))

    def is_saved(self, export: Export, target_state: Found) -> bool:
        return bool(target_state.saved == (config_text(export), 0o600))

    # ---- change --------------------------------------------------------------------------------------------------------

    def apply(self, export: Export, target_state: Found | None) -> None:
        self._check_included(export)
        self._check_accounts(export)
        live = target_state.details.get("live") if target_state else None
        if live is None:
            tid = free_tid({target["tid"] for target in self._targets.values()})
            self._tgtadm("target", "new", "--tid", tid, "--targetname", export.iqn)
            for name, value in NOP:
                self._tgtadm("target", "update", "--tid", tid, "--name", name, "--value", value)
            live = {"tid": tid, "luns": {}, "ids": {}, "nexuses": {}, "accounts": [], "acls": []}
            self._targets[export.iqn] = live
            has: t.Mapping[str, t.Any] = {}
        else:
            tid, has = live["tid"], target_state.aspects if target_state else {}
        # Access is configured before the target can be found.
        self._set_accounts(export, tid, live, has)
        self._set_acls(tid, {*export.initiators, NO_INITIATOR}, live)
        admitted = {normal_name(name) for name in export.initiators}
        self._end_sessions(tid, live, lambda name: normal_name(name) not in admitted)
        self._set_lun(export, tid, live, has)

    def _set_lun(self, export: Export, tid: int, live: dict[str, t.Any], has: t.Mapping[str, t.Any]) -> None:
        lun = ("--tid", tid, "--lun", self.lun)
        if live["luns"].get(self.lun) != export.path:
            if self.lun in live["luns"]:
                self._end_sessions(tid, live, lambda name: True)
                self._tgtadm("logicalunit", "delete", *lun)
            self._tgtadm("logicalunit", "new", *lun, "--backing-store", export.path)
            identity = uuid.UUID(export.volume_id).hex
            self._tgtadm("logicalunit", "update", *lun, "--params", "scsi_id=%s,scsi_sn=%s" % (identity, identity))
            has = {}
        if has.get("write_cache") != export.write_cache:
            page = _MODE_PAGE % ("0x14" if export.write_cache else "0x10")
            self._tgtadm("logicalunit", "update", *lun, "--params", page)

    def _check_accounts(self, export: Export) -> None:
        others = {user for iqn, target in self._targets.items() if iqn != export.iqn for user in target["accounts"]}
        if others & set(export.users):
            raise create_failed(
                export,
                "account %s already belongs to another target" % ", ".join(sorted(others & set(export.users))),
                "Give each volume its own chap_user.",
            )

    def _set_accounts(self, export: Export, tid: int, live: dict[str, t.Any], has: t.Mapping[str, t.Any]) -> None:
        """Unbind the accounts that are not requested, and bind new ones; the others keep their secrets.

        From the first removed one on, all are unbound from the end and bound again, because there must not be a gap. While no
        account is bound, tgtd does not authenticate, so no initiator is accepted then. Existing sessions are not affected.
        """
        bound = list(live["accounts"])
        desired = self._accounts_of(export)
        before = dict(pair for pair in has.get("chap", {}).values() if pair is not None)
        secrets = {login.chap.user: login.chap.secret for login in export.logins if login.chap and login.chap.secret}
        keep = [u for u in bound if u in desired and (u not in secrets or secrets[u] == before.get(u))]
        new = [user for user in desired if user not in keep]
        if keep == bound and not new:
            return
        first = next((place for place, user in enumerate(bound) if user not in keep), len(bound))
        if first == 0 and live["acls"]:
            self._set_acls(tid, {NO_INITIATOR}, live)
        for user in reversed(bound[first:]):
            self._tgtadm("account", "unbind", "--tid", tid, "--user", user)
        for user in bound[first:]:
            if user in keep:
                self._tgtadm("account", "bind", "--tid", tid, "--user", user)
        for user in bound:
            if user not in keep:
                self._delete_account(user)
        # Left by a killed run: its secret is not known.
        stale = parse_accounts(self._tgtadm("account", "show").stdout) if new else []
        for user in new:
            if user in stale:
                self._delete_account(user)
            self.carrier.run(self._argv("account", "new", "--user", user), secrets[user])
            self._tgtadm("account", "bind", "--tid", tid, "--user", user)
        live["accounts"] = keep + new

    def _delete_account(self, user: str) -> None:
        users = [name for target in self._targets.values() for name in target["accounts"]]
        if users.count(user) <= 1:
            self._tgtadm("account", "delete", "--user", user, ignore="can't find the account")

    def _set_acls(self, tid: int, desired: set[str], live: dict[str, t.Any]) -> None:
        has = set(live["acls"])
        for word in sorted(has - desired):
            self._tgtadm("target", "unbind", "--tid", tid, "--" + _acl_option(word), word)
        for word in sorted(desired - has):
            self._tgtadm("target", "bind", "--tid", tid, "--" + _acl_option(word), word)
        live["acls"] = sorted(desired)

    def look_again(self, path: str) -> list[str]:
        """Update the size of the disk at ``path`` in tgtd, which keeps the size at the time of opening.

        Returns the targets with the disk. Reopening fails all requests in progress; so the sessions are ended
        first, and the initiators log in again automatically and repeat unanswered requests (as in Cinder). The three
        settings are one request, during which tgtd does not serve initiators.
        """
        iqns = []
        targets = parse_targets(self._tgtadm("target", "show").stdout)
        for iqn, live in sorted(targets.items()):
            for lun in sorted(number for number, backing in live["luns"].items() if backing == path):
                self._end_sessions(live["tid"], live, lambda name: True)
                again = "online=0,path=%s,online=1" % path
                self._tgtadm("logicalunit", "update", "--tid", live["tid"], "--lun", lun, "--params", again)
                iqns.append(iqn)
        return iqns

    def _end_sessions(self, tid: int, live: dict[str, t.Any], which: t.Callable[[str], bool]) -> None:
        for number, nexus in live["nexuses"].items():
            if which(nexus["initiator"]):
                for connection in nexus["connections"]:
                    self._tgtadm(
                        "connection", "delete", "--tid", tid, "--sid", number, "--cid", connection, ignore="can't find"
                    )

    def remove(self, export: Export, target_state: Found) -> None:
        live = target_state.details.get("live")
        if live is not None:
            tid, users = live["tid"], list(live["accounts"])
            self._set_acls(tid, set(), live)
            self._end_sessions(tid, live, lambda name: True)
            for user in reversed(users):
                self._tgtadm("account", "unbind", "--tid", tid, "--user", user)
            force = ("--force",) if live["nexuses"] else ()
            self._tgtadm("target", "delete", "--tid", tid, *force, ignore="can't find the target")
        else:
            users = list(target_state.details["kept"]["secrets"])
            existing_accounts = parse_accounts(self._tgtadm("account", "show").stdout) if users else []
            users = [user for user in users if user in existing_accounts]
        for user in users:
            self._delete_account(user)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file(export))
            fsync(self.volumes_dir)
        self._targets.pop(export.iqn, None)

    def save(self, exports: t.Sequence[Export]) -> None:
        """Save only what exists, because the next start of the service restores the file."""
        now = self._shown()
        for export in exports:
            if export.state == "present" and export.iqn in now:
                # The service does not include the file by the name that it has while it is written.
                write_file(self._file(export), config_text(export).encode(), 0o600)

    def _check_included(self, export: Export) -> None:
        path = self._file(export)
        remedy = "Create the directory, and add this line to %s: include %s/*.conf" % (self.config, self.volumes_dir)
        if not os.path.isdir(self.volumes_dir):
            raise create_failed(export, "directory %s does not exist" % self.volumes_dir, remedy)
        try:
            with open(self.config, encoding="utf-8", errors="replace") as file:
                words = [line.split() for line in file]
        except OSError as error:
            raise create_failed(export, "%s: %s" % (self.config, error.strerror), remedy) from None
        patterns = [line[1] for line in words if len(line) == 2 and line[0] == "include"]
        if not any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
            raise create_failed(export, "%s does not include %s" % (self.config, path), remedy)

    # ---- tgtadm --------------------------------------------------------------------------------------------------------

    def _argv(self, mode: str, operation: str, *options: t.Any) -> list[str]:
        argv = [program("tgtadm", "tgt"), "--lld", "iscsi", "--mode", mode, "--op", operation]
        return argv + [str(option) for option in options]

    def _tgtadm(self, mode: str, operation: str, *options: t.Any, ignore: str = "") -> t.Any:
        done = run(self._argv(mode, operation, *options), timeout=60, check=False)
        if done.rc and not (ignore and ignore in done.stderr):
            reason = (done.stderr or done.stdout).strip()
            raise CommandFailed(
                cmd="tgtadm --mode %s --op %s" % (mode, operation),
                rc=done.rc,
                stderr=reason,
                remedy="Start the service tgt." if "not connected" in reason or done.rc == 107 else None,
            )
        return done


def grown(path: str, server: str = SOCKET) -> list[str]:
    """Call TgtTarget.look_again() if tgtd is running: the targets with the disk, if any."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(server + ".0")
        except OSError:
            return []
    return TgtTarget().look_again(path)


def _acl_option(word: str) -> str:
    return "initiator-name" if normal_name(word[:4]) in ("iqn.", "eui.", "naa.") else "initiator-address"
