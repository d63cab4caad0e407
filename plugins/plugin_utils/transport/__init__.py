# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Transport of code to hosts: modules as programs that Python runs at once, over connections that stay open.

The gain over Ansible's own way (AnsiballZ, one process for each task) is measured in ``benchmarks/``: ``scripts/bench boot`` and ``scripts/bench operations``.
``LedgerAction.sends_programs = False`` switches it off: Ansible sends the same modules then.
"""
