# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The config drive as a file on the compute host: ISO 9660 or vfat, with the label of the data source that its guest reads.

The drive may contain a password, so only the owner can access the file.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import io
import os
import re
import shutil
import socket
import tempfile
import typing as t

from ....core.errors import DiskFull, InvalidInput, MissingLibrary, RemoteError
from ....core.guest.config_drive_rules import CONFIG_DRIVE, LABELS, check_format
from ....core.guest.drive_files import check_path, unpack_files
from ....core.optional import optional_import
from ...os.batch import run_batch
from ...os.command import run
from ...os.files import write_file
from ...os.paths import make_dirs
from . import vfat

pycdlib = optional_import("pycdlib")

LABEL = LABELS[CONFIG_DRIVE]
VFAT_SIZE = 64 << 20
PUBLISHER = "BOOTFLOW.COMPUTE"
ISO_TOOLS = ("xorriso", "genisoimage", "mkisofs")  # in this order, without pycdlib
TOOL_TIMEOUT = 120  # seconds
_PART = ".part"

# Where each format stores the digest of its sources: ISO 9660's application identifier, FAT's boot code.
_ISO_APPLICATION = 16 * 2048 + 574
# (57 characters of it, because Joliet has space for 64.)
_MARK = "BOOTFLOW "
_MARK_DIGITS = 48


# The option ``drives``.
DRIVES_ARGUMENT: dict[str, t.Any] = {
    "type": "list",
    "elements": "dict",
    "required": True,
    "options": {
        "uuid": {"type": "str", "required": True},
        "path": {"type": "path", "required": True},
        "format": {"type": "str", "choices": ["iso9660", "vfat"], "default": "iso9660"},
        "label": {"type": "str", "choices": list(LABELS.values()), "default": LABEL},
        "files": {"type": "dict", "required": True, "no_log": True},
        "keep": {"type": "bool", "default": False},
    },
}


def write_drives(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """The work of the module config_drive: {outcomes by uuid}. :arg params: its options"""

    def write(drive: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        files = unpack_files(drive["files"])
        return write_config_drive(
            drive["path"], files, drive["format"], check_mode=check_mode, keep=drive["keep"], label=drive["label"]
        )

    return {"outcomes": run_batch([(drive["uuid"], drive) for drive in params["drives"]], write, workers=2)}


def content_digest(files: t.Mapping[str, bytes], fmt: str, label: str = LABEL) -> str:
    """sha256 (hex) of label, paths and contents: drives with the same digest are equivalent for a guest."""
    digest = hashlib.sha256(("%s %s 1\n" % (fmt, label)).encode("ascii"))
    for path in sorted(files):
        digest.update(("%s %d\n" % (path, len(files[path]))).encode("utf-8"))
        digest.update(files[path])
    return digest.hexdigest()


def build_iso(files: t.Mapping[str, bytes], label: str = LABEL, path: str = "") -> bytes:
    """An ISO 9660 image with Joliet and Rock Ridge names.

    :arg path: of the drive. A program reads the files, passwords among them, from a folder next to it: what a killed run leaves is removed with
        the instance, or when the drive is made again. Without it they are in the host's folder for temporary files.
    :raises InvalidInput: a path is not possible on a drive.
    :raises MissingLibrary: neither pycdlib nor one of ISO_TOOLS is installed.
    :raises CommandFailed: the tool failed.
    """
    _check_paths(files)
    mark = _mark(files, "iso9660", label)
    if pycdlib:
        return _iso_with_pycdlib(files, label, mark)
    tool = next((tool_path for tool_path in (shutil.which(name) for name in ISO_TOOLS) if tool_path), None)
    if tool is None:
        raise MissingLibrary(name="pycdlib", package="python3-pycdlib", where="host")
    return _iso_with_tool(tool, files, label, mark, path)


def write_config_drive(
    path: str,
    files: t.Mapping[str, bytes],
    fmt: str = "iso9660",
    check_mode: bool = False,
    keep: bool = False,
    label: str = LABEL,
) -> dict[str, t.Any]:
    """Create the drive at ``path``, unless one with the same content and format exists.

    The new file is renamed when it is complete; after a failure no part of it remains.

    :arg path: absolute; a missing directory is created.
    :arg keep: keep an existing drive whatever its content is, because its guest may have read it already.
    :returns: {changed, path, format, size in bytes}
    :raises ConfigDriveUnknownFormat, InvalidInput: an argument is not valid.
    :raises DiskFull, MissingLibrary, CommandFailed, RemoteError: the file could not be created or written.
    """
    check_format(fmt)
    if not os.path.isabs(path) or os.path.basename(path) in ("", ".", ".."):
        raise InvalidInput(reason="path of the config drive must be absolute, got %r" % path)
    _check_paths(files)
    try:
        mark = _MARK.encode("ascii") if keep else _mark(files, fmt, label)
        size = _existing(path, mark, fmt)
        if size is not None:
            return {"changed": False, "path": path, "format": fmt, "size": size}
        if fmt == "vfat":
            data = _vfat_used(files, label, VFAT_SIZE)
        else:
            data = build_iso(files, label, "" if check_mode else path)
        size = VFAT_SIZE if fmt == "vfat" else len(data)
        if not check_mode:
            _prepare_folder(path)
            write_file(path, data, 0o600, size)
        return {"changed": True, "path": path, "format": fmt, "size": size}
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(host=socket.gethostname(), path=path, reason=e.strerror) from None
        raise RemoteError(reason="the config drive %s cannot be written: %s" % (path, e.strerror or e)) from None


def _existing(path: str, mark: bytes, fmt: str) -> int | None:
    """The size of the drive at ``path``, in bytes, if its mark begins with ``mark``; otherwise None."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    with open(fd, "rb") as stream:
        stream.seek(_ISO_APPLICATION if fmt == "iso9660" else vfat.BOOT_CODE)
        return os.fstat(fd).st_size if stream.read(len(mark)) == mark else None


def _prepare_folder(path: str) -> None:
    make_dirs(os.path.dirname(path), 0o755)
    remove_leftovers(path)


def remove_leftovers(path: str) -> None:
    """Remove what a killed run left of its work on the drive at ``path``. The ledger ensures that no other run works on the instance."""
    folder, name = os.path.split(path)
    for leftover in glob.glob(os.path.join(glob.escape(folder), ".%s.*%s" % (glob.escape(name), _PART))):
        if os.path.isdir(leftover) and not os.path.islink(leftover):
            shutil.rmtree(leftover)
        else:
            os.unlink(leftover)


def _check_paths(files: t.Mapping[str, bytes]) -> None:
    if not files:
        raise InvalidInput(reason="the config drive has no files")
    for path in files:
        check_path(path)
        parts = path.split("/")
        if any("/".join(parts[:depth]) in files for depth in range(1, len(parts))):
            raise InvalidInput(reason="%r lies below the path of another file" % path)


def _mark(files: t.Mapping[str, bytes], fmt: str, label: str = LABEL) -> bytes:
    return (_MARK + content_digest(files, fmt, label)[:_MARK_DIGITS].upper()).encode("ascii")


def _vfat_used(files: t.Mapping[str, bytes], label: str, size: int) -> bytes:
    _check_paths(files)
    return vfat.image(files, label, size, note=_mark(files, "vfat", label))


def _iso_with_pycdlib(files: t.Mapping[str, bytes], label: str, mark: bytes) -> bytes:
    iso = pycdlib.PyCdlib()
    iso.new(
        interchange_level=3,
        joliet=3,
        rock_ridge="1.09",
        vol_ident=label,
        pub_ident_str=PUBLISHER,
        app_ident_str=mark.decode("ascii"),
    )
    try:
        iso_names: dict[str, str] = {"": ""}
        used_names: set[str] = set()
        for path in sorted(files):
            parts = path.split("/")
            for depth in range(1, len(parts)):
                folder = "/".join(parts[:depth])
                if folder not in iso_names:
                    iso_names[folder] = _iso_name(
                        iso_names["/".join(parts[: depth - 1])], parts[depth - 1], used_names, ""
                    )
                    iso.add_directory(iso_names[folder], rr_name=parts[depth - 1], joliet_path="/" + folder)
            iso_name = _iso_name(iso_names["/".join(parts[:-1])], parts[-1], used_names, ".;1")
            iso.add_fp(io.BytesIO(files[path]), len(files[path]), iso_name, rr_name=parts[-1], joliet_path="/" + path)
        result = io.BytesIO()
        iso.write_fp(result)
    except pycdlib.pycdlibexception.PyCdlibException as e:
        raise RemoteError(reason="the config drive cannot be made: %s" % e) from None
    finally:
        iso.close()
    return result.getvalue()


def _iso_name(folder: str, name: str, used_names: set[str], end: str) -> str:
    """A unique plain ISO 9660 path; guests see the Rock Ridge or Joliet name."""
    plain = re.sub(r"[^A-Z0-9_]", "_", name.upper())[:24]
    candidate, number = "%s/%s%s" % (folder, plain, end), 0
    while candidate in used_names:
        number += 1
        candidate = "%s/%s_%d%s" % (folder, plain, number, end)
    used_names.add(candidate)
    return candidate


def _iso_with_tool(tool: str, files: t.Mapping[str, bytes], label: str, mark: bytes, path: str) -> bytes:
    if path:
        _prepare_folder(path)
    parent, name = os.path.split(path)
    prefix = ".%s." % name if path else "bootflow-config-drive-"
    with tempfile.TemporaryDirectory(prefix=prefix, suffix=_PART, dir=parent or None) as folder:  # 0700
        source, target = os.path.join(folder, "source"), os.path.join(folder, "drive")
        for file_path, data in files.items():
            place = os.path.join(source, *file_path.split("/"))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "wb") as stream:
                stream.write(data)
        argv = [tool] + (["-as", "mkisofs"] if os.path.basename(tool) == "xorriso" else ["-ldots", "-allow-multidot"])
        argv += ["-o", target, "-allow-lowercase", "-l", "-quiet", "-J", "-r"]
        argv += ["-V", label, "-publisher", PUBLISHER, "-A", mark.decode("ascii"), source]
        run(argv, timeout=TOOL_TIMEOUT, path=target, outlives=False)
        with open(target, "rb") as stream:
            return stream.read()
