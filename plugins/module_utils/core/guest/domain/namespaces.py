# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The namespaces of a domain's metadata."""

from __future__ import annotations

NOVA_NAMESPACE = "http://openstack.org/xmlns/libvirt/nova/1.1"
OWNER_NAMESPACE = "urn:bootflow:compute:owner:1"
