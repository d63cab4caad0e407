#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: security_group_rule_create
short_description: Add rules to security groups
version_added: "0.9.0"
description:
  - Adds rules to security groups, all or none. A rule that is there word for word stays; one that means the same is refused (C(SecurityGroupRuleExists)).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  security_group_rules:
    description:
      - List of C(security_group) (name or id), C(direction) (C(ingress), C(egress)), C(ethertype) (C(IPv4) by default, C(IPv6)), C(protocol)
        (C(tcp), C(udp), C(sctp), C(icmp), C(icmpv6) or a number; all by default), C(port_range_min) and C(port_range_max) (of ICMP type and code),
        C(remote_ip_prefix) or C(remote_group) (everybody by default), and C(description).
      - C(remote_group_id) is Neutron's word for C(remote_group).
      - Read from the variable C(bootflow_security_group_rules).
    type: list
    elements: raw
    required: true
  project:
    description:
      - Project of the security groups.
      - Read from the variable C(bootflow_project), else V(default).
    type: str
  quotas:
    description:
      - Limits of projects; C(security_groups) and C(security_group_rules) count here.
      - Read from the variable C(bootflow_quotas).
    type: dict
  print_table:
    description: Print the result, or in check mode what would be done. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Allow HTTP from everywhere
  bootflow.compute.security_group_rule_create:
    security_group_rules:
      - security_group: web
        direction: ingress
        protocol: tcp
        port_range_min: 80
        port_range_max: 80
"""

RETURN = r"""
---
created:
  description: Ids of new rules.
  type: list
  elements: str
  returned: success
unchanged:
  description: Ids of rules that are as requested.
  type: list
  elements: str
  returned: success
security_group_rules:
  description: The requested rules. In check mode C(id) of new ones is null.
  type: list
  elements: dict
  returned: success
hosts:
  description: Compute hosts whose packet filters follow the change.
  type: list
  elements: str
  returned: success
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
"""
