# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of the northbound database of OVN, as the controller reaches it."""

from __future__ import annotations

import re
import typing as t

from ..reading.setting import PATH, Kind, Setting, Table, Unfit
from .request import CATALOGUE

_ADDRESS = re.compile(r"(ssl|tcp):(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}|unix:/[^\s,]+")


def _addresses(value: t.Any) -> str:
    if not isinstance(value, (str, list, tuple)):
        raise Unfit
    texts = [str(item).strip() for item in (value.split(",") if isinstance(value, str) else value)]
    if not texts or not all(_ADDRESS.fullmatch(text) for text in texts):
        raise Unfit
    return ",".join(texts)


DATABASE = Kind("addresses such as ssl:192.0.2.1:6641, separated by commas", _addresses, "raw")

OVN = Table(
    (
        Setting(
            "ovn_northbound",
            DATABASE,
            help="Northbound database of OVN, for networks of `type: ovn`: `ssl:ADDRESS:PORT`, `tcp:ADDRESS:PORT` or `unix:/PATH`, several with commas where"
            " it is a cluster. The controller writes it with `ovn-nbctl` (Debian's ovn-common); see [ovn.md](ovn.md).",
        ),
        Setting("ovn_private_key", PATH, help="Private key of the controller for `ssl:`, a file of mode 0600."),
        Setting("ovn_certificate", PATH, help="Certificate of the controller for `ssl:`, a file."),
        Setting("ovn_ca_certificate", PATH, help="Certificate that verifies the database's for `ssl:`, a file."),
        Setting(
            "ovn_timeout",
            int,
            30,
            "Longest time of one call of `ovn-nbctl`: a database that is away is given up then.",
            least=1,
            most=3600,
            unit="seconds",
        ),
    )
)

#: The networks alone, for what writes them.
NETWORKS = Table((CATALOGUE.named("networks"),))
