# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drivers that filter the ports of a host, and what a host reports of it among its stats."""

from __future__ import annotations

#: Drivers of the filters of ports; noop is Neutron's name.
NOOP, NFTABLES = DRIVERS = ("noop", "nftables")

FIREWALL_DRIVER = "firewall_driver"  # the driver of a host that filters; a host with noop reports none
NOT_FILTERING = "not_filtering"  # why a host that is to filter cannot
