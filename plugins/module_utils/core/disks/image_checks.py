# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for acceptable images: over their bytes (before any tool opens them) and over qemu-img's JSON.

The bytes come first, because the tool itself is the risk: as soon as it opens an image, it follows a VMDK descriptor or
a qcow2 data file to any path of the host.
source: Nova's and Cinder's advisories CVE-2015-1850, CVE-2022-47951, CVE-2024-32498, CVE-2024-40767.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import struct
import typing as t

from ..errors import FlavorDiskSmallerThanImage, ImageUnacceptable, InvalidDiskFormat, InvalidInput
from .checksums import Checksum, parse_checksum

#: The catalogue's words (Glance's) and the qemu-img driver of each.
DRIVER_OF_DISK_FORMAT: t.Mapping[str, str] = {
    "raw": "raw",
    "iso": "raw",
    "ami": "raw",
    "ari": "raw",
    "aki": "raw",
    "qcow2": "qcow2",
    "vmdk": "vmdk",
    "vdi": "vdi",
    "vhd": "vpc",
    "vpc": "vpc",
    "vhdx": "vhdx",
}

#: VMDK subformats with their data in the file itself.
VMDK_CREATE_TYPES = ("streamOptimized", "monolithicSparse")

#: (driver, offset, magic): all formats that qemu recognises by a header, accepted here or not.
_MAGICS: tuple[tuple[str, int, bytes], ...] = (
    ("qcow2", 0, b"QFI\xfb"),
    ("qed", 0, b"QED\0"),
    ("vmdk", 0, b"KDMV"),
    ("vmdk", 0, b"COWD"),
    ("vdi", 0x40, b"\x7f\x10\xda\xbe"),
    ("vhdx", 0, b"vhdxfile"),
    ("vpc", 0, b"conectix"),
    ("luks", 0, b"LUKS\xba\xbe"),
    ("parallels", 0, b"WithoutFreeSpace"),
    ("parallels", 0, b"WithouFreSpacExt"),
    ("bochs", 0, b"Bochs Virtual HD Image"),
    ("cloop", 0, b"#!/bin/sh\n#V2.0 Format"),
)

_QCOW2_FEATURES = {0: "dirty", 1: "corrupt", 2: "data file", 3: "compression", 4: "extended L2"}
_QCOW2_ACCEPTED = 0b11001  # dirty, compression type, extended L2 entries: they stay in the file

ReadAt = t.Callable[[int, int], bytes]


def driver_of(disk_format: str, image_id: str = "") -> str:
    """The qemu-img driver for a catalogue's ``disk_format``.

    :raises InvalidDiskFormat: an unsupported format.
    """
    driver = DRIVER_OF_DISK_FORMAT.get(str(disk_format).lower())
    if driver is None:
        raise InvalidDiskFormat(
            disk_format=disk_format,
            remedy="disk_format of image %s is one of %s." % (image_id, ", ".join(sorted(DRIVER_OF_DISK_FORMAT))),
        )
    return driver


def detect_formats(read_at: ReadAt, size: int) -> list[str]:
    """Every format whose signature the image has, without guessing: none means raw, two mean an attack.

    :arg read_at: returns the bytes at (offset, length), fewer at the end of the file.
    :arg size: bytes of the file.
    """
    formats = []
    for driver, offset, magic in _MAGICS:
        if read_at(offset, len(magic)) == magic and driver not in formats:
            formats.append(driver)
    if _is_vmdk_descriptor(read_at(0, 4096)) and "vmdk" not in formats:
        formats.append("vmdk")
    if size >= 512 and read_at(size - 512, 4) == b"koly":
        formats.append("dmg")
    return formats


def _is_vmdk_descriptor(head: bytes) -> bool:
    """The rule of qemu's own probe: comments and empty lines, then "version=1", 2 or 3."""
    if not head.lstrip(b" \t\r\n").startswith(b"#") and b"version=" not in head[:64]:
        return False
    for line in head.split(b"\n"):
        line = line.strip(b" \t\r")
        if not line or line.startswith(b"#"):
            if b"Disk DescriptorFile" in line:
                return True
            continue
        return re.match(rb"version\s*=\s*[123]\b", line) is not None
    return False


def check_signature(
    read_at: ReadAt, size: int, disk_format: str, image_id: str, vmdk_types: t.Sequence[str] = VMDK_CREATE_TYPES
) -> str:
    """Check an image by its bytes alone. Returns the driver with which it may be opened (never probed again).

    :arg vmdk_types: the accepted types, of VMDK_CREATE_TYPES.
    :raises InvalidDiskFormat: the catalogue's disk_format is not supported.
    :raises ImageUnacceptable: the image is empty, has another format than in the catalogue or two at once, or
        refers to other files (backing file, external data file, VMDK extents).
    """
    claimed = driver_of(disk_format, image_id)
    if size <= 0:
        raise _refused(image_id, "the file is empty")
    formats = detect_formats(read_at, size)
    if len(formats) > 1:
        raise _refused(image_id, "the file has the signatures of several formats (%s)" % ", ".join(formats))
    # A fixed VHD has its signature only at the end, after any bytes: a VHD may look raw.
    if not formats and claimed == "vpc" and size >= 512 and read_at(size - 512, 8) == b"conectix":
        formats = ["vpc"]
    detected = formats[0] if formats else "raw"
    strange = no_disk(read_at(0, 4096)) if detected == "raw" else ""
    if strange:
        raise _refused(
            image_id,
            "the file is %s, not an image" % strange,
            "Open the url or path of the image by hand, and correct it so that it leads to the image itself.",
        )
    if detected == "vmdk":
        _check_vmdk(read_at, size, image_id, vmdk_types)
    if detected == "qcow2":
        _check_qcow2(read_at, size, image_id)
    if detected != claimed:
        raise _refused(
            image_id,
            "the format is %s, the catalogue says %s" % (detected, disk_format),
            "Correct disk_format in bootflow_images if you trust the image.",
        )
    return detected


def _check_qcow2(read_at: ReadAt, size: int, image_id: str) -> None:
    head = read_at(0, 104)
    if len(head) < 72:
        raise _refused(image_id, "the qcow2 header is cut off")
    version, backing_offset, backing_length = struct.unpack(">IQI", head[4:20])
    if version not in (2, 3):
        raise _refused(image_id, "qcow2 version %d is not supported" % version)
    if backing_offset or backing_length:
        raise _refused(image_id, "fmt=qcow2 backed by: %s" % _shown(read_at(backing_offset, min(backing_length, 1023))))
    if version == 3:
        if len(head) < 104:
            raise _refused(image_id, "the qcow2 header is cut off")
        features = struct.unpack(">Q", head[72:80])[0]
        if features & 0b100:
            raise _refused(image_id, "the data is in another file (qcow2 data file)")
        if features & ~_QCOW2_ACCEPTED:
            names = [
                _QCOW2_FEATURES.get(bit, "bit %d" % bit)
                for bit in range(64)
                if features & ~_QCOW2_ACCEPTED & (1 << bit)
            ]
            raise _refused(image_id, "qcow2 features are not accepted: %s" % ", ".join(names))
    crypt_method = struct.unpack(">I", head[32:36])[0]
    if crypt_method:
        raise _refused(image_id, "the file is encrypted")
    if _has_qcow2_extension(read_at, version, head, 0x44415441):
        raise _refused(image_id, "the header names a qcow2 data file")


def _has_qcow2_extension(read_at: ReadAt, version: int, head: bytes, wanted: int) -> bool:
    offset = struct.unpack(">I", head[100:104])[0] if version == 3 else 72
    for _index in range(64):
        raw = read_at(offset, 8)
        if len(raw) < 8:
            return False
        kind, length = struct.unpack(">II", raw)
        if kind == 0:
            return False
        if kind == wanted:
            return True
        offset += 8 + (length + 7) // 8 * 8
    return False


def _check_vmdk(read_at: ReadAt, size: int, image_id: str, types: t.Sequence[str]) -> None:
    head = read_at(0, 512)
    if head[:4] != b"KDMV":
        raise _refused(image_id, "the file is a VMDK descriptor; its data is in other files")
    if len(head) < 79:
        raise _refused(image_id, "the VMDK header is cut off")
    version, dummy_flags, capacity, dummy_grain, where, length = struct.unpack("<IIQQQQ", head[4:44])
    if not 1 <= version <= 3:
        raise _refused(image_id, "VMDK version %d is not supported" % version)
    # qemu reads the descriptor as a list of other files if the header's capacity is 0
    if capacity == 0 or where == 0 or length == 0 or length > 128:
        raise _refused(image_id, "the VMDK header has no usable descriptor")
    text = read_at(where * 512, length * 512).split(b"\0", 1)[0].decode("latin-1")
    create_types = re.findall(r"^\s*createType\s*=\s*\"?([^\"\r\n]*)\"?", text, re.MULTILINE | re.IGNORECASE)
    _check_vmdk_create_type(create_types[0] if len(create_types) == 1 else None, image_id, types)
    extents = re.findall(r"^\s*(?:RW|RDONLY|NOACCESS)\s+\d+\s+(\S+)", text, re.MULTILINE | re.IGNORECASE)
    if [kind.upper() for kind in extents] != ["SPARSE"]:
        raise _refused(
            image_id, "the VMDK extents are not a single SPARSE extent in the file itself (%s)" % ", ".join(extents)
        )


def _check_vmdk_create_type(create_type: str | None, image_id: str, types: t.Sequence[str]) -> None:
    if create_type not in types:
        raise _refused(
            image_id,
            "Invalid VMDK create-type specified: %s" % (create_type or "none"),
            "Use another image; bootflow_vmdk_allowed_types is %s." % (", ".join(types) or "empty"),
        )


def check_info(
    info: t.Mapping[str, t.Any] | None, driver: str, image_id: str, vmdk_types: t.Sequence[str] = VMDK_CREATE_TYPES
) -> int:
    """Check the result of ``qemu-img info --output=json``. Returns the image's virtual size in bytes.

    :arg driver: the result of check_signature, with which qemu-img opened it.
    :raises ImageUnacceptable: not readable, another format, a backing or data file, a VMDK of several files, encrypted.
    """
    info = _mapping(info, image_id)
    if not info.get("format") or not isinstance(info.get("virtual-size"), int):
        raise _refused(image_id, "'qemu-img info' parsing failed.")
    fmt = str(info["format"])
    for key in ("backing-filename", "full-backing-filename"):
        if info.get(key):
            raise _refused(image_id, "fmt=%s backed by: %s" % (fmt, info[key]))
    if fmt != driver:
        raise _refused(image_id, "the format is %s, not %s" % (fmt, driver))
    if info.get("encrypted"):
        raise _refused(image_id, "the file is encrypted")
    data = _mapping(_mapping(info.get("format-specific"), image_id).get("data"), image_id)
    if fmt == "qcow2" and not data:  # a data file would be named there. source: Cinder's check_qcow2_image
        raise _refused(image_id, "Cannot determine format-specific information")
    if fmt == "vmdk":
        _check_vmdk_create_type(data.get("create-type"), image_id, vmdk_types)
    if fmt == "qcow2" and (data.get("data-file") or data.get("data-file-raw")):
        raise _refused(image_id, "the data is in another file (qcow2 data file)")
    if fmt == "qcow2" and data.get("corrupt"):
        raise _refused(image_id, "the file is marked corrupt")
    virtual_size = int(info["virtual-size"])
    if virtual_size <= 0:
        raise _refused(image_id, "the virtual size is %d" % virtual_size)
    return virtual_size


def _mapping(value: t.Any, image_id: str) -> t.Mapping[str, t.Any]:
    if value and not isinstance(value, t.Mapping):
        raise _refused(image_id, "'qemu-img info' parsing failed.")
    return value or {}


def check_fits_disk(virtual_size: int, disk_size: int) -> int:
    """The disk's size in bytes: ``disk_size``, or the image's own size if that is 0 (a flavor's root_gb 0).

    :arg virtual_size: bytes of the image.
    :raises FlavorDiskSmallerThanImage: the image does not fit.
    """
    if disk_size == 0:
        return virtual_size
    if virtual_size > disk_size:
        raise FlavorDiskSmallerThanImage(flavor_size=disk_size, image_size=virtual_size)
    return disk_size


def checksum_of(text: str | None, image_id: str) -> Checksum | None:
    """The checksum of an image; None for none.

    :raises ImageUnacceptable: it is not valid.
    """
    if not (text or "").strip():
        return None
    try:
        return parse_checksum(text or "")
    except InvalidInput as error:
        raise _refused(image_id, "checksum %r: %s" % (text, error.message), error.remedy or "") from None


#: (what compresses, magic): a file of these has to be unpacked to be an image.
COMPRESSIONS: tuple[tuple[str, bytes], ...] = (
    ("gzip", b"\x1f\x8b\x08"),
    ("xz", b"\xfd7zXZ\0"),
    ("bzip2", b"BZh"),
    ("zstd", b"\x28\xb5\x2f\xfd"),
)
#: (what a file is, offset, magic): files that are surely not the content of a disk.
_NO_DISKS: tuple[tuple[str, int, bytes], ...] = (
    ("a zip archive", 0, b"PK\x03\x04"),
    ("a zip archive", 0, b"PK\x05\x06"),
    ("a zip archive", 0, b"PK\x07\x08"),
    ("a 7z archive", 0, b"7z\xbc\xaf\x27\x1c"),
    ("a rar archive", 0, b"Rar!\x1a\x07"),
    ("a tar archive", 257, b"ustar"),
    ("a cpio archive", 0, b"070701"),
    ("a cpio archive", 0, b"070702"),
    ("a cpio archive", 0, b"070707"),
    ("a cabinet archive", 0, b"MSCF\0\0\0\0"),
    ("a WIM archive", 0, b"MSWIM\0\0\0"),
    ("a xar archive", 0, b"xar!"),
    ("a backup archive of Proxmox", 0, b"VMA\0"),
    ("a backup of partclone", 0, b"partclone-image"),
    ("a file compressed by lz4", 0, b"\x04\x22\x4d\x18"),
    ("a file compressed by lz4", 0, b"\x02\x21\x4c\x18"),  # its legacy format
    ("a file compressed by lzop", 0, b"\x89LZO\0\r\n\x1a\n"),
    ("a file compressed by lzip", 0, b"LZIP\x01"),
    ("a squashfs archive", 0, b"hsqs"),
    ("a squashfs archive", 0, b"sqsh"),
    ("a sparse image of Android", 0, b"\x3a\xff\x26\xed"),
    ("an rpm package", 0, b"\xed\xab\xee\xdb"),
    ("a Debian package", 0, b"!<arch>\n"),
    ("an ELF program", 0, b"\x7fELF"),
    ("a PDF document", 0, b"%PDF-"),
)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_TAG = re.compile(rb"<(\?xml|!--|[a-z_][a-z0-9_.:-]*(\s|/?>))")


def compression_of(head: bytes) -> str:
    """Return the program that compressed a file that begins like this; "" if it is not compressed."""
    return next((name for name, magic in COMPRESSIONS if head.startswith(magic)), "")


def no_disk(head: bytes) -> str:
    """Return the kind of a file that begins like this, if it is surely not the content of a disk; else "".

    :arg head: the first 4096 bytes.
    """
    known_kind = next((what for what, at, magic in _NO_DISKS if head[at : at + len(magic)] == magic), "")
    if known_kind:
        return known_kind
    compressed = compression_of(head) or _old_compression_of(head)
    if compressed:
        return "a file compressed by %s" % compressed
    begin = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:200].lower()
    if begin.startswith((b"<!doctype html", b"<html", b"<head")) or b"<html" in begin:
        return "an HTML page"
    if _TAG.match(begin) and b"\0" not in begin:
        return "an XML document"
    return "a text" if _is_text(head) else ""


def _old_compression_of(head: bytes) -> str:
    """lzma and compress have short magics: more of their headers is compared, or disks would be taken for them."""
    if len(head) >= 13 and head[:3] == b"\x5d\0\0" and (head[5:13] == b"\xff" * 8 or head[10:13] == bytes(3)):
        dictionary, content = struct.unpack("<IQ", head[1:13])
        return "lzma" if dictionary and content else ""
    if len(head) >= 3 and head[:2] == b"\x1f\x9d" and not head[2] & 0x60 and 9 <= head[2] & 0x1F <= 16:
        return "compress (.Z)"
    return ""


def _is_text(head: bytes) -> bool:
    if head.startswith(_UTF16):
        read = codecs.getincrementaldecoder("utf-16")("strict")
        with contextlib.suppress(UnicodeDecodeError):
            return all(sign.isprintable() or sign.isspace() for sign in read.decode(head))
        return False
    if not head or not all(byte in b"\t\n\r" or 32 <= byte < 127 or byte >= 128 for byte in head):
        return False
    if b"\n" in head:
        return True
    with contextlib.suppress(UnicodeDecodeError):  # else it is a disk that was filled with such bytes
        codecs.getincrementaldecoder("utf-8")("strict").decode(head)
        return True
    return False


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _refused(
    image_id: str, reason: str, remedy: str = "Use another image; the rejected one was not opened."
) -> ImageUnacceptable:
    return ImageUnacceptable(image_id=image_id, reason=reason, remedy=remedy)
