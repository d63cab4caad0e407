# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The operations rescue, unrescue and set_admin_password through their three phases: what is refused, journalled, and left where."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config_drive_rules import DATASOURCE
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.drive_files import unpack_files
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import images
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import ledger_images
from ansible_collections.bootflow.compute.tests.unit.worlds.stored_images import SHA, STORES, delete_image, store_image
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, World, request

from .test_instance_operation import Fleet, vm_states

NAMES = ("web-1", "web-2")
SECRET = "s3cret-s3cret"
CIRROS = {"name": "cirros", "id": IMAGE.id, "checksum": "0" * 64, "disk_format": "qcow2", "url": IMAGE.url}


class Rescues(Fleet):
    """Its hosts know rescues and passwords too."""

    def __init__(self, world: World):
        super().__init__(world)
        self.given: list[tuple[str, dict[str, t.Any]]] = []
        self.bad: dict[str, errors.BootflowError] = {}  # module -> what it says of web-2
        self.kept_off = False
        self.uuids = {r.display_name: r.uuid for r in world.rows(tables.instances)}

    def variables(self, **found: t.Any) -> None:
        for each in self.hostvars.values():
            each.update({"bootflow_%s" % name: value for name, value in found.items()})

    def answer(self, host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.given.append((name, dict(arguments)))
        if name in ("domain_rescue", "domain_password", "instance_disks", "config_drive"):
            items = next(arguments[n] for n in ("domains", "drives", "instances") if arguments.get(n))
            outcomes: dict[str, t.Any] = {}
            for item in items:
                outcome: dict[str, t.Any] = {"changed": True, "error": None}
                if name.startswith("domain"):
                    outcome["power_state"] = states.RUNNING
                if name in self.bad and item["uuid"] == self.uuids["web-2"]:
                    outcome = {"changed": True, "error": self.bad[name].as_dict()}
                    if self.kept_off:
                        outcome["power_state"] = states.SHUTDOWN
                outcomes[item["uuid"]] = outcome
            return {"outcomes": outcomes}
        return super().answer(host, name, arguments)

    def journal(self, name: str) -> list[tuple[str, str | None]]:
        """Its actions, the last first."""
        table = tables.instance_actions
        found = self.world.rows(table, table.c.instance_uuid == self.uuids[name])
        return [(a.action, a.message) for a in sorted(found, key=lambda a: -a.id)]


@pytest.fixture
def rescues(fleet: Fleet) -> Rescues:
    found = Rescues(fleet.world)
    found.variables(images=[CIRROS])
    return found


@pytest.fixture(name="fleet")
def fleet_fixture(world: World) -> Fleet:
    """web-1 and web-2 with config drives and agents."""
    agent = {**IMAGE.__dict__, "properties": {"hw_qemu_guest_agent": "yes", "os_admin_user": "debian"}}
    world.report("h1", memory=2)
    world.report("h2", memory=2)
    world.accept(request("web", 2, config_drive=True, image=type(IMAGE)(**agent)))
    for host in sorted({p.host for p in world.schedule().placed.values()}):
        world.build(host)
    return Fleet(world)


def set_vm_state(world: World, vm_state: str) -> None:
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=vm_state))


def test_rescue_and_back(rescues: Rescues, tmp_path: pathlib.Path) -> None:
    rescues.variables(admin_password_dir=str(tmp_path / "p"))
    done = rescues.play("rescue", names=NAMES)
    assert done["changed"] and vm_states(rescues.world) == dict.fromkeys(NAMES, (states.RESCUED, None))
    left = {p.name: p.read_text().strip() for p in (tmp_path / "p").iterdir()}
    assert set(left) == {uuid + ".rescue" for uuid in rescues.uuids.values()} and len(set(left.values())) == 2
    assert not any(password in json.dumps(done) for password in left.values())
    assert not rescues.play("rescue", names=NAMES)["changed"] and rescues.shown[-1].count("nothing to do") == 2
    assert rescues.play("unrescue", names=NAMES)["changed"]
    assert vm_states(rescues.world) == dict.fromkeys(NAMES, (states.ACTIVE, None))
    assert [action for action, _message in rescues.journal("web-1")][:2] == ["unrescue", "rescue"]


def test_a_host_filters_before_it_starts_a_rescue_and_its_guest_again(rescues: Rescues) -> None:
    rescues.variables(firewall_driver="nftables")
    for playbook in ("rescue", "unrescue"):
        rescues.given.clear()
        assert rescues.play(playbook, names=NAMES)["changed"]
        asked = [name for name, _arguments in rescues.given]
        starts = [place for place, name in enumerate(asked) if name == "domain_rescue"]
        assert starts and all(asked[place - 1] == "port_filters" for place in starts), asked


def test_a_rescued_instance_is_not_rescued_with_another_image(rescues: Rescues) -> None:
    """As in Nova. The same image again has nothing to do, so that what failed for some can be run again."""
    helper = {**CIRROS, "name": "helper", "id": "5f0f3b52-7c3b-4d4b-9a0e-3d2a6d1a4c11", "url": "http://images/helper"}
    rescues.variables(images=[CIRROS, helper], rescue_image_ref="helper")
    rescues.bad["instance_disks"] = errors.RemoteError(reason="no")
    assert rescues.play("rescue", names=NAMES)["error_code"] == "OperationFailed"
    rescues.bad.clear()
    assert rescues.play("rescue", names=NAMES)["changed"]
    assert vm_states(rescues.world) == dict.fromkeys(NAMES, (states.RESCUED, None))
    for again in ("helper", helper["id"], None):
        rescues.variables(rescue_image_ref=again)
        assert not rescues.play("rescue", names=NAMES)["changed"]
    rescues.variables(rescue_image_ref="cirros")
    before = rescues.world.everything()
    with pytest.raises(errors.InstanceInvalidState, match="Cannot 'rescue' instance .* in vm_state rescued") as caught:
        rescues.play("rescue", names=NAMES)
    assert "Unrescue the instance first" in caught.value.remedy and rescues.world.everything() == before
    assert rescues.play("unrescue", names=NAMES)["changed"]
    assert rescues.play("rescue", names=NAMES)["changed"]
    rescues.variables(rescue_image_ref="helper")
    with pytest.raises(errors.InstanceInvalidState):
        rescues.play("rescue", names=NAMES)


def test_a_rescue_takes_what_its_image_reads(rescues: Rescues) -> None:
    helper = {
        **CIRROS,
        "name": "helper",
        "id": "5f0f3b52-7c3b-4d4b-9a0e-3d2a6d1a4c11",
        "properties": {DATASOURCE: "NoCloud"},
    }
    rescues.variables(images=[CIRROS, helper], rescue_image_ref="helper")
    assert rescues.play("rescue", names=NAMES)["changed"]
    drives = [d for name, given in rescues.given if name == "config_drive" for d in given["drives"]]
    assert len(drives) == 2 and {d["label"] for d in drives} == {"cidata"}
    assert all("meta-data" in unpack_files(d["files"]) for d in drives)


def test_an_unknown_image_touches_neither_ledger_nor_hosts(rescues: Rescues) -> None:
    before = rescues.world.everything()
    rescues.variables(rescue_image_ref="nothing")
    with pytest.raises(errors.ImageNotFound):
        rescues.play("rescue", names=NAMES)
    assert rescues.given == [] and rescues.world.everything() == before


def test_a_rescue_by_an_image_of_the_ledger(rescues: Rescues) -> None:
    image_id = store_image(rescues.world)
    rescues.variables(image_stores=STORES)
    for word in ("stored", image_id):
        rescues.variables(rescue_image_ref=word)
        rescues.given.clear()
        assert rescues.play("rescue", names=NAMES)["changed"]
        sent = [i for name, arguments in rescues.given if name == "instance_disks" for i in arguments["images"]]
        assert {(i["id"], i["url"], i["checksum"]) for i in sent} == {(image_id, "file:///net/images/" + image_id, SHA)}
        assert rescues.play("unrescue", names=NAMES)["changed"]
    rescues.variables(image_stores=None, rescue_image_ref="stored")
    with pytest.raises(errors.ImageNotFound):
        rescues.play("rescue", names=NAMES)


def test_an_image_that_an_instance_is_rescued_with_is_kept_until_the_rescue_has_ended(rescues: Rescues) -> None:
    image_id = store_image(rescues.world)
    rescues.variables(image_stores=STORES, rescue_image_ref="stored")
    begun = rescues.task("localhost", "rescue", "begin", names=["web-1"])
    with pytest.raises(errors.InvalidRequest) as caught:
        delete_image(rescues.world)
    (refusal,) = caught.value.errors
    assert refusal["code"] == "ImageInUse" and "instance web-1 is being rescued with it" in refusal["message"]
    for host in begun["compute"]:
        rescues.task(host, "rescue", "work")
    assert rescues.task("localhost", "rescue", "finish")["changed"]
    delete_image(rescues.world)
    rescues.variables(rescue_image_ref=image_id)
    with pytest.raises(errors.ImageNotFound):
        rescues.play("rescue", names=["web-2"])


def test_an_image_that_is_deleted_while_a_rescue_is_checked(rescues: Rescues, monkeypatch: pytest.MonkeyPatch) -> None:
    """On PostgreSQL another transaction may delete it after it was looked up."""
    image_id = store_image(rescues.world)
    rescues.variables(image_stores=STORES, rescue_image_ref="stored")
    images_of = ledger_images.images_of

    def looked_up(action: t.Any, tx: t.Any) -> t.Any:
        found = images_of(action, tx)
        images.apply(tx, image_id, life.DELETE)
        return found

    monkeypatch.setattr(ledger_images, "images_of", looked_up)
    with pytest.raises(errors.ImageNotActive):
        rescues.play("rescue", names=NAMES)
    assert set(vm_states(rescues.world).values()) == {(states.ACTIVE, None)}


def test_one_that_fails_is_what_it_was(rescues: Rescues) -> None:
    rescues.bad["instance_disks"] = errors.FlavorDiskSmallerThanImage(flavor_size=1, image_size=2)
    done = rescues.play("rescue", names=NAMES)
    assert done["error_code"] == "OperationFailed"
    assert vm_states(rescues.world) == {"web-1": (states.RESCUED, None), "web-2": (states.ACTIVE, None)}
    (item,) = done["failed_items"]
    assert "bootflow_rescue_image_ref" in item["error"]["remedy"]


@pytest.mark.parametrize(("off", "vm_state"), [(True, states.ERROR), (False, states.RESCUED)])
def test_an_end_that_fails(rescues: Rescues, off: bool, vm_state: str) -> None:
    """In ERROR where the guest's own definition is back, and the guest did not start; else it is rescued, and the same again ends it."""
    set_vm_state(rescues.world, states.RESCUED)
    rescues.bad["domain_rescue"], rescues.kept_off = errors.LibvirtError(reason="no"), off
    assert rescues.play("unrescue", names=NAMES)["error_code"] == "OperationFailed"
    assert vm_states(rescues.world) == {"web-1": (states.ACTIVE, None), "web-2": (vm_state, None)}


# --- passwords ----------------------------------------------------------------------------------------------------------


def test_a_given_password_goes_to_the_agents_and_nowhere_else(rescues: Rescues) -> None:
    rescues.variables(admin_password=SECRET)
    done = rescues.play("set_admin_password", names=NAMES)
    asked = [d for name, arguments in rescues.given if name == "domain_password" for d in arguments["domains"]]
    assert [(d["user"], d["password"]) for d in asked] == [("debian", SECRET)] * 2
    assert done["changed"] and vm_states(rescues.world) == dict.fromkeys(NAMES, (states.ACTIVE, None))
    assert rescues.journal("web-1")[0] == ("changePassword", None)
    everything = json.dumps([done, rescues.shown, rescues.very_verbose]) + str(rescues.world.everything())
    assert SECRET not in everything


def test_generated_passwords_are_left_in_the_folder(rescues: Rescues, tmp_path: pathlib.Path) -> None:
    rescues.variables(admin_password_dir=str(tmp_path / "p"))
    rescues.bad["domain_password"] = errors.GuestAgentUnresponsive()
    done = rescues.play("set_admin_password", names=NAMES)
    (item,) = done["failed_items"]
    assert (item["name"], item["error"]["status"]) == ("web-2", 501)
    (left,) = (tmp_path / "p").iterdir()
    asked = {d["uuid"]: d["password"] for n, a in rescues.given if n == "domain_password" for d in a["domains"]}
    assert left.name == rescues.uuids["web-1"] and left.read_text().strip() == asked[left.name]
    assert left.stat().st_mode & 0o777 == 0o600


def test_a_password_that_nobody_would_know(rescues: Rescues) -> None:
    with pytest.raises(errors.InvalidInput, match="would be lost"):
        rescues.play("set_admin_password", names=NAMES)
    assert rescues.given == []


def test_an_image_without_an_agent(world: World, rescues: Rescues) -> None:
    uuid = world.boot("plain")
    rescues.variables(admin_password=SECRET)
    before = world.everything()
    with pytest.raises(errors.QemuGuestAgentNotEnabled, match="plain") as raised:
        rescues.play("set_admin_password", names=["web-1", "plain"])
    assert raised.value.status == 409 and rescues.given == [] and world.everything() == before, uuid


def test_check_mode_leaves_no_file(rescues: Rescues, tmp_path: pathlib.Path) -> None:
    rescues.variables(admin_password_dir=str(tmp_path / "p"))
    rescues.check_mode = True
    before = rescues.world.everything()
    assert rescues.play("set_admin_password", names=NAMES)["instances"]
    assert rescues.world.everything() == before and not (tmp_path / "p").exists()


@pytest.mark.parametrize("operation", ["rescue", "set_admin_password"])
def test_a_folder_that_cannot_be_made_is_found_out_first(
    rescues: Rescues, tmp_path: pathlib.Path, operation: str
) -> None:
    (tmp_path / "file").write_text("")
    rescues.variables(admin_password_dir=str(tmp_path / "file" / "p"))
    before = rescues.world.everything()
    with pytest.raises(errors.InvalidInput, match="cannot be written"):
        rescues.play(operation, names=NAMES)
    assert rescues.given == [] and rescues.world.everything() == before
