# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hashes of passwords: those of the specification, and of ``openssl passwd -6`` around the lengths at which it wraps."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.password_hash import sha512_crypt

SALT = "0123456789abcdef"


@pytest.mark.parametrize(
    ("password", "salt", "digits"),
    [
        (
            "Hello world!",
            "saltstring",
            "svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
        ),
        ("x", SALT, "8YztVyzwDEH96nI5J4SMvvvaVH43cm6MjQyfl3gZsAa8rZMsHQVTiLQraFpug5a6xlaOJbzt.7jq8UBJs4F7M1"),
        ("x" * 12, SALT, "d/qHsbO3ajiCZMt2au/Vr5FBsUdLG57Usx9a/yiasg7HMVH7daKfhRBkmnHW2kVelM50eGxD5FtY3r7qq5kAA1"),
        ("x" * 63, SALT, "d93jJ/TiHggjf0uUF742LRYWO09EdhYCT8y6zdQuFl8Dc4d/GaJxI/l7mSclUiy.uFzTHGZXb02QsgDuDtZGy/"),
        ("x" * 64, SALT, "hmNE.PPROh2fRZoO4CdTMCwfayyElBe82a7IIN6INBHhK9cgTY7v75RHFxN7bRngOafwACIdMX/ZEBUOEQHVa1"),
        ("x" * 100, SALT, "hdKQR3U1ofzUBt70lpJrj9gRNuOHUPP5vMHbJtWeAVw9d3x7kUXPRZHmXi8rquaE8P8IDbMUrlAn6yB.w0e9w1"),
        (
            "p\u00e4:\u00df word",
            "abc",
            "4yBrhhCJQLw4otDyvyuOY9jvrimrKWZxbzCyvfZLys5wHmXKpr7Q.vnZ8un.9e4Ex3h2P6bjI78dokvjRHsfz/",
        ),
    ],
)
def test_hashes(password, salt, digits):
    assert sha512_crypt(password, salt) == "$6$%s$%s" % (salt, digits)
