# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes exported by iSCSI: one target each, accessible only to the listed initiators.

The desired export (``Export``), the existing one (``Found``), their differences, and the batch over both. The
implementations of ``Target`` for LIO and tgt are in ``target_lio`` and ``target_tgt``.

source: Cinder's iSCSI targets (Queens)
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import typing as t
from dataclasses import dataclass, field, replace

from ...core.errors import (
    BootflowError,
    CommandFailed,
    InvalidInput,
    ISCSITargetCreateFailed,
    ISCSITargetNotFoundForVolume,
    ISCSITargetRemoveFailed,
)
from ...core.volumes.names import (
    IQN_PREFIX,
    LUN_OF_TARGET,
    ChapCredentials,
    chap_of,
    check_initiator,
    normal_name,
    portal,
    split_portal,
    target_iqn,
    volume_name,
)
from ..os.batch import progress, run_batch
from ..os.locks import LOCK_ROOT, host_lock
from ..os.module_errors import failure
from ..os.paths import checked_uuid

PRESENT, ABSENT = "present", "absent"
STATES = (PRESENT, ABSENT)
TARGETS = tuple(sorted(LUN_OF_TARGET))

_PATH = re.compile(r"/[A-Za-z0-9._+/:@-]+\Z")


#: Credentials of an initiator with access whose secret only the running target knows.
UNKNOWN = ChapCredentials("", "")


@dataclass(frozen=True)
class Login:
    """An initiator that may log in. ``chap``: its credentials; None: its name is sufficient."""

    initiator: str
    chap: ChapCredentials | None = None

    @property
    def secret(self) -> tuple[str, str] | None:
        """Return (user, secret) as in the aspects, or None."""
        return (self.chap.user, self.chap.secret) if self.chap is not None else None


@dataclass(frozen=True)
class Export:
    """The desired target of one volume. With empty ``logins`` the target exists without access.

    ``keep``: initiators of other runs, whose credentials are not known here: they keep their access; those without
    access do not get it. resolved() turns them into logins.
    """

    volume_id: str
    iqn: str
    path: str = ""
    logins: tuple[Login, ...] = ()
    keep: tuple[str, ...] = ()
    portals: tuple[str, ...] = ()
    write_cache: bool = True
    state: str = PRESENT
    force: bool = False

    @property
    def name(self) -> str:
        return volume_name(self.volume_id)

    @property
    def initiators(self) -> tuple[str, ...]:
        return tuple(login.initiator for login in self.logins)

    @property
    def credentials(self) -> dict[str, tuple[str, str] | None]:
        """Return initiator -> (user, secret) or None."""
        return {login.initiator: login.secret for login in self.logins}

    @property
    def users(self) -> tuple[str, ...]:
        """Return the names of the accounts whose secret is known."""
        return tuple(sorted({login.chap.user for login in self.logins if login.chap and login.chap.secret}))

    @property
    def unsaved(self) -> tuple[str, ...]:
        """Return the initiators that cannot log in after a restart of the service, because their credentials are not saved."""
        return tuple(login.initiator for login in self.logins if login.chap is not None and not login.chap.secret)


@dataclass(frozen=True)
class Found:
    """An existing target. ``aspects``: its properties, compared with ``Target.aspects()``.

    Its ``chap`` is {initiator: (user, secret), or None without}; the secret is "" if only the running target knows it.
    """

    iqn: str
    aspects: t.Mapping[str, t.Any]
    sessions: tuple[str, ...] = ()  # initiators that are logged in
    group: str = "1"
    saved: t.Any = None  # what a restart of the service would restore
    ours: bool = False  # created by this collection; others with such a name are foreign
    details: t.Mapping[str, t.Any] = field(default_factory=dict)


class Target(t.Protocol):
    """One implementation of targets on this host."""

    name: str
    lun: int

    def iqns(self) -> set[str]:
        """Return the names of all targets, also foreign targets and targets that exist only in a saved configuration."""

    def read(self, exports: t.Sequence[Export]) -> dict[str, Found]:
        """Read the existing targets of these exports, by iqn; also targets that exist only in a saved configuration."""

    def aspects(self, export: Export) -> dict[str, t.Any]:
        """Return the aspects of a resolved() export. Secrets are only in ``chap``."""

    def is_saved(self, export: Export, target_state: Found) -> bool:
        """Return whether a restart of the service would restore the export unchanged."""

    def apply(self, export: Export, target_state: Found | None) -> None:
        """Create or change the target."""

    def remove(self, export: Export, target_state: Found) -> None:
        """Remove the target, its backstore and its saved configuration."""

    def save(self, exports: t.Sequence[Export]) -> None:
        """Persist all changes. Called once at the end."""


def export_of(args: t.Mapping[str, t.Any], prefix: str = IQN_PREFIX, portals: t.Sequence[str] = ()) -> Export:
    """Return the desired export in an element of the option ``exports``.

    :raises InvalidInput: a name, path, portal or credential is not valid, or not possible in the configuration of a target.
    """
    volume_id = checked_uuid(args.get("volume_id") or "")
    state = args.get("state") or PRESENT
    if state not in STATES:
        raise InvalidInput(reason="state must be one of %s, got %r" % (", ".join(STATES), state))
    path = args.get("path") or ""
    if state == PRESENT and (not _PATH.match(path) or ".." in path.split("/")):
        raise InvalidInput(
            reason="path of volume %s must be an absolute path that a target can export, got %s"
            % (volume_id, ascii(path))
        )
    logins = _logins(args, volume_id)
    return Export(
        volume_id=volume_id,
        iqn=target_iqn(volume_name(volume_id), prefix),
        path=path,
        logins=tuple(sorted(logins, key=lambda login: login.initiator)),
        keep=_others(args.get("keep") or (), logins),
        portals=tuple(portal(*split_portal(address)) for address in portals),
        write_cache=args.get("write_cache") is not False,
        state=state,
        force=bool(args.get("force")),
    )


def _others(names: t.Iterable[str], logins: t.Iterable[Login]) -> tuple[str, ...]:
    """Return these initiators without the initiators of the logins."""
    new = {normal_name(login.initiator) for login in logins}
    return tuple(sorted({check_initiator(n) for n in names if normal_name(n) not in new}))


def _logins(args: t.Mapping[str, t.Any], volume_id: str) -> list[Login]:
    """Return the logins of the options ``initiators``, with common credentials, and ``logins``, with individual ones."""
    common = chap_of(args.get("chap_user"), args.get("chap_secret"), volume_id)
    logins = [Login(name, common) for name in sorted({check_initiator(n) for n in args.get("initiators") or ()})]
    for login_args in args.get("logins") or ():
        chap = chap_of(login_args.get("chap_user"), login_args.get("chap_secret"), volume_id)
        logins.append(Login(check_initiator(login_args.get("initiator")), chap))
    names = [normal_name(login.initiator) for login in logins]
    twice = sorted({name for name in names if names.count(name) > 1})
    secrets: dict[str, str] = {}
    for login in logins:
        # Each account of a target has one secret.
        if login.chap is not None and secrets.setdefault(login.chap.user, login.chap.secret) != login.chap.secret:
            twice.append(login.chap.user)
    if twice:
        raise InvalidInput(
            reason="volume %s lists initiators or CHAP users twice: %s" % (volume_id, ", ".join(twice)),
            remedy="List each initiator once, with its own chap_user.",
        )
    return logins


def resolved(export: Export, target_state: Found | None) -> Export:
    """Return the export with logins for the kept initiators, taken from the existing target with their credentials."""
    has = target_state.aspects.get("chap", {}) if target_state is not None else {}
    initiators = target_state.aspects.get("initiators", ()) if target_state is not None else ()
    kept_names = {normal_name(name) for name in export.keep}
    kept_logins = [
        Login(name, ChapCredentials(*has[name]) if has.get(name) else None)
        for name in initiators
        if normal_name(name) in kept_names
    ]
    logins = sorted([*export.logins, *kept_logins], key=lambda login: login.initiator)
    return replace(export, logins=tuple(logins))


def check_path(export: Export) -> int:
    """Return the size of the file to export, 0 for a block device.

    :raises ISCSITargetCreateFailed: the path does not exist, or is neither a block device nor a regular file.
    """
    try:
        status = os.stat(export.path)
    except OSError as error:
        raise create_failed(
            export, "%s: %s" % (export.path, error.strerror), "Activate or create the volume first."
        ) from None
    if stat.S_ISBLK(status.st_mode):
        return 0
    if stat.S_ISREG(status.st_mode) and status.st_size:
        return status.st_size
    raise create_failed(export, "%s is neither a block device nor a non-empty file" % export.path)


def create_failed(export: Export, reason: str, remedy: str | None = None) -> ISCSITargetCreateFailed:
    """Return Cinder's error with the reason."""
    return ISCSITargetCreateFailed(
        message="Failed to create iscsi target for volume %s: %s" % (export.volume_id, reason), remedy=remedy
    )


def remove_failed(export: Export, reason: str, remedy: str | None = None) -> ISCSITargetRemoveFailed:
    """Return Cinder's error with the reason."""
    return ISCSITargetRemoveFailed(
        message="Failed to remove iscsi target for volume %s: %s" % (export.volume_id, reason), remedy=remedy
    )


def shown(aspects: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the aspects for a diff: of the credentials only whether they exist."""
    plain = {key: value for key, value in aspects.items() if key != "accounts"}
    return {key: (any(value.values()) if key == "chap" else value) for key, value in sorted(plain.items())}


def differences(desired: t.Mapping[str, t.Any], actual_aspects: t.Mapping[str, t.Any]) -> list[str]:
    """Return the sorted names of differing aspects; for an added or removed initiator only that, not its credentials."""
    changed = sorted(key for key, value in desired.items() if actual_aspects.get(key) != value)
    if "chap" in changed and "chap" in actual_aspects:
        both = set(desired["chap"]) & set(actual_aspects["chap"])
        if all(desired["chap"][name] == actual_aspects["chap"][name] for name in both) and "initiators" in changed:
            changed.remove("chap")
    if "accounts" in changed:  # consequences of other changes, or credentials of no initiator
        changed.remove("accounts")
        if "chap" not in changed and "initiators" not in changed:
            changed.append("chap")
    return sorted(changed)


def location(target: Target, export: Export, target_state: Found | None) -> str:
    """Return Cinder's provider_location: ``portal,group iqn lun``; "" without a known portal."""
    if not export.portals or export.state == ABSENT:
        return ""
    group = target_state.group if target_state else "1"  # the target portal group; with tgt the number of the target
    return "%s,%s %s %d" % (";".join(export.portals), group, export.iqn, target.lun)


def make_exports(
    target: Target,
    requests: t.Sequence[t.Mapping[str, t.Any]],
    prefix: str = IQN_PREFIX,
    portals: t.Sequence[str] = (),
    check_mode: bool = False,
) -> dict[str, t.Any]:
    """Export volumes and remove exports.

    :returns: ``outcomes`` by volume id, and ``before`` and ``after`` for a diff, without secrets.
    :raises InvalidInput: a portal is not valid, or a volume is given twice.
    """
    for address in portals:
        split_portal(address)
    exports: dict[str, Export] = {}

    def checked(args: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        exports[str(args["volume_id"])] = export_of(args, prefix, portals)
        return {}

    pairs = [(str(args.get("volume_id")), args) for args in requests]
    outcomes = run_batch(pairs, checked, workers=1)
    if not exports:
        return {"outcomes": outcomes, "before": {}, "after": {}}
    # One run at a time, because target numbers are allocated, and LIO saves its whole configuration.
    with host_lock(LOCK_ROOT, "iscsi-target-" + target.name):
        target_states = target.read(list(exports.values()))
        exports = {key: resolved(export, target_states.get(export.iqn)) for key, export in exports.items()}
        work = _Work(target, target_states, check_mode)
        outcomes.update(run_batch(exports, work.one, workers=1))
        if work.touched:
            target.save(work.touched)
            now = target.read(work.touched)
            for key, export in exports.items():
                if export in work.touched and not outcomes[key]["error"]:
                    outcomes[key].update(_verified(target, export, now.get(export.iqn)))
    for key, export in exports.items():
        if outcomes[key]["error"]:
            work.after[export.volume_id] = work.before.get(export.volume_id, {})
    return {"outcomes": {key: outcomes[key] for key, args in pairs}, "before": work.before, "after": work.after}


def _result(target: Target, export: Export, target_state: Found | None, changes: t.Sequence[str]) -> dict[str, t.Any]:
    return {
        "changed": bool(changes),
        "changes": list(changes),
        "iqn": export.iqn,
        "lun": target.lun,
        "path": export.path,
        "portals": list(export.portals),
        "provider_location": location(target, export, target_state),
        "sessions": list(target_state.sessions) if target_state else [],
        "initiators": list(export.initiators),
        "unsaved": list(export.unsaved),
    }


@dataclass
class _Work:
    """The work on the existing targets ``target_states``. ``before`` and ``after`` are for a diff, by volume id."""

    target: Target
    target_states: t.Mapping[str, Found]
    check_mode: bool
    touched: list[Export] = field(default_factory=list)
    before: dict[str, t.Any] = field(default_factory=dict)
    after: dict[str, t.Any] = field(default_factory=dict)

    def one(self, export: Export) -> dict[str, t.Any]:
        target_state = self.target_states.get(export.iqn)
        self.before[export.volume_id] = shown(target_state.aspects) if target_state else {}
        return self._remove(export, target_state) if export.state == ABSENT else self._apply(export, target_state)

    def _apply(self, export: Export, target_state: Found | None) -> dict[str, t.Any]:
        if not export.logins and export.keep and (target_state is None or not target_state.aspects):
            self.after[export.volume_id] = self.before[export.volume_id]
            return _result(self.target, export, None, [])  # the kept initiators were removed with their target
        check_path(export)
        if len({login.chap is None for login in export.logins}) > 1:
            raise create_failed(
                export,
                "only some of the initiators have CHAP credentials",
                "Set credentials for all initiators, or for none.",
            )
        desired = self.target.aspects(export)
        changes = differences(desired, target_state.aspects) if target_state else ["target"]
        if target_state and not changes and not self.target.is_saved(export, target_state):
            changes = ["saved"]
        self.after[export.volume_id] = after = shown(desired)
        if "chap" in changes and self.before[export.volume_id].get("chap") and after["chap"]:
            after["chap"] = "other credentials"
        if target_state and "path" in changes and target_state.sessions and not export.force:
            raise create_failed(
                export,
                "target %s exports %s and is used by %s"
                % (export.iqn, target_state.aspects.get("path"), ", ".join(target_state.sessions)),
                "Detach the volume there first.",
            )
        if changes and not self.check_mode:
            with self._changing(export, create_failed):
                try:
                    self.target.apply(export, target_state)
                except Exception:
                    if target_state is None:
                        _undo(self.target, export)
                    raise
        return _result(self.target, export, target_state, changes)

    def _remove(self, export: Export, target_state: Found | None) -> dict[str, t.Any]:
        self.after[export.volume_id] = {}
        if target_state is None:
            return _result(self.target, export, None, [])
        if target_state.sessions and not export.force:
            raise remove_failed(
                export,
                "initiators are still logged in: %s" % ", ".join(target_state.sessions),
                "Detach the volume there first; force ends the session although the guest uses it.",
            )
        if not self.check_mode:
            with self._changing(export, remove_failed):
                self.target.remove(export, target_state)
        return dict(_result(self.target, export, target_state, ["target"]), sessions=[], initiators=[], unsaved=[])

    @contextlib.contextmanager
    def _changing(self, export: Export, failed: t.Callable[..., BootflowError]) -> t.Iterator[None]:
        progress.mark_changed()
        self.touched.append(export)
        try:
            yield
        except Exception as error:  # rtslib has one class for all errors, and does not wrap OSErrors of configfs
            if isinstance(error, BootflowError) and not isinstance(error, CommandFailed):
                raise
            raise failed(export, _plain(error, export), getattr(error, "remedy", None)) from None


def _undo(target: Target, export: Export) -> None:
    # An initiator must not find an incomplete target. The original failure is reported.
    with contextlib.suppress(Exception):
        target_state = target.read([export]).get(export.iqn)
        if target_state is not None:
            target.remove(export, target_state)


def _plain(error: BaseException, export: Export) -> str:
    text = str(error) or type(error).__name__
    for login in export.logins:
        if login.chap is not None and login.chap.secret:
            text = text.replace(login.chap.secret, "***")
    return text


def _verified(target: Target, export: Export, target_state: Found | None) -> dict[str, t.Any]:
    """Return the resulting target; an error if it differs from the request, because the tools may fail silently."""
    problem: BootflowError | None = None
    if export.state == ABSENT:
        if target_state is None:
            return {}
        problem = remove_failed(export, "the target still exists")
    elif target_state is None:
        problem = ISCSITargetNotFoundForVolume(volume_id=export.volume_id)
    else:
        wrong = differences(target.aspects(export), target_state.aspects)
        if wrong:
            problem = create_failed(export, "the target differs from the request: %s" % ", ".join(wrong))
        elif not target.is_saved(export, target_state):
            problem = create_failed(
                export, "the saved configuration would not restore the target when its service restarts"
            )
    if problem is not None or target_state is None:
        return failure(t.cast(BootflowError, problem), changed=True)
    return {"provider_location": location(target, export, target_state), "sessions": list(target_state.sessions)}
