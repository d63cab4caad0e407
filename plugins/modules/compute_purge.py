#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: compute_purge
short_description: Purge a compute host of base images and managed networks that nothing uses
version_added: "0.9.0"
description:
  - >-
    Removes from the host, with M(bootflow.compute.compute_unused), base images that no disk uses, and libvirt networks that the collection
    defined and no domain uses. What instances of the ledger on this host need is kept as well.
  - >-
    A host that does not answer, or whose libvirt does not, is named in a warning, and the play continues.
  - >-
    A removal that fails does not stop the others. The task fails then, and its result has what was removed nevertheless.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
attributes:
  diff_mode: {support: full}
options:
  remove_unused_base_images:
    description: Remove base images. Read from the variable C(bootflow_remove_unused_base_images), else V(true).
    type: bool
  remove_unused_networks:
    description:
      - V(undeclared) removes networks that O(networks) does not have any more, V(all) also networks that it has, V(none) no networks.
      - Read from the variable C(bootflow_remove_unused_networks), else V(undeclared).
    type: str
    choices: [undeclared, all, none]
  remove_unused_original_minimum_age_seconds:
    description:
      - Seconds for which a base image or network must have been unused.
      - Read from the variable C(bootflow_remove_unused_original_minimum_age_seconds), else 86400.
    type: int
  networks:
    description: The networks that the inventory declares. Read from the variable C(bootflow_networks).
    type: raw
  print_table:
    description: Print what was, or in check mode would be, removed. Read from the variable C(bootflow_print_table), else V(true).
    type: bool
"""

EXAMPLES = r"""
---
- name: Remove base images that have been unused for a week
  bootflow.compute.compute_purge:
    remove_unused_original_minimum_age_seconds: 604800
"""

RETURN = r"""
---
answered:
  description: Whether the host answered.
  type: bool
  returned: always
error:
  description: Why it did not answer, with C(code), C(status), C(message), C(remedy) and C(retryable).
  type: dict
  returned: when it did not answer
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
images:
  description: Base images that were, or in check mode would be, removed, with C(path), C(size) (bytes) and C(age) (seconds).
  type: list
  elements: dict
  returned: when it answered
networks:
  description: Names of the libvirt networks that were, or in check mode would be, removed.
  type: list
  elements: str
  returned: when it answered
"""
