# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data for the guest in a request: metadata, user data, injected files; and the secrets that only the request has."""

from __future__ import annotations

import base64
import re
import typing as t

from ..errors import (
    Base64Exception,
    InstanceUserDataMalformed,
    InstanceUserDataTooLarge,
    InvalidInput,
    MetadataLimitExceeded,
    NotSupportedYet,
    OnsetFileContentLimitExceeded,
    OnsetFileLimitExceeded,
    OnsetFilePathLimitExceeded,
)
from ..instances.quotas import (
    INJECTED_FILE_CONTENT_BYTES,
    INJECTED_FILE_PATH_LENGTH,
    INJECTED_FILES,
    METADATA_ITEMS,
)
from ..model import InjectedFile
from ..reading.formats import decode_base64, to_integer
from ..reading.limits import UNLIMITED
from ..reading.problems import Problems

#: of requests that were accepted
NO_LIMITS: t.Mapping[str, int] = {}
#: bytes of the user data once base64 encoded
MAX_USER_DATA = 65535


def requested_metadata(
    items: t.Mapping[str, t.Any], limits: t.Mapping[str, int], path: str, problems: Problems
) -> dict[str, str]:
    """The metadata, after the check of its quota. :arg limits: see instances.quotas.limits_of()"""
    if _exceeds(limits, METADATA_ITEMS, len(items)):
        problems.add(path, MetadataLimitExceeded(allowed=limits[METADATA_ITEMS]))
    return {str(key): str(value) for key, value in items.items()}


def requested_user_data(
    text: t.Optional[str], encoded: t.Optional[str], path: str, problems: Problems
) -> t.Optional[str]:
    """The user data as text, from plain text or base64. An empty text counts as none.

    The limit applies to the encoded form, as in Nova's column and schema.
    """
    if text is not None and encoded is not None:
        problems.add(
            path + ".user_data_base64",
            InvalidInput(message="user_data and user_data_base64 exclude each other", remedy="Give only one of them."),
        )
        return None
    if encoded is not None:
        path += ".user_data_base64"
        with problems.collect(path):
            text = _decoded(encoded)
    else:
        path += ".user_data"
    if not text:
        return None
    try:
        length = 4 * ((len(text.encode("utf-8")) + 2) // 3)
    except UnicodeEncodeError:
        problems.add(path, InvalidInput(message="User data is not valid Unicode text.", remedy="Save it as UTF-8."))
        return None
    if length > MAX_USER_DATA:
        problems.add(path, InstanceUserDataTooLarge(maxsize=MAX_USER_DATA, length=length))
    return str(text)


def user_data_doubt(text: t.Optional[str]) -> str:
    """Why no program in the guest may read this user data, as the end of a sentence; "" where it looks right.

    cloud-init reads texts that begin with ``#`` (#cloud-config, a script, #include...), MIME messages and gzip; cloudbase-init also scripts of
    Windows, and Ignition JSON.
    """
    begin = (text or "").lstrip().lower()
    if not begin:
        return ""
    first = begin.partition("\n")[0].strip()
    if _PATH.fullmatch(first) and first == begin.strip():
        return "looks like the path of a file, and is passed on as it is. For its content write {{ lookup('ansible.builtin.file', PATH) }}"
    if _NEARLY.match(first):
        return "begins with %s, which cloud-init takes for a comment: write #cloud-config, without a space" % ascii(
            first[:30]
        )
    if begin.startswith(_KNOWN_BEGINNINGS) or _HEADER.match(first):
        return ""
    return "begins with none of #cloud-config, #!, #include and MIME, so that cloud-init will not read it"


_KNOWN_BEGINNINGS = (
    "#",
    "\x1f\x8b",
    "<powershell>",
    "<script>",
    "<persist>",
    "rem cmd",
    "{",
    "content-type:",
    "mime-version:",
)
_HEADER = re.compile(r"(content-|mime-|from:|to:|subject:|x-)[\w-]*:?")
_PATH = re.compile(r"(~|[.]{0,2}/|\w:\\)\S+|[\w.-]+(/[\w.-]+)*[.](ya?ml|txt|sh|cfg|conf|json|ps1|j2|mime|cloud|init)")
_NEARLY = re.compile(r"#\s+cloud-config\b")


def _decoded(encoded: str) -> str:
    try:
        data = decode_base64(encoded)
    except ValueError:
        raise InstanceUserDataMalformed() from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotSupportedYet(
            feature="User data other than UTF-8 text (such as gzip)",
            remedy="Give the user data uncompressed; cloud-init reads that too.",
        ) from None


def requested_files(
    items: t.Sequence[t.Mapping[str, t.Any]], limits: t.Mapping[str, int], path: str, problems: Problems
) -> tuple[InjectedFile, ...]:
    """The injected files, their base64 without blanks, after checks of number, size and path length.

    :arg limits: see instances.quotas.limits_of()
    """
    if _exceeds(limits, INJECTED_FILES, len(items)):
        problems.add(path, OnsetFileLimitExceeded(used=len(items), allowed=limits[INJECTED_FILES]))
    files: list[InjectedFile] = []
    for index, item in enumerate(items):
        where = "%s[%d]" % (path, index)
        name = str(item["path"])
        if _exceeds(limits, INJECTED_FILE_PATH_LENGTH, len(name)):
            problems.add(where + ".path", OnsetFilePathLimitExceeded(allowed=limits[INJECTED_FILE_PATH_LENGTH]))
        if any(name == other.path for other in files):
            problems.add(
                where + ".path",
                InvalidInput(message="%s is injected twice" % ascii(name), remedy="Give each file once."),
            )
        try:
            data = decode_base64(item["contents"])
        except ValueError:
            problems.add(where + ".contents", Base64Exception(path=name))
            continue
        if _exceeds(limits, INJECTED_FILE_CONTENT_BYTES, len(data)):
            problems.add(
                where + ".contents", OnsetFileContentLimitExceeded(allowed=limits[INJECTED_FILE_CONTENT_BYTES])
            )
        files.append(InjectedFile(path=name, contents=base64.b64encode(data).decode("ascii")))
    return tuple(files)


def _exceeds(limits: t.Mapping[str, int], name: str, amount: int) -> bool:
    return 0 <= limits.get(name, UNLIMITED) < amount


class GuestSecrets(t.NamedTuple):
    """The fields of an entry that the ledger does not keep."""

    user_data: t.Optional[str] = None
    injected_files: tuple[InjectedFile, ...] = ()
    admin_password: t.Optional[str] = None


class SecretsOfRequest:
    """Finds the secrets of instances in an accepted request. Reads only the entries of these instances."""

    def __init__(self, entries: t.Any, default_project: str):
        """:arg entries: bootflow_instances."""
        self.entries = [e for e in entries if isinstance(e, t.Mapping)] if isinstance(entries, (list, tuple)) else []
        self._index = {
            (str(entry.get("project") or default_project), str(entry.get("name"))): index
            for index, entry in enumerate(self.entries)
        }
        self._read: dict[int, GuestSecrets] = {}

    def guest_secrets(self, project: str, name: str) -> t.Optional[GuestSecrets]:
        """The secrets of the instance of that name; None if the request no longer has its entry.

        :raises InvalidRequest: the entry changed since it was accepted, and its user data or files are invalid.
        """
        index = self._entry_of(project, name)
        if index is not None and index not in self._read:
            self._read[index] = _secrets(self.entries[index], "instances[%d]" % index)
        return None if index is None else self._read[index]

    def image(self, project: str, name: str) -> t.Optional[str]:
        """The image, by name or id, that the request says for this instance; None if it says none."""
        index = self._entry_of(project, name)
        given = None if index is None else self.entries[index].get("image")
        return None if given is None or given == "" else str(given)

    def names(self, project: str, name: str) -> bool:
        """Whether the request has an entry for this instance."""
        return self._entry_of(project, name) is not None

    def key_name(self, project: str, name: str) -> t.Optional[str]:
        """The key pair that the request says for this instance; None if it says none."""
        index = self._entry_of(project, name)
        given = None if index is None else self.entries[index].get("key_name")
        return None if given is None or given == "" else str(given)

    def _entry_of(self, project: str, name: str) -> t.Optional[int]:
        alone = self._index.get((project, name))
        if alone is not None and _most(self.entries[alone]) == 1:
            return alone
        base, _dash, number = name.rpartition("-")
        numbered = self._index.get((project, base))
        if number.isascii() and number.isdigit() and number == str(int(number)) and numbered is not None:
            if 1 <= int(number) <= _most(self.entries[numbered]):
                # An entry of one may have had several: the first one keeps its number.
                return numbered if alone is None or _most(self.entries[numbered]) != 1 else alone
        return alone  # of several: the first one may have been made when it was the only one


def _most(entry: t.Mapping[str, t.Any]) -> int:
    """The maximum of instances of an entry: names are numbered if it is more than one."""
    given = (entry.get(field) for field in ("max_count", "count", "min_count"))
    return to_integer(next((value for value in given if value is not None), 1))


def _secrets(entry: t.Mapping[str, t.Any], path: str) -> GuestSecrets:
    problems = Problems()
    password = entry.get("admin_password")
    secrets = GuestSecrets(
        requested_user_data(entry.get("user_data"), entry.get("user_data_base64"), path, problems),
        requested_files(entry.get("injected_files") or (), NO_LIMITS, path + ".injected_files", problems),
        None if password is None or password == "" else str(password),
    )
    problems.raise_if_any()
    return secrets
