# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Libraries that may be absent, and what they find in the environment while they are loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import optional

# In a process of its own: numpy starts its threads when it is loaded first.
LOAD = """
import os
from ansible_collections.bootflow.compute.plugins.module_utils.core.optional import optional_import
assert optional_import("numpy").arange(2).sum() == 1
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.parametrize("wanted", [None, "2"])
def test_numpy_starts_no_threads_unless_the_user_wants_them(wanted: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment.update({"OPENBLAS_NUM_THREADS": wanted} if wanted else {}, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=True)
    threads, after = done.stdout.split()
    assert after == str(wanted) and (threads == "1" or wanted)


def test_a_library_that_is_not_there_is_a_false_stand_in() -> None:
    assert not optional.optional_import("no_such_library_of_anybody")
