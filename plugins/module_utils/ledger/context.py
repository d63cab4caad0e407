# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who acts, when, and with which settings: handed to every step of the flow instead of globals.

Every action has actor, project and request id, as in Nova.
"""

from __future__ import annotations

import random
import time
import typing as t
import uuid
from dataclasses import dataclass, field

from .compute.instances import NOTIFY_NOTHING
from .compute.runs import LEASE_SECONDS, RunIdentity


@dataclass
class Context:
    run: RunIdentity
    request_id: str
    notify_on_state_change: str = NOTIFY_NOTHING
    count_failed_builds: bool = True  # consecutive_build_service_disable_threshold is not 0
    lease_seconds: float = LEASE_SECONDS  # how long what this run holds outlives it
    rng: random.Random = field(default_factory=random.SystemRandom)
    clock: t.Callable[[], float] = time.time

    @property
    def now(self) -> float:
        return self.clock()

    @property
    def actor(self) -> str:
        return self.run.actor

    def new_id(self) -> str:
        """The UUID of a new row."""
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
