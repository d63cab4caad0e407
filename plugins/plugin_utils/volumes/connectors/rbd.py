# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes in Ceph: QEMU opens them, and libvirt has one secret for all guests of a host, by the module rbd_secret."""

from __future__ import annotations

import contextlib
import typing as t

from ....module_utils.core import errors
from ....module_utils.core.volumes.connectors.rbd import Rbd
from ....module_utils.core.volumes.pool_hosts import extract_host
from ....module_utils.core.volumes.rbd_names import secret_uuid
from ....module_utils.ledger.db.transaction import Transaction
from ....module_utils.ledger.storage import attachments as rows_of_attachments
from ...run import host_settings
from ...run.ledger_action import LedgerAction
from ...settings.storage_settings import rbd_key
from .host_connector import AttachedVolume, Outcomes


class RbdConnector:
    """The librbd of QEMU."""

    kind = Rbd()

    def key(self, attached: AttachedVolume) -> str:
        info = _info(attached)
        return secret_uuid(info["fsid"], info["user"])

    def connect(
        self, action: LedgerAction, attachments: t.Sequence[AttachedVolume], served: t.Collection[str]
    ) -> Outcomes:
        """Define the secret again, whether it is there or not: libvirt does not say whether its value is the user's key."""
        wanted = {}
        for attached in attachments:
            wanted[self.key(attached)] = {**_identity(attached), "state": "present", "key": _key_of(action, attached)}
        return _run(action, list(wanted.values()))

    def disconnect(self, action: LedgerAction, attachments: t.Sequence[AttachedVolume]) -> Outcomes:
        """The secret goes with the last volume of its cluster and user on the host."""
        host = action.task_vars["inventory_hostname"]
        ids = {attached.id for attached in attachments}
        with contextlib.closing(action.open_ledger()) as ledger:
            used = ledger.inspect(_secrets_in_use, host, ids)
        keys = {self.key(attached): attached for attached in attachments}
        unchanged: Outcomes = {key: {"changed": False, "error": None} for key in keys if key in used}
        unused = [{**_identity(attached), "state": "absent"} for key, attached in keys.items() if key not in used]
        return {**unchanged, **(_run(action, unused) if unused else {})}


def _info(attached: AttachedVolume) -> dict[str, t.Any]:
    info = attached.row.connection_info
    if not info:
        raise errors.InvalidVolume(
            reason="volume %s is not exported" % attached.volume_id, remedy="Run the playbook again."
        )
    return info


def _identity(attached: AttachedVolume) -> dict[str, str]:
    info = _info(attached)
    return {"fsid": info["fsid"], "user": info["user"]}


def _key_of(action: LedgerAction, attached: AttachedVolume) -> str:
    volume = attached.volume
    if volume is None or not volume.pool_host:
        raise errors.VolumeNotFound(volume_id=attached.volume_id)
    host = extract_host(volume.pool_host, "host")
    return rbd_key(action, host, extract_host(volume.pool_host).partition("@")[2])


def _secrets_in_use(tx: Transaction, host: str, without: t.Collection[str]) -> set[str]:
    """The secrets that guests of the host need whose attachments are not among ``without``."""
    rows = rows_of_attachments.select(tx, attached_host=host, connected=True)
    infos = [r.connection_info for r in rows if r.id not in without and r.connector == Rbd.name and r.connection_info]
    return {secret_uuid(info["fsid"], info["user"]) for info in infos}


def _run(action: LedgerAction, secrets: t.Sequence[t.Mapping[str, str]]) -> Outcomes:
    result = action.run_module("rbd_secret", {**host_settings.libvirt_arguments(action), "secrets": list(secrets)})
    return t.cast(Outcomes, result["outcomes"])
