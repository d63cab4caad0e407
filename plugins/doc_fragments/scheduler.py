# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  max_attempts:
    description: How many hosts a build may be tried on. Read from the variable C(bootflow_max_attempts), else 3.
    type: int
  service_down_time:
    description: A host that did not report for this many seconds is down. Read from the variable C(bootflow_service_down_time), else 900.
    type: int
  enabled_filters:
    description: Names of the filters, in order. Read from the variable C(bootflow_enabled_filters).
    type: list
    elements: str
  weighers:
    description: Names of the weighers. Read from the variable C(bootflow_weighers).
    type: list
    elements: str
  weight_multipliers:
    description: Weigher name to multiplier, where it is not the default. Read from the variable C(bootflow_weight_multipliers).
    type: dict
  host_subset_size:
    description: A host is drawn from this many of the best. Read from the variable C(bootflow_host_subset_size), else 1.
    type: int
  filter_dirs:
    description: Folders with filters of your own (C(*.py)). Read from the variable C(bootflow_filter_dirs), else C(bootflow_filters) beside the inventory.
    type: list
    elements: path
  aggregates:
    description: Host aggregates, sets of hosts with metadata. Read from the variable C(bootflow_aggregates).
    type: raw
  max_io_ops_per_host:
    description: A host with as many builds and moves at once takes no more (IoOpsFilter). Read from the variable C(bootflow_max_io_ops_per_host), else 8.
    type: int
  max_instances_per_host:
    description: A host with as many instances takes no more (NumInstancesFilter). Read from the variable C(bootflow_max_instances_per_host), else 50.
    type: int
  isolated_hosts:
    description: Hosts and groups for the isolated images alone (IsolatedHostsFilter). Read from the variable C(bootflow_isolated_hosts).
    type: list
    elements: str
  isolated_images:
    description: Names or ids of images that only go to isolated hosts. Read from the variable C(bootflow_isolated_images).
    type: list
    elements: str
  restrict_isolated_hosts_to_isolated_images:
    description:
      - Whether isolated hosts take isolated images only.
      - Read from the variable C(bootflow_restrict_isolated_hosts_to_isolated_images), else true.
    type: bool
  aggregate_image_properties_isolation_namespace:
    description:
      - Image properties that begin with this are held against aggregates (AggregateImagePropertiesIsolation); empty is all.
      - Read from the variable C(bootflow_aggregate_image_properties_isolation_namespace).
    type: str
  aggregate_image_properties_isolation_separator:
    description:
      - What stands between that namespace and the rest of the name.
      - Read from the variable C(bootflow_aggregate_image_properties_isolation_separator), else a dot.
    type: str
  metrics_weight_setting:
    description: Metric name to ratio, for MetricsWeigher and MetricsFilter. Read from the variable C(bootflow_metrics_weight_setting).
    type: dict
  metrics_required:
    description: Whether a host that lacks such a metric is an error for MetricsWeigher. Read from the variable C(bootflow_metrics_required), else true.
    type: bool
  metrics_weight_of_unavailable:
    description: The weight of a host that lacks one, where none is required. Read from the variable C(bootflow_metrics_weight_of_unavailable), else -10000.
    type: float
  max_facts_age:
    description: FactsAgeFilter turns down hosts whose facts are older than this many seconds. Read from the variable C(bootflow_max_facts_age).
    type: int
  lease_seconds:
    description: How long the claims of a run outlive it when it dies. Read from the variable C(bootflow_lease_seconds), else 600.
    type: int
  consecutive_build_service_disable_threshold:
    description:
      - Failed builds are counted for BuildFailureWeigher unless this is 0 (Nova's name and default).
      - Read from the variable C(bootflow_consecutive_build_service_disable_threshold), else 10.
    type: int
"""
