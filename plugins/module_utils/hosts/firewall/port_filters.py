# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters of this host's ports: in the kernel, and in a file that is loaded when the host starts, before libvirt.

The kernel gets a new table in one transaction. It has the old one until then, and keeps it when it refuses the new one.
"""

from __future__ import annotations

import os
import re
import socket
import typing as t

from ...core.errors import CommandFailed, HostCannotFilter
from ...core.firewall.document import FilteredPort, Filters
from ...core.firewall.nftables import FAMILY, TABLE, mark_of, render
from ..os.batch import progress
from ..os.command import program, run
from ..os.files import read_text, write_file
from ..os.locks import LOCK_ROOT, host_lock
from ..os.paths import own_folder

FOLDER = "/var/lib/bootflow-firewall"
FILE = "port_filters.nft"

#: Seconds that nft has, and that another process has which changes the filters.
NFT_TIMEOUT = 60.0
LOCK_TIMEOUT = 120.0

_REVISION = re.compile(r"# revision ([0-9]{1,19}) of ledger (\S*)\n")


def apply_filters(filters: Filters, ledger_id: str, folder: str, check_mode: bool) -> dict[str, t.Any]:
    """Have the host filter as ``filters`` say.

    Returns {changed, superseded, revision, present, diff}. ``present``: ids of the ports whose devices are there. ``superseded``: the host has
    filters of a later revision of this ledger, which stay.

    :arg folder: where the file is kept, which belongs to root alone
    :raises HostCannotFilter: nft does not take the filters. What was there stays.
    :raises MissingLibrary: nft is not installed. :raises UnsafeFolder: another user could replace the file.
    """
    nft, path = program("nft", "nftables"), os.path.join(folder, FILE)
    text = render(filters)
    with host_lock(LOCK_ROOT, "port_filters", LOCK_TIMEOUT):
        before = _stored(path)
        stored_head = _REVISION.match(before)
        result = {
            "changed": False,
            "superseded": False,
            "revision": filters.revision,
            "present": [port.id for port in filters.ports if _is_there(port)],
        }
        if stored_head and stored_head.group(2) == ledger_id and int(stored_head.group(1)) > filters.revision:
            return {
                **result,
                "superseded": True,
                "revision": int(stored_head.group(1)),
                "diff": {"before": "", "after": ""},
            }
        same_text = _REVISION.sub("", before, count=1) == text
        if not (same_text and _is_loaded(nft, text)):
            result["changed"] = True
            _load(nft, text, check_mode)
        if not check_mode and (
            result["changed"] or not same_text or not stored_head or int(stored_head.group(1)) != filters.revision
        ):
            with own_folder(folder, 0o700):
                head = "# revision %d of ledger %s\n" % (filters.revision, ledger_id)
                write_file(path, (head + text).encode(), 0o600)
    result["diff"] = {
        "before": _REVISION.sub("", before, count=1),
        "after": text,
        "before_header": path,
        "after_header": path,
    }
    return result


def _stored(path: str) -> str:
    text = read_text(path)
    return text + "\n" if text else ""


def _is_there(port: FilteredPort) -> bool:
    """Whether the device of the port is in the network namespace of this process."""
    try:
        return bool(socket.if_nametoindex(port.device))
    except OSError:
        return False


def _is_loaded(nft: str, text: str) -> bool:
    """Whether the kernel has this table: each has a chain without rules, named by what the table has."""
    answer = run([nft, "list", "chain", FAMILY, TABLE, mark_of(text)], timeout=NFT_TIMEOUT, check=False)
    return answer.rc == 0


def _load(nft: str, text: str, check_mode: bool) -> None:
    if not check_mode:
        progress.mark_changed()
    try:
        run([nft, *(["-c"] if check_mode else []), "-f", "-"], timeout=NFT_TIMEOUT, stdin=text)
    except CommandFailed as error:
        reason = str(error.details.get("stderr") or error).strip()
        raise HostCannotFilter(host=socket.gethostname(), reason=reason[:1000]) from None
