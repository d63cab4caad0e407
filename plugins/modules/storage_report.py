#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: storage_report
short_description: Record the capacity of a storage host in the ledger
version_added: "0.9.0"
description:
  - >-
    Collects the capacity of the backends with M(bootflow.compute.storage_backend_info) and records it with the time
    of the host's own clock at which it was read. An older report never overwrites a later one.
  - >-
    A host that does not answer, or a backend that is not ready, is marked; the scheduler skips it, and the play
    continues.
  - >-
    The backends come from the host variable C(bootflow_storage_backends).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
"""

EXAMPLES = r"""
---
- name: Report
  bootflow.compute.storage_report:
"""

RETURN = r"""
---
reported:
  description: Whether the host answered.
  type: bool
  returned: success
backends:
  description: The backends with C(name), C(pool_host), C(configuration), C(capacity) and C(error).
  type: list
  elements: dict
  returned: when it answered
error:
  description: Why it did not answer.
  type: dict
  returned: when it did not
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
"""
