# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import lzma
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks import image_checks

MIB = 1024**2
ANYTHING = b"\xeb\x63\x90anything\0" * 100


def check(data, claimed):
    def read_at(offset, length):
        return data[offset : offset + length]

    return image_checks.check_signature(read_at, len(data), claimed, "img")


def qcow2(version=3, backing=0, backing_length=0, crypt=0, features=0, extensions=b"", header_length=104):
    head = b"QFI\xfb" + struct.pack(">IQIIQIIQQIIQ", version, backing, backing_length, 16, MIB, crypt, 1, 0, 0, 0, 0, 0)
    head = head[:72]
    if version == 3:
        head += struct.pack(">QQQII", features, 0, 0, 4, header_length)
    return (head + extensions).ljust(4096, b"\0")


def vmdk(create_type="monolithicSparse", extent="SPARSE", capacity=2048, where=1, length=20, version=1, lines=()):
    text = '# Disk DescriptorFile\nversion=1\nCID=1\ncreateType="%s"\nRW 2048 %s "x.vmdk"\n%s' % (
        create_type,
        extent,
        "\n".join(lines),
    )
    head = b"KDMV" + struct.pack("<IIQQQQ", version, 3, capacity, 128, where, length)
    return head.ljust(512, b"\0") + text.encode().ljust(20 * 512, b"\0")


@pytest.mark.parametrize(
    ("data", "claimed", "driver"),
    [
        (ANYTHING, "raw", "raw"),
        (ANYTHING, "RAW", "raw"),
        (ANYTHING, "ami", "raw"),
        (b"\0" * 0x8001 + b"CD001" + b"\0" * 100, "iso", "raw"),
        (qcow2(), "qcow2", "qcow2"),
        (qcow2(version=2), "qcow2", "qcow2"),
        (qcow2(features=0b1), "qcow2", "qcow2"),
        (qcow2(extensions=struct.pack(">II", 0x6803F857, 8) + b"features"), "qcow2", "qcow2"),
        (vmdk(), "vmdk", "vmdk"),
        (vmdk("streamOptimized"), "vmdk", "vmdk"),
        (b"conectix" + b"\0" * 600, "vhd", "vpc"),
        (b"\0" * 600 + b"conectix" + b"\0" * 504, "vhd", "vpc"),
        (b"vhdxfile" + b"\0" * 600, "vhdx", "vhdx"),
        (b"\0" * 64 + b"\x7f\x10\xda\xbe" + b"\0" * 600, "vdi", "vdi"),
    ],
)
def test_accepted(data, claimed, driver):
    assert check(data, claimed) == driver


@pytest.mark.parametrize(
    ("data", "claimed", "words"),
    [
        (b"", "raw", "empty"),
        (ANYTHING, "qcow2", "the format is raw, the catalogue says qcow2"),
        (qcow2(), "raw", "the format is qcow2, the catalogue says raw"),
        (qcow2(), "iso", "the format is qcow2"),
        (b"LUKS\xba\xbe" + b"\0" * 600, "raw", "the format is luks"),
        (b"QED\0" + b"\0" * 600, "raw", "the format is qed"),
        (b"\0" * 512 + b"koly" + b"\0" * 508, "raw", "the format is dmg"),
        (b"COWD" + b"\0" * 600, "vmdk", "descriptor"),
        (qcow2()[:64] + b"\x7f\x10\xda\xbe" + qcow2()[68:], "qcow2", "several formats (qcow2, vdi)"),
        (qcow2(backing=512, backing_length=11)[:512] + b"/etc/passwd", "qcow2", "fmt=qcow2 backed by: /etc/passwd"),
        (qcow2(backing=512, backing_length=0), "qcow2", "backed by"),
        (qcow2(version=2, backing=512, backing_length=3), "raw", "backed by"),
        (qcow2(features=0b100), "qcow2", "data file"),
        (qcow2(features=0b100), "raw", "data file"),
        (qcow2(extensions=struct.pack(">II", 0x44415441, 4) + b"/x\0\0\0\0\0\0"), "qcow2", "data file"),
        (
            qcow2(extensions=struct.pack(">II", 0x6803F857, 3) + b"x" * 8 + struct.pack(">II", 0x44415441, 4)),
            "qcow2",
            "data file",
        ),
        (qcow2(features=0b10), "qcow2", "corrupt"),
        (qcow2(features=1 << 40), "qcow2", "bit 40"),
        (qcow2(crypt=2), "qcow2", "encrypted"),
        (qcow2(version=1), "qcow2", "version 1"),
        (qcow2()[:50], "qcow2", "cut off"),
        (qcow2()[:80], "qcow2", "cut off"),
        (vmdk("monolithicFlat"), "vmdk", "create-type specified: monolithicFlat"),
        (vmdk("twoGbMaxExtentSparse"), "vmdk", "create-type"),
        (vmdk(extent="FLAT"), "vmdk", "extents"),
        (vmdk(lines=['RW 2048 FLAT "/etc/passwd" 0']), "vmdk", "extents"),
        (vmdk(lines=['createType="monolithicFlat"']), "vmdk", "create-type"),
        (vmdk(capacity=0), "vmdk", "descriptor"),
        (vmdk(where=0), "vmdk", "descriptor"),
        (vmdk(length=10**6), "vmdk", "descriptor"),
        (vmdk(version=9), "vmdk", "version 9"),
        (b"# Disk DescriptorFile\nversion=1\n", "vmdk", "descriptor"),
        (b"# Disk DescriptorFile\nversion=1\n", "raw", "descriptor"),
        (b"#\n\n  # comment\nversion = 1\n", "raw", "descriptor"),
        (b"version=1\nRW 1 FLAT", "raw", "descriptor"),
    ],
)
def test_refused(data, claimed, words):
    with pytest.raises(errors.ImageUnacceptable) as caught:
        check(data, claimed)
    assert words in caught.value.message and not caught.value.retryable


@pytest.mark.parametrize("allowed", [("streamOptimized",), ("monolithicSparse",), ()])
@pytest.mark.parametrize("create_type", ["streamOptimized", "monolithicSparse"])
def test_types_of_vmdk_that_are_allowed(create_type, allowed):
    data = vmdk(create_type)
    info = {"format": "vmdk", "virtual-size": 5, "format-specific": {"data": {"create-type": create_type}}}

    def read_at(offset, length):
        return data[offset : offset + length]

    for asked in (
        lambda: image_checks.check_signature(read_at, len(data), "vmdk", "img", allowed),
        lambda: image_checks.check_info(info, "vmdk", "img", allowed),
    ):
        if create_type in allowed:
            assert asked() in ("vmdk", 5)
        else:
            with pytest.raises(errors.ImageUnacceptable, match="create-type specified: %s" % create_type) as caught:
                asked()
            assert "bootflow_vmdk_allowed_types is %s." % (", ".join(allowed) or "empty") in caught.value.remedy


#: (what a file is, how it begins), as real programs write it
NO_DISKS = [
    ("an XML document", b"<Error><Code>NoSuchKey</Code><Key>debian.raw</Key></Error>"),
    ("an XML document", b'<feed xmlns="http://www.w3.org/2005/Atom"/>'),
    ("an XML document", b"\xef\xbb\xbf<!-- nothing here -->"),
    ("an HTML page", b"<html>Not Found</html>"),
    ("a text", b"404 page not found"),
    ("a text", b'{"error":{"code":404,"message":"No such object"}}'),
    ("a text", "nicht gefunden: Schl\u00fcssel".encode()),
    ("a text", ("\u00fc" * 4000).encode()[:4095]),  # cut off within a letter
    ("a text", "Not found".encode("utf-16")),
    ("a text", b"\xfe\xff" + "Not found".encode("utf-16-be")),
    ("a file compressed by lz4", b"\x04\x22\x4d\x18\x64\x40\xa7" + bytes(50)),
    ("a file compressed by lz4", b"\x02\x21\x4c\x18" + bytes(50)),
    ("a file compressed by lzma", lzma.compress(bytes(MIB), lzma.FORMAT_ALONE)),
    ("a file compressed by lzma", b"\x5d" + struct.pack("<IQ", 1 << 23, 10**10) + bytes(50)),
    ("a file compressed by lzop", b"\x89LZO\0\r\n\x1a\n\x10\x40" + bytes(50)),
    ("a file compressed by lzip", b"LZIP\x01\x0c" + bytes(50)),
    ("a file compressed by compress (.Z)", b"\x1f\x9d\x90" + bytes(50)),
    ("a file compressed by zstd", b"\x28\xb5\x2f\xfd\x24" + bytes(50)),
    ("a zip archive", b"PK\x03\x04\x14" + bytes(50)),
    ("a zip archive", b"PK\x05\x06" + bytes(18)),
    ("a 7z archive", b"7z\xbc\xaf\x27\x1c\0\x04" + bytes(50)),
    ("a rar archive", b"Rar!\x1a\x07\0" + bytes(50)),
    ("a rar archive", b"Rar!\x1a\x07\x01\0" + bytes(50)),
    ("a tar archive", b"disk.raw".ljust(257, b"\0") + b"ustar  \0" + bytes(300)),
    ("a cpio archive", b"0707010000000100008180" + bytes(50)),
    ("a cpio archive", b"070707000001" + bytes(50)),
    ("a cabinet archive", b"MSCF" + bytes(50)),
    ("a WIM archive", b"MSWIM\0\0\0\xd0" + bytes(50)),
    ("a xar archive", b"xar!\0\x1c" + bytes(50)),
    ("a backup archive of Proxmox", b"VMA\0" + bytes(50)),
    ("a backup of partclone", b"partclone-image\x00" + bytes(50)),
    ("a squashfs archive", b"hsqs" + bytes(92)),
    ("a sparse image of Android", b"\x3a\xff\x26\xed\x01" + bytes(50)),
    ("an ELF program", b"\x7fELF\x02" + bytes(50)),
]


@pytest.mark.parametrize("claimed", ["raw", "iso", "qcow2"])
@pytest.mark.parametrize(("what", "data"), NO_DISKS)
def test_files_that_are_no_disks_are_refused_in_words(what, data, claimed):
    with pytest.raises(errors.ImageUnacceptable) as caught:
        check(data, claimed)
    assert "the file is %s, not an image" % what in caught.value.message


@pytest.mark.parametrize(
    "data",
    [
        bytes(8192),
        bytes(1024) + b"<Error>",
        b"\xeb\x63\x90" + bytes(440),  # a boot sector as GRUB writes it
        b"\xeb\x3c\x90mkfs.fat" + bytes(500),
        b"\xfa\xb8\0\x10\x8e\xd0" + bytes(500),
        b"\x45\x52\x08\0" + bytes(500),  # an isohybrid for a Mac
        b"\x33\xed\x90\x90" + bytes(500),  # isohybrid
        b"\xff" * 8192,  # a flash that was erased
        b"\x5d\0\0" + bytes(500),
        b"\x5d\0\0\x80\0" + b"\x12\x34\x56\x78\x9a\xbc\xde\xf0" + bytes(500),
        b"\x1f\x9d\x3c" + bytes(500),
        b"<e>\0" + bytes(500),
        b"\xff\xfe\0\0\0\x01" + bytes(500),
    ],
)
def test_disks_are_not_taken_for_other_files(data):
    assert check(data, "raw") == check(data, "iso") == "raw"


def test_a_script_is_no_descriptor():
    with pytest.raises(errors.ImageUnacceptable, match="a text, not an image"):
        check(b"#!/bin/sh\necho hello\n", "raw")


@given(st.binary(min_size=1, max_size=2000), st.sampled_from(sorted(image_checks.DRIVER_OF_DISK_FORMAT)))
def test_any_bytes_are_accepted_or_refused_in_words(data, claimed):
    try:
        assert check(data, claimed) == image_checks.driver_of(claimed)
    except errors.ImageUnacceptable:
        pass


@given(st.sampled_from([b"QFI\xfb", b"KDMV", b"QED\0"]), st.binary(max_size=300))
def test_no_header_however_spoilt_passes_as_raw(magic, rest):
    with pytest.raises(errors.ImageUnacceptable):
        check(magic + rest, "raw")


def test_unknown_format():
    with pytest.raises(errors.InvalidDiskFormat) as caught:
        image_checks.driver_of("floppy", "img")
    assert "qcow2" in caught.value.remedy


GOOD = {"format": "qcow2", "virtual-size": MIB, "format-specific": {"type": "qcow2", "data": {"compat": "1.1"}}}


def test_good_info():
    assert image_checks.check_info(GOOD, "qcow2", "img") == MIB


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (None, "'qemu-img info' parsing failed."),
        ({}, "'qemu-img info' parsing failed."),
        (dict(GOOD, **{"virtual-size": "1"}), "'qemu-img info' parsing failed."),
        (dict(GOOD, **{"virtual-size": 0}), "virtual size is 0"),
        (dict(GOOD, **{"backing-filename": "/etc/passwd"}), "fmt=qcow2 backed by: /etc/passwd"),
        (dict(GOOD, **{"full-backing-filename": "nbd://x"}), "fmt=qcow2 backed by: nbd://x"),
        (dict(GOOD, format="raw"), "the format is raw, not qcow2"),
        (dict(GOOD, encrypted=True), "encrypted"),
        (dict(GOOD, **{"format-specific": {"data": {"data-file": "/x"}}}), "data file"),
        (dict(GOOD, **{"format-specific": {"data": {"corrupt": True}}}), "corrupt"),
        (dict(GOOD, **{"format-specific": {"type": "qcow2"}}), "Cannot determine format-specific information"),
        (dict(GOOD, **{"format-specific": None}), "Cannot determine format-specific information"),
    ],
)
def test_bad_info(info, words):
    with pytest.raises(errors.ImageUnacceptable) as caught:
        image_checks.check_info(info, "qcow2", "img")
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("create_type", "good"), [("monolithicSparse", 1), ("streamOptimized", 1), ("monolithicFlat", 0), (None, 0)]
)
def test_vmdk_info(create_type, good):
    info = {"format": "vmdk", "virtual-size": 5, "format-specific": {"data": {"create-type": create_type}}}
    if good:
        assert image_checks.check_info(info, "vmdk", "img") == 5
    else:
        with pytest.raises(errors.ImageUnacceptable):
            image_checks.check_info(info, "vmdk", "img")


@pytest.mark.parametrize(("virtual", "disk", "result"), [(5, 0, 5), (5, 5, 5), (5, 6, 6), (6, 5, None)])
def test_fits_disk(virtual, disk, result):
    if result is None:
        with pytest.raises(errors.FlavorDiskSmallerThanImage) as caught:
            image_checks.check_fits_disk(virtual, disk)
        assert "Flavor disk is 5 bytes, image is 6 bytes." in caught.value.message and not caught.value.retryable
    else:
        assert image_checks.check_fits_disk(virtual, disk) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", "None"),
        ("sha256:" + "A" * 64, "a" * 64),
        ("b" * 64, "b" * 64),
        ("md5:x", None),
        ("sha512:" + "C" * 128, "sha512:" + "c" * 128),
        ("a" * 63, None),
        ("a" * 65, None),
    ],
)
def test_checksum(text, result):
    if result is None:
        with pytest.raises(errors.ImageUnacceptable):
            image_checks.checksum_of(text, "img")
    else:
        assert str(image_checks.checksum_of(text, "img")) == result
