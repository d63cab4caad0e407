# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's iSCSI initiator: log in and wait for the disk; remove the disk completely before the last logout.

source: 19 (CVE-2023-2088); os-brick's iSCSI connector (Queens); open-iscsi's README
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ...core.errors import (
    BootflowError,
    CommandFailed,
    FailedISCSITargetPortalLogin,
    InvalidInput,
    RemoteError,
    VolumeDeviceNotFound,
    VolumePathNotRemoved,
    WaitTimeout,
)
from ...core.volumes.names import ChapCredentials, by_path_names, chap_of, check_iqn, normal_name, portal, split_portal
from ..os.batch import progress, run_batch
from ..os.command import TIMED_OUT, Completed, program, run
from ..os.locks import LOCK_ROOT, host_lock
from ..os.paths import checked_uuid
from .devices import Devices
from .multipath import Multipath
from .records import NodeRecords, make_lock_folder

CONNECTED, DISCONNECTED, RESCANNED = "connected", "disconnected", "rescanned"
STATES = (CONNECTED, DISCONNECTED, RESCANNED)

# iscsiadm(8): exit codes
_DATABASE_FAILED, _EXISTS, _NO_RECORDS, _AUTH_FAILED, _IN_USE = 6, 15, 21, 24, 255
# What iscsiadm is repeated for when its records change meanwhile: times, and seconds.
_REPEATED, _REPEATED_FOR = 20, 20.0
# How often, and with how many seconds in between, a session is looked at that comes back: the kernel needs one or two as a rule.
_LOOKS, _BETWEEN_LOOKS = 75, 0.2
_NO_LOGIN = "Unable to login to iSCSI Target Portal: "
_REJECTED = "the target rejected the login (CHAP credentials, or no ACL for this initiator)"
_SESSION = re.compile(r"\w+: \[(\d+)\] (\S+?),(-?\d+) (\S+)")


@dataclass(frozen=True)
class Session:
    """A line of ``iscsiadm -m session``: ``tcp: [1] 192.0.2.1:3260,1 iqn...``."""

    number: int
    portal: str
    group: str
    iqn: str

    def as_dict(self) -> dict[str, t.Any]:
        return {"number": self.number, "portal": self.portal, "group": self.group}


def parse_sessions(text: str) -> list[Session]:
    """Return the sessions in the output of ``iscsiadm -m session``; other lines are ignored."""
    matches = [_SESSION.match(line.strip()) for line in text.splitlines()]
    return [Session(int(match.group(1)), *match.group(2, 3, 4)) for match in matches if match]


@dataclass(frozen=True)
class Connection:
    """A volume as a target offers it. Several ``portals`` mean several sessions to one disk.

    ``shared``: another guest of this host already has the disk, with credentials that are no longer known: the records of
    its login are kept.
    """

    volume_id: str
    iqn: str
    lun: int
    portals: tuple[str, ...]
    chap: ChapCredentials | None = None
    state: str = CONNECTED
    shared: bool = False


def connection_of(args: t.Mapping[str, t.Any]) -> Connection:
    """Return the desired connection in an element of the option ``connections``.

    :raises InvalidInput: a name, portal, LUN or credential is not valid.
    """
    volume_id = checked_uuid(args.get("volume_id") or "")
    state = args.get("state") or CONNECTED
    lun = args.get("lun")
    if state not in STATES:
        raise InvalidInput(reason="state must be one of %s, got %r" % (", ".join(STATES), state))
    if isinstance(lun, bool) or not isinstance(lun, int) or not 0 <= lun <= 16383:
        raise InvalidInput(reason="LUN of volume %s is not valid: %r" % (volume_id, lun))
    portals = [portal(*split_portal(address)) for address in args.get("portals") or ()]
    if not portals or len(set(portals)) < len(portals):
        raise InvalidInput(reason="portals of volume %s must be one or more, each listed once" % volume_id)
    return Connection(
        volume_id=volume_id,
        iqn=check_iqn(args.get("iqn")),
        lun=lun,
        portals=tuple(portals),
        chap=chap_of(args.get("chap_user"), args.get("chap_secret"), volume_id),
        state=state,
        shared=bool(args.get("shared")),
    )


def login_problem(text: str) -> str:
    """Return the line with the reason in the output of iscsiadm for a failed login."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("iscsiadm: ")]
    reasons = [line for line in lines if "reported error" in line] + lines
    return reasons[0][len("iscsiadm: ") :].rstrip(".") if reasons else ""


class Initiator:
    """iscsiadm and the devices of this host. The arguments are for tests.

    :arg wait_tries: how often to look for a path, after 1, 4, 9... seconds as in os-brick (num_volume_device_scan_tries).
    """

    def __init__(
        self,
        devices: Devices | None = None,
        records: NodeRecords | None = None,
        wait_tries: int = 5,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self.devices = devices or Devices()
        self.multipath = Multipath(self.devices, sleep)
        self.records = records or NodeRecords()
        self.wait_tries = wait_tries
        self.sleep = sleep

    # ---- looking -------------------------------------------------------------------------------------------------------

    def sessions(self, iqn: str) -> list[Session]:
        """Return the sessions with a target."""
        return [session for session in self.every_session() if normal_name(session.iqn) == normal_name(iqn)]

    def every_session(self) -> list[Session]:
        """Return all sessions of this host."""
        return parse_sessions(self._iscsiadm("-m", "session", ok=(0, _NO_RECORDS)).stdout)

    def result(self, desired: Connection, sessions: t.Sequence[Session]) -> dict[str, t.Any]:
        """Return path, device, devices, multipath, serial, size and sessions of a connected volume."""
        devices = self._disks(desired, sessions)
        over = self.devices.map_of(devices)
        multipath = self.devices.map_path(over) if over else ""
        path = multipath or self._path(desired, sessions)
        return {
            "path": path,
            "device": os.path.realpath(path) if path else "",
            "devices": ["/dev/" + name for name in devices],
            "multipath": multipath,
            "serial": self.devices.serial(devices[0]) if devices else "",
            "size": self.devices.size(over or devices[0]) if devices else 0,
            "sessions": [s.as_dict() for s in sessions],
        }

    def _disks(self, desired: Connection, sessions: t.Sequence[Session]) -> list[str]:
        return [name for s in sessions for name in self.devices.disks_of_session(s.number, desired.lun)]

    def _path(self, desired: Connection, sessions: t.Sequence[Session]) -> str:
        session_nodes = [(s.portal, s.iqn) for s in sessions if s.portal in desired.portals]
        for where, iqn in session_nodes or [(portal_address, desired.iqn) for portal_address in desired.portals]:
            for pattern in by_path_names(where, iqn, desired.lun):
                for path in sorted(glob.glob(pattern)) if "*" in pattern else [pattern]:
                    # A link that udev has not removed yet is dangling.
                    if os.path.exists(path):
                        return path
        return ""

    # ---- connect -------------------------------------------------------------------------------------------------------

    def connect(self, desired: Connection, check_mode: bool = False) -> dict[str, t.Any]:
        """Log in at every portal, and wait for the disk, or with several portals for the multipath map of the disks.

        Without multipathd only one portal is used, as in os-brick without enforce_multipath, because two independent
        disks of one volume are useless.

        :raises FailedISCSITargetPortalLogin: the login failed at every portal.
        :raises VolumeDeviceNotFound: the disk did not appear.
        :raises WaitTimeout: the disk did not appear because the target does not respond.
        """
        before = self.sessions(desired.iqn)
        if len(desired.portals) == 1:
            return self._connect(desired, desired.portals, before, check_mode)
        if not self.devices.map_of(self._disks(desired, before)) and not self.multipath.runs():
            return self._connect_at_one(desired, before, check_mode)
        result = self._connect(desired, desired.portals, before, check_mode)
        if not check_mode:
            self._make_map(desired, result)
        return result

    def _make_map(self, desired: Connection, result: dict[str, t.Any]) -> None:
        """Create the multipath map over the disks of all sessions, and add it to the result."""
        sessions = self.sessions(desired.iqn)
        names = self._disks(desired, sessions)
        existing_map = self.devices.map_of(names)
        made = self.multipath.make(names)
        result.update(self.result(desired, sessions))
        if made and not existing_map:
            result.update(changed=True, changes=sorted({*result["changes"], "map"}))
        if not made:
            result["warnings"].append(
                "multipathd did not create a map of %s; only %s is used" % (" ".join(names), result["path"])
            )

    def _connect_at_one(self, desired: Connection, before: t.Sequence[Session], check_mode: bool) -> dict[str, t.Any]:
        """Connect at the portal with an existing session, or else at the first that leads to the disk."""
        with_session = [where for where in desired.portals if any(session.portal == where for session in before)]
        failed: list[str] = []
        problem: BootflowError | None = None
        for where in with_session + [
            other_portal for other_portal in desired.portals if other_portal not in with_session
        ]:
            try:
                result = self._connect(desired, [where], before, check_mode)
            except (FailedISCSITargetPortalLogin, VolumeDeviceNotFound, WaitTimeout) as error:
                refused = isinstance(error, FailedISCSITargetPortalLogin)
                failed.append(error.message[len(_NO_LOGIN) :] if refused else "%s: %s" % (where, error.message))
                problem = error
                # At a portal that does not respond, a logout would block in the kernel as well.
                if not isinstance(error, WaitTimeout):
                    self._leave(desired, where)
                continue
            text = "multipathd is not running on this host; only portal %s of %d is used"
            result["warnings"].append(text % (where, len(desired.portals)))
            result["failed_portals"] = failed
            return result
        if isinstance(problem, (VolumeDeviceNotFound, WaitTimeout)):
            raise problem
        raise _no_login(failed)

    def _leave(self, desired: Connection, where: str) -> None:
        """Log out of a portal that does not lead to the disk, if nothing else needs it."""
        portal_sessions = [session for session in self.sessions(desired.iqn) if session.portal == where]
        if not desired.shared and not any(self.devices.disks_of_session(session.number) for session in portal_sessions):
            for session in portal_sessions:
                self._node(session.iqn, session.portal, "--logout", ok=(0, _NO_RECORDS), timeout=150)
            self._delete_record(desired.iqn, where)

    def _connect(
        self, desired: Connection, portals: t.Sequence[str], before: t.Sequence[Session], check_mode: bool
    ) -> dict[str, t.Any]:
        """Connect at these portals. :arg before: the existing sessions with the target."""
        missing = [where for where in portals if not any(session.portal == where for session in before)]
        right = all(self._record_is_right(desired, where) for where in portals)
        changes = ([] if right else ["record"]) + (["session"] if missing else [])
        report: dict[str, t.Any] = {"changed": bool(changes), "changes": changes, "failed_portals": [], "warnings": []}
        if check_mode:
            return dict(self.result(desired, before), **report)
        for where in portals:
            self._make_record(desired, where)
        failures = self._log_in(desired, missing)
        sessions = [session for session in self.sessions(desired.iqn) if session.portal in portals]
        if not sessions:
            # A record with automatic startup would retry at every start of the host.
            for where in () if desired.shared else portals:
                self._delete_record(desired.iqn, where)
            raise _no_login(failures)
        silent = self._wait(desired, sessions)
        if silent is None:
            raise VolumeDeviceNotFound(
                device=by_path_names(portals[0], desired.iqn, desired.lun)[0],
                remedy="The target does not offer LUN %d to this initiator, or udev is not running; check both."
                % desired.lun,
            )
        report["failed_portals"] = failures
        report["warnings"] = ["login failed at portal %s" % failure for failure in failures]
        report["warnings"] += ["portal %s does not respond to commands" % where for where in silent]
        return dict(self.result(desired, sessions), **report)

    def _log_in(self, desired: Connection, portals: t.Sequence[str]) -> list[str]:
        """Log in at all of these in parallel, because one that is down takes minutes. Returns the failures."""
        if not portals:
            return []
        progress.mark_changed()
        with ThreadPoolExecutor(len(portals)) as pool:
            problems = list(pool.map(lambda where: self._login(desired, where), portals))
        return ["%s: %s" % (where, problem) for where, problem in zip(portals, problems) if problem]

    def _record_is_right(self, desired: Connection, where: str) -> bool:
        return desired.shared or self.records.are_right(desired.iqn, where, desired.chap)

    def _make_record(self, desired: Connection, where: str) -> None:
        if desired.shared:
            return
        records = self.records
        if not records.are_whole(desired.iqn, where):
            progress.mark_changed()
            self._delete_record(desired.iqn, where)
        if not records.files(desired.iqn, where):
            progress.mark_changed()
            self._node(desired.iqn, where, "-o", "new", ok=(0, _EXISTS))
        if not records.files(desired.iqn, where):
            raise CommandFailed(
                cmd="iscsiadm",
                rc=0,
                stderr="iscsiadm did not create a record of %s below %s" % (desired.iqn, " or ".join(records.folders)),
            )
        if not records.are_right(desired.iqn, where, desired.chap):
            progress.mark_changed()
            records.write(desired.iqn, where, desired.chap)

    def _login(self, desired: Connection, where: str) -> str:
        """Log in; returns "" on success, otherwise the reason."""
        done = self._node(desired.iqn, where, "--login", ok=None, timeout=150)
        if done.rc in (0, _EXISTS):
            return ""
        if done.rc == _AUTH_FAILED:
            return _REJECTED
        if done.rc == TIMED_OUT:
            return "iscsiadm was " + done.stderr
        return login_problem(done.stderr + done.stdout) or "iscsiadm failed with exit code %d" % done.rc

    def _wait(self, desired: Connection, sessions: t.Sequence[Session]) -> list[str] | None:
        """Wait for the disk of every connected session; after two attempts, for one of them.

        :returns: the portals that do not respond; None: the disk did not appear.
        :raises WaitTimeout: the disk did not appear, and not all portals respond.
        """
        silent: dict[int, WaitTimeout] = {}
        for attempt in range(self.wait_tries + 1):
            self.devices.wait_for_udev()
            answering = [session for session in sessions if session.number not in silent]
            connected = [s for s in answering if self.devices.is_logged_in(s.number)]
            late = [s for s in connected if not self.devices.disks_of_session(s.number, desired.lun)]
            if self._disks(desired, sessions) and self._path(desired, sessions) and not (late and attempt < 2):
                return [session.portal for session in sessions if session.number in silent]
            if not answering or attempt == self.wait_tries:
                break
            for session in late or answering:
                try:
                    self.devices.scan(session.number, desired.lun)
                except WaitTimeout as problem:
                    silent[session.number] = problem
            # The first attempt is often too early; then wait 1, 4, 9... seconds.
            self.sleep(0.3 if attempt == 0 else attempt**2)
        if silent:
            raise next(iter(silent.values()))
        return None

    # ---- disconnect ----------------------------------------------------------------------------------------------------

    def disconnect(self, desired: Connection, check_mode: bool = False) -> dict[str, t.Any]:
        """Flush the disk, remove it from the kernel, and log out if the target has no other disk here.

        :raises VolumePathNotRemoved: the disk is mounted, held or open, and nothing was done; or it could not be removed.
        """
        sessions = self.sessions(desired.iqn)
        disks = self._disks(desired, sessions)
        others = {name for s in sessions for name in self.devices.disks_of_session(s.number)} - set(disks)
        portals = self.records.portals(desired.iqn, desired.portals)
        records = [where for where in portals if self.records.paths(desired.iqn, where)]
        changes = (["disk"] if disks else []) + (["session"] if sessions and not others else [])
        if records and not others:
            changes.append("record")
        if disks and not check_mode:
            self.devices.release(disks)
        users = self.devices.users(disks, held=not check_mode)
        if users:
            # Wait for what udev runs after the guest closed its disk.
            self.devices.wait_for_udev()
            users = self.devices.users(disks, held=not check_mode)
        if users:
            raise VolumePathNotRemoved(
                message="%s of volume %s is in use: %s"
                % (" ".join("/dev/" + d for d in disks), desired.volume_id, "; ".join(users)),
                remedy="Detach the disk from its guest, unmount it, or close what has it open.",
            )
        if not check_mode:
            if disks:
                progress.mark_changed()
                self._remove(disks)
            if not others:
                self._logout(desired, sessions, records)
        return {
            "changed": bool(changes),
            "changes": changes,
            "path": "",
            "device": "",
            "devices": [],
            "multipath": "",
            "sessions": [s.as_dict() for s in sessions] if others else [],
        }

    def _remove(self, disks: t.Sequence[str]) -> None:
        """Remove the map first, because all data was written through it; a path that is down cannot be flushed."""
        over = self.devices.map_of(disks)
        if over:
            self.multipath.remove(over)
        else:
            self.devices.flush(disks)
        self.devices.delete(disks)
        self.multipath.forget(disks)

    def _logout(self, desired: Connection, sessions: t.Sequence[Session], records: t.Sequence[str]) -> None:
        for session in sessions:
            progress.mark_changed()
            self._node(session.iqn, session.portal, "--logout", ok=(0, _NO_RECORDS), timeout=150)
        remaining = self.sessions(desired.iqn)
        if remaining:
            raise VolumePathNotRemoved(
                message="the session with %s at %s did not end" % (desired.iqn, ", ".join(s.portal for s in remaining))
            )
        for where in records:
            progress.mark_changed()
            self._delete_record(desired.iqn, where)

    def _delete_record(self, iqn: str, where: str) -> None:
        if self.records.files(iqn, where):
            self._node(iqn, where, "-o", "delete", ok=(0, _NO_RECORDS))
        self.records.clear(iqn, where)  # iscsiadm ignores an empty file, as left by a power failure

    # ---- extend --------------------------------------------------------------------------------------------------------

    def rescan(self, desired: Connection, check_mode: bool = False) -> dict[str, t.Any]:
        """Make the kernel read the size of the disk again after the volume grew, and resize the multipath map.

        :raises VolumeDeviceNotFound: the volume is not connected.
        :raises RemoteError: a path is down; it would come back with the old size.
        """
        sessions = self.sessions(desired.iqn)
        disks = self._disks(desired, sessions)
        if not disks:
            raise VolumeDeviceNotFound(device=by_path_names(desired.portals[0], desired.iqn, desired.lun)[0])
        before = self.result(desired, sessions)["size"]
        if not check_mode:
            down = self._down(sessions)
            if not down:
                for name in disks:
                    self.devices.rescan(name)
                sizes = {name: self.devices.size(name) for name in disks}
                down = [name for name in disks if sizes[name] != max(sizes.values())]
            if down:
                raise RemoteError(
                    reason="All paths need to be up to extend the device of volume %s: %s"
                    % (desired.volume_id, ", ".join(down)),
                    remedy="Rerun the playbook when all portals are reachable.",
                )
            over = self.devices.map_of(disks)
            if over:
                self.multipath.resize(over, self.devices.size(disks[0]))
        result = self.result(desired, sessions)
        changed = result["size"] != before
        result.update(changed=changed, changes=["size"] if changed else [])
        return result

    def _down(self, sessions: t.Sequence[Session]) -> list[str]:
        """Return the portals of sessions that do not come back in time. A target (tgt) ends them to have an initiator read the size again."""
        for _look in range(_LOOKS):
            down = [session.portal for session in sessions if not self.devices.is_logged_in(session.number)]
            if not down:
                return []
            self.sleep(_BETWEEN_LOOKS)
        return down

    # ---- iscsiadm ------------------------------------------------------------------------------------------------------

    def _node(
        self, iqn: str, where: str, *words: str, ok: t.Collection[int] | None = (0,), timeout: float = 60
    ) -> Completed:
        """Run iscsiadm for a node, again where another process removes a record meanwhile: iscsiadm reads the records of all targets, and fails then
        even if it has done its own work. Work that is done already has a separate exit code.
        """
        argv = ("-m", "node", "-T", iqn, "-p", where, *words)
        deadline = time.monotonic() + _REPEATED_FOR
        done = self._iscsiadm(*argv, ok=None, timeout=timeout)
        for _attempt in range(_REPEATED):
            if done.rc != _DATABASE_FAILED or time.monotonic() > deadline:
                break
            self.sleep(0.2)
            done = self._iscsiadm(*argv, ok=None, timeout=timeout)
        return _checked(done, ok)

    def _iscsiadm(self, *words: str, ok: t.Collection[int] | None = (0,), timeout: float = 60) -> Completed:
        """Run iscsiadm. :arg ok: the exit codes of success; None: all."""
        argv = [program("iscsiadm", "open-iscsi"), *words]
        make_lock_folder(self.records.lock)
        return _checked(run(argv, timeout=timeout, check=False), ok)


def _checked(done: Completed, ok: t.Collection[int] | None) -> Completed:
    """Return the result of iscsiadm. :raises CommandFailed: the exit code is another one."""
    if ok is not None and done.rc not in ok:
        raise CommandFailed(cmd="iscsiadm", rc=done.rc, stderr=(done.stderr.strip() or done.stdout.strip())[-2000:])
    return done


def _no_login(failures: t.Sequence[str]) -> FailedISCSITargetPortalLogin:
    error = FailedISCSITargetPortalLogin(
        message=_NO_LOGIN + "; ".join(failures),
        remedy="Check the portal, the network, the target's service and the CHAP credentials.",
    )
    error.retryable = not failures or not all(failure.endswith(_REJECTED) for failure in failures)
    return error


def make_connections(
    requests: t.Sequence[t.Mapping[str, t.Any]],
    initiator: Initiator | None = None,
    workers: int = 4,
    check_mode: bool = False,
) -> dict[str, t.Any]:
    """Connect, disconnect and rescan volumes.

    :returns: ``outcomes`` by volume id, and ``before`` and ``after`` for a diff, without secrets.
    :raises InvalidInput: a volume is given twice.
    """
    worker = initiator or Initiator()
    before: dict[str, t.Any] = {}
    after: dict[str, t.Any] = {}

    def one(args: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        desired = connection_of(args)
        # Disks of one target share their sessions.
        with host_lock(LOCK_ROOT, "iscsi-" + hashlib.sha256(normal_name(desired.iqn).encode()).hexdigest()[:32]):
            before[desired.volume_id] = after[desired.volume_id] = shown(worker, desired)
            actions = {CONNECTED: worker.connect, DISCONNECTED: worker.disconnect, RESCANNED: worker.rescan}
            result = actions[desired.state](desired, check_mode)
            after[desired.volume_id] = (
                shown(worker, desired) if not check_mode else expected_after(before[desired.volume_id], desired, result)
            )
        return dict(result, iqn=desired.iqn, lun=desired.lun)

    outcomes = run_batch([(str(args.get("volume_id")), args) for args in requests], one, workers)
    return {"outcomes": outcomes, "before": before, "after": after}


def shown(initiator: Initiator, desired: Connection) -> dict[str, t.Any]:
    """Return the connection of a volume for a diff, without secrets."""
    sessions = initiator.sessions(desired.iqn)
    result = initiator.result(desired, sessions)
    session_portals = {session.portal for session in sessions}
    portals = [where for where in desired.portals if where in session_portals] or desired.portals
    records = all(initiator._record_is_right(desired, where) for where in portals)
    return {
        "connected": bool(result["devices"]),
        "portals": sorted(session_portals),
        "record": "as requested" if records else "other or none",
        "size": result["size"],
    }


def expected_after(
    before: t.Mapping[str, t.Any], desired: Connection, result: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """Return the expected result of shown() afterwards, for check mode."""
    if not result["changed"]:
        return dict(before)
    if desired.state == CONNECTED:
        portals = sorted(set(before["portals"]) | set(desired.portals))
        return dict(before, connected=True, portals=portals, record="as requested")
    remaining_portals = [session["portal"] for session in result["sessions"]]
    return dict(
        before,
        connected=False,
        portals=remaining_portals,
        record=before["record"] if remaining_portals else "other or none",
        size=0,
    )
