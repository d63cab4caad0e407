#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: metrics
short_description: Write metrics of the ledger for Prometheus
version_added: "0.9.0"
description:
  - Writes capacity and claims of compute hosts, instances, volumes, moves, actions and runs as text for Prometheus.
  - The file is for the textfile collector of the node exporter on the controller. It is replaced as a whole.
  - Nothing is asked of the hosts; the playbook C(heartbeat) lets them report.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.ledger_reader
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.run_limit
attributes:
  diff_mode: {support: full, details: The file before and after.}
options:
  path:
    description:
      - Absolute path of the file on the controller, with the ending C(.prom). Its folder must exist.
      - Read from the variable C(bootflow_metrics_file).
    type: path
    required: true
  service_down_time:
    description:
      - A host whose last report is older than this many seconds is down.
      - Read from the variable C(bootflow_service_down_time), else 900.
    type: int
"""

EXAMPLES = r"""
---
- name: Write metrics
  bootflow.compute.metrics:
    path: /var/lib/prometheus/node-exporter/bootflow.prom
"""

RETURN = r"""
---
path:
  description: The file.
  type: str
  returned: success
  sample: /var/lib/prometheus/node-exporter/bootflow.prom
"""
