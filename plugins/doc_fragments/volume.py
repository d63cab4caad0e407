# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  volume_types:
    description:
      - The volume types that requests may name, with C(name), C(extra_specs), C(description), C(is_public), C(projects), C(id).
      - Read from the variable C(bootflow_volume_types).
    type: raw
  default_volume_type:
    description: The volume type of entries that name none. Read from the variable C(bootflow_default_volume_type).
    type: str
  images:
    description: The images that requests may name. Read from the variable C(bootflow_images).
    type: raw
  quotas:
    description:
      - The limits of a project, C(volumes), C(snapshots) (10 each), C(gigabytes) (1000), C(per_volume_gigabytes) and those of a type
        such as C(gigabytes_fast) (unlimited); V(-1) is unlimited.
      - Read from the variable C(bootflow_quotas).
    type: dict
  project:
    description: The project of the volumes. Read from the variable C(bootflow_project), else V(default).
    type: str
  storage_availability_zone:
    description: The zone of volumes that name none. Read from the variable C(bootflow_storage_availability_zone), else V(nova).
    type: str
  allow_availability_zone_fallback:
    description:
      - Whether a volume for a zone that no backend is in goes to O(storage_availability_zone).
      - Read from the variable C(bootflow_allow_availability_zone_fallback), else false.
    type: bool
  no_snapshot_gb_quota:
    description: Whether snapshots count as no gigabytes of the quota. Read from the variable C(bootflow_no_snapshot_gb_quota), else false.
    type: bool
  volume_max_attempts:
    description: How many backends a volume may be tried on, 1 to 3. Read from the variable C(bootflow_volume_max_attempts), else 3.
    type: int
"""
