# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""libvirt's own RelaxNG schema as a judge."""

from __future__ import annotations

import functools
import pathlib

from lxml import etree

SCHEMA = pathlib.Path("/usr/share/libvirt/schemas/domain.rng")


@functools.lru_cache(maxsize=None)
def _schema():
    return etree.RelaxNG(etree.parse(str(SCHEMA)))


def assert_valid(xml):
    """The XML is a domain for libvirt, by its own schemas (Debian: libvirt-common)."""
    document = etree.fromstring(xml.encode())
    schema = _schema()
    assert schema.validate(document), "\n".join(str(line) for line in schema.error_log) + "\n" + xml
