# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The code that a boot enters: of volumes none, where no disk is a volume."""

from __future__ import annotations

import subprocess
import sys
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import failure
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, from_image, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.world import STAGES, World, request

OURS = "/plugins/"
VOLUMES = ("volume", "attach", "/storage/", "iscsi")


def files_entered(function: t.Callable[[], t.Any]) -> set[str]:
    """The files below plugins/ of which a function is called meanwhile."""
    found: set[str] = set()

    def note(frame: t.Any, event: str, _argument: t.Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return {f.split(OURS)[-1] for f in found if OURS in f and "/tests/" not in f}


def of_volumes(files: set[str]) -> set[str]:
    return {f for f in files if any(word in f for word in VOLUMES)}


def stages(world: World, host: str) -> None:
    """As the stages' actions run them."""
    for stage in STAGES:
        found, failed = world.begin(stage, host)
        with world.ledger.write() as tx:
            assert failure.fail_builds(tx.for_run(world.context()), host, stage.name, failed) == {}
    world.spawned(host, [b.uuid for b in found])


def test_a_boot_without_volumes_enters_no_code_of_volumes(world: World) -> None:
    world.report("h1", memory=4)

    def boot() -> None:
        world.accept(request("web", 2), request("db"))
        assert len(world.schedule().placed) == 3
        stages(world, "h1")

    entered = files_entered(boot)
    assert "module_utils/flows/boot/builds.py" in entered and "module_utils/ledger/compute/claims.py" in entered
    assert of_volumes(entered) == set()


def test_nor_does_one_that_goes_on_after_a_dead_run(world: World) -> None:
    world.report("h1", memory=4)
    world.boot("web", until="networking", run="dead")
    world.boot("db", until="scheduled", run="dead")
    world.time += 10_000

    def boot() -> None:
        assert len(world.accept(request("web"), request("db")).resumed) == 2
        world.schedule()
        stages(world, "h1")

    assert of_volumes(files_entered(boot)) == set()
    assert {r.vm_state for r in world.rows(tables.instances)} == {"active"}


def test_a_boot_with_a_volume_does(bworld: BootWorld) -> None:
    """So the trace sees what it is to see."""
    bworld.report("h1", memory=4)
    entered = files_entered(lambda: bworld.accept(volume_request("web", from_image())))
    assert "module_utils/flows/boot/boot_volumes.py" in of_volumes(entered)


def test_it_loads_neither_the_making_of_volumes_nor_the_audit() -> None:
    package = "ansible_collections.bootflow.compute.plugins.module_utils.flows"
    modules = ("boot.accept", "boot.schedule", "boot.builds", "recovery.leases")
    code = "import sys, %s\nprint(*sys.modules)" % ", ".join("%s.%s" % (package, m) for m in modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {m for m in done.stdout.split() if m.startswith(package)}
    assert "%s.boot.failure" % package in loaded
    assert not loaded & {
        "%s.%s" % (package, m) for m in ("boot.boot_volumes", "recovery.audit", "recovery.storage_audit")
    }
