# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # What most modules support, and what all return on failure: RETURN has no fragments. A module documents the attributes in which it
    # differs, and has details of.
    DOCUMENTATION = r"""
options: {}
notes:
  - >-
    On failure it also returns C(error_code) (the stable code of the error), C(status) (the HTTP status that Nova or Cinder maps the
    error to), C(remedy) (how to resolve it) and C(retryable) (whether the same request may succeed unchanged, on another host or
    backend, or at another time). C(docs/errors.md) lists the codes.
attributes:
  action_group:
    description: Takes C(module_defaults) of the group C(group/bootflow.compute.bootflow).
    support: full
    membership: [bootflow.compute.bootflow]
  check_mode:
    description: Can run in C(check_mode) and return the changed status without changing anything.
    support: full
  diff_mode:
    description: Returns details on what has changed, or in check mode would change, when run with C(--diff).
    support: none
  idempotent:
    description: When run twice in a row with the same arguments, the second run changes nothing and says so.
    support: full
  platform:
    description: Operating systems that it can work on.
    support: full
    platforms: posix
"""
