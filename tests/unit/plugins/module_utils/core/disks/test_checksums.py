# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checksums as users write them, and files with checksums as distributions publish them."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks import checksums
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput

A, B, C = "a" * 64, "b" * 128, "c" * 96
NAME = "debian-13-genericcloud-amd64.qcow2"


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        (A.upper(), A),
        ("sha256:" + A, A),
        ("SHA512:" + B, "sha512:" + B),
        ("sha384: " + C, "sha384:" + C),
        ("sha512:https://example.org/SHA512SUMS", "sha512:https://example.org/SHA512SUMS"),
        ("https://example.org/a:b/SHA256SUMS", "sha256:https://example.org/a:b/SHA256SUMS"),
        ("sha256:file:///srv/images/SUMS", "sha256:file:///srv/images/SUMS"),
    ],
)
def test_a_checksum_is_a_digest_or_an_address(text, stored):
    found = checksums.parse_checksum(text)
    assert str(found) == stored and checksums.parse_checksum(stored) == found


@pytest.mark.parametrize(
    "text",
    [
        "md5:" + "a" * 32,
        "sha1:" + "a" * 40,
        "sha512:" + A,
        "sha256:" + B,
        "x",
        "sha256:ftp://x/y",
        "sha256:https://x/a b",
    ],
)
def test_what_is_no_checksum_is_refused(text):
    with pytest.raises(InvalidInput):
        checksums.parse_checksum(text)


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [
        ("%s  other\n%s  %s\n" % ("f" * 128, B, NAME), "sha512"),
        ("%s *%s\n" % (A, NAME), "sha256"),
        ("%s  ./images/%s\n" % (A.upper(), NAME), "sha256"),
        (
            "-----BEGIN PGP SIGNED MESSAGE-----\n# %s: 344 bytes\nSHA256 (%s) = %s\nSHA256 (x) = %s\n"
            % (NAME, NAME, A, "e" * 64),
            "sha256",
        ),
        (B + "\n", "sha512"),
    ],
)
def test_files_with_checksums_are_read_as_they_are_published(text, algorithm):
    wanted = checksums.Checksum(algorithm, address="https://example.org/sums")
    assert checksums.digest_in(text, wanted, NAME) == {"sha256": A, "sha512": B}[algorithm]
    assert checksums.digest_in(text, wanted, "another") in ("", B)


def test_a_digest_of_another_length_or_name_is_not_taken():
    wanted = checksums.Checksum("sha512", address="https://example.org/sums")
    assert checksums.digest_in("%s  %s\n" % (A, NAME), wanted, NAME) == ""
    assert checksums.digest_in("%s  not-%s\n" % (B, NAME), wanted, NAME) == ""
    assert checksums.digest_in("%s\n%s\n" % (B, "f" * 128), wanted, NAME) == ""
    assert checksums.digest_in("<html>404</html>", wanted, NAME) == ""


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("https://example.org/a/b.qcow2?token=x/y", "b.qcow2"),
        ("/srv/b.qcow2", "b.qcow2"),
        ("file:///srv/b%20c.img", "b c.img"),
    ],
)
def test_the_name_of_a_file_is_the_end_of_its_path(source, name):
    assert checksums.file_name(source) == name
