# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names and tags of our logical volumes. The tags record owner, source and completeness of a volume.

Names are Cinder's: volume-<id>, and _snapshot-<id> because LVM keeps names that begin with "snapshot" for itself.
source: Cinder's LVM driver.
"""

from __future__ import annotations

import re
import typing as t

from ...core.errors import InvalidInput
from ..os.ownership import is_of_another
from ..os.paths import checked_uuid

VOLUME, SNAPSHOT, IMAGE = "volume", "snapshot", "image"
KINDS = (VOLUME, SNAPSHOT)

_PREFIXES = {VOLUME: "volume-", SNAPSHOT: "_snapshot-", IMAGE: "image-"}

#: On all of our logical volumes.
OWNER = "bootflow"
#: ``bootflow.ledger=UUID``: the ledger that has it.
LEDGER = "ledger"
#: The content is incomplete: a run is working on it, or was killed.
INCOMPLETE = "bootflow.incomplete"
#: The volume is being deleted, and its content is partly overwritten.
DELETING = "bootflow.deleting"

_TAG = re.compile(r"[A-Za-z0-9_+.=/!:&#][A-Za-z0-9_+.=/!:&#-]{0,1023}\Z")
_UNSAFE = re.compile(rb"[^A-Za-z0-9_+.=/!:&-]")
_ESCAPE = re.compile(rb"#([0-9a-f]{2})")
#: Of a project in its tag: LVM takes 1024 characters with the rest of the tag.
_PROJECT_LENGTH = 1000
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


def checked_tag(value: str) -> str:
    """Return a tag in LVM's alphabet.

    :raises InvalidInput: other characters, a leading "-", or longer than 1024.
    """
    if not isinstance(value, str) or not _TAG.match(value):
        raise InvalidInput(reason="%r is not a valid LVM tag (letters, digits, _ + . - / = ! : & #)" % (value,))
    return value


def lv_name(kind: str, item_id: str, ledger_id: str = "") -> str:
    """Return the logical volume's name for the volume or snapshot (UUID), or for the image (its sha256), which each ledger caches for itself."""
    if kind == IMAGE:
        if not _SHA256.match(item_id):
            raise InvalidInput(reason="%r is not a sha256" % (item_id,))
        return "%s%s%s" % (_PREFIXES[IMAGE], "%s-" % ledger_id[:8] if ledger_id else "", item_id[:40])
    return _PREFIXES[kind] + checked_uuid(item_id)


def owner_tags(kind: str, item_id: str, project: str = "", source: str = "", ledger_id: str = "") -> list[str]:
    """Return the tags of a new logical volume.

    :arg source: "volume/<id>", "snapshot/<id>", "image/<sha256>", or "" for an empty one.
    """
    tags = [OWNER, "bootflow.%s=%s" % (kind, item_id)]
    if project:
        tags.append("bootflow.project=%s" % project_text(project))
    if source:
        tags.append("bootflow.source=%s" % source)
    if ledger_id:
        tags.append("bootflow.%s=%s" % (LEDGER, ledger_id))
    return [checked_tag(tag) for tag in tags]


def project_text(project: str) -> str:
    """Return a project's name in LVM's alphabet: its other bytes are ``#`` and two hexadecimal digits. What is too long for a tag is cut."""
    escaped = _UNSAFE.sub(lambda match: b"#%02x" % ord(match.group()), project.encode("utf-8"))
    return escaped[:_PROJECT_LENGTH].decode("ascii")


def project_of(tags: t.Iterable[str]) -> str:
    """Return the project's name from the tags; "" without one."""
    escaped = tag_value(tags, "project").encode("utf-8")
    return _ESCAPE.sub(lambda match: bytes.fromhex(match.group(1).decode("ascii")), escaped).decode("utf-8", "replace")


def tag_value(tags: t.Iterable[str], word: str) -> str:
    """Return the value of the tag ``bootflow.<word>=``; "" without one."""
    start = "bootflow.%s=" % word
    return next((tag[len(start) :] for tag in sorted(tags) if tag.startswith(start)), "")


def tag_values(tags: t.Iterable[str], word: str) -> list[str]:
    """Return all values of the tags ``bootflow.<word>=``."""
    start = "bootflow.%s=" % word
    return sorted(tag[len(start) :] for tag in tags if tag.startswith(start))


def identity(tags: t.Collection[str], ledger_id: str = "") -> tuple[str, str]:
    """Return (kind, id) of one of our logical volumes; ("", "") for others, also for volumes of another ledger than ``ledger_id``."""
    if OWNER in tags and not is_of_another(tag_value(tags, LEDGER), ledger_id):
        for kind in (VOLUME, SNAPSHOT, IMAGE):
            value = tag_value(tags, kind)
            if value:
                return kind, value
    return "", ""
