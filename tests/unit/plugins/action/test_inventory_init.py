# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folder with which a person begins: Ansible reads it, the request fits its catalogue, and nothing is overwritten."""

from __future__ import annotations

import configparser
import pathlib
import typing as t

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager

from ansible_collections.bootflow.compute.plugins.action import inventory_init
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import parse_requests
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings import table
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.shipped_images import with_shipped
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])

ROOT = pathlib.Path(__file__).resolve().parents[4]
KEY = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== ann@"home" {{ no }}'
FILES = {
    "ansible.cfg",
    "hosts.yml",
    "group_vars/all/bootflow.yml",
    "group_vars/all/catalogue.yml",
    "guests.bootflow.yml",
    "web.yml",
    "site.yml",
}


@pytest.fixture
def begin(world: World, tmp_path: pathlib.Path) -> t.Callable[..., dict[str, t.Any]]:
    def run(check: bool = False, **variables: t.Any) -> dict[str, t.Any]:
        given = {"bootflow_init_dir": str(tmp_path / "new"), "bootflow_init_public_key": str(tmp_path / "key.pub")}
        given.update({"bootflow_init_" + name: value for name, value in variables.items()})
        ports = WorldPorts(world, "a")
        result = action_of(inventory_init, ports, given, check_mode=check).act()
        return {**t.cast("dict[str, t.Any]", result), "shown": "\n".join(ports.shown)}

    (tmp_path / "key.pub").write_text(KEY + "\n")
    return run


def loaded(folder: pathlib.Path) -> dict[str, t.Any]:
    return {name: yaml.safe_load((folder / name).read_text()) for name in FILES if name.endswith(".yml")}


def test_the_request_fits_the_catalogue(begin: t.Callable[..., t.Any], tmp_path: pathlib.Path) -> None:
    result = begin()
    folder = tmp_path / "new"
    assert result["changed"] and set(result["created"]) == FILES and result["kept"] == []
    assert {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} == FILES
    found = loaded(folder)
    variables = {**found["group_vars/all/bootflow.yml"], **found["group_vars/all/catalogue.yml"], **found["web.yml"]}
    assert table.unknown(variables) == {}
    catalogue = parse_catalogue(
        variables["bootflow_flavors"],
        with_shipped(variables["bootflow_images"]),
        variables["bootflow_networks"],
        variables["bootflow_keypairs"],
    )
    (request,) = parse_requests(variables["bootflow_instances"], catalogue)
    assert request.key_data == KEY and request.networks
    assert (
        variables["bootflow_ledger_url"]
        == found["guests.bootflow.yml"]["ledger_url"]
        == "sqlite:///%s/ledger.db" % folder
    )
    settings = configparser.ConfigParser()
    settings.read(folder / "ansible.cfg")
    assert settings["defaults"]["stdout_callback"] == "bootflow.compute.concise"
    assert settings["defaults"]["inventory"].split(",") == ["hosts.yml", "guests.bootflow.yml"]
    boots, refreshes, works = found["site.yml"]
    assert boots["import_playbook"] == "bootflow.compute.boot" and works["hosts"] == "instances"
    assert refreshes["tasks"][0]["ansible.builtin.meta"] == "refresh_inventory"
    hosts = found["hosts.yml"]["all"]["children"]["bootflow_compute"]["hosts"]
    assert hosts["kvm1"]["ansible_connection"] == "local"


def test_each_image_that_the_request_names_has_a_checksum_and_the_user_that_logs_in(
    begin: t.Callable[..., t.Any], tmp_path: pathlib.Path
) -> None:
    begin()
    found = loaded(tmp_path / "new")
    images = {each["name"]: each for each in with_shipped(found["group_vars/all/catalogue.yml"]["bootflow_images"])}
    for wanted in found["web.yml"]["bootflow_instances"]:
        image = images[wanted["image"]]
        assert image["checksum"] and not image.get("allow_unverified")
        user = image["properties"]["os_admin_user"]
        assert found["guests.bootflow.yml"]["compose"]["ansible_user"] == "'%s'" % user
    assert not any("allow_unverified" in (tmp_path / "new" / name).read_text() for name in FILES)


def test_the_image_in_the_comment_of_the_catalogue_is_a_valid_one(
    begin: t.Callable[..., t.Any], tmp_path: pathlib.Path
) -> None:
    begin()
    text = (tmp_path / "new" / "group_vars/all/catalogue.yml").read_text()
    opened = text.replace("bootflow_images: []", "bootflow_images:").replace("\n#  ", "\n  ")
    (image,) = yaml.safe_load(opened.replace("sha256:...", "sha256:" + "0" * 64))["bootflow_images"]
    assert parse_catalogue([], [image], [], []).images["mine"].min_disk == image["min_disk"]


def test_hosts_over_ssh(begin: t.Callable[..., t.Any], tmp_path: pathlib.Path) -> None:
    begin(hosts=["kvm1", "kvm2=192.0.2.12", "kvm3=2001:db8::3"], user="ops")
    group = loaded(tmp_path / "new")["hosts.yml"]["all"]["children"]["bootflow_compute"]
    assert group["hosts"] == {
        "kvm1": None,
        "kvm2": {"ansible_host": "192.0.2.12"},
        "kvm3": {"ansible_host": "2001:db8::3"},
    }
    assert group["vars"]["ansible_user"] == "ops" and group["vars"]["ansible_become"] is True


@pytest.mark.parametrize(
    ("uid", "given", "by_sudo"),
    [
        (0, {}, False),
        (1000, {}, True),
        (0, {"hosts": ["kvm1"], "user": "ops"}, True),
        (1000, {"hosts": ["kvm1"]}, False),  # by SSH as root
    ],
)
def test_whoever_is_not_root_becomes_root_by_sudo(
    begin: t.Callable[..., t.Any],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    uid: int,
    given: dict[str, t.Any],
    by_sudo: bool,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    result = begin(**given)
    group = loaded(tmp_path / "new")["hosts.yml"]["all"]["children"]["bootflow_compute"]
    assert bool({**group.get("vars", {}), **(group["hosts"]["kvm1"] or {})}.get("ansible_become")) == by_sudo
    text = (tmp_path / "new" / "ansible.cfg").read_text()
    settings = configparser.ConfigParser()
    settings.read_string(text)
    assert not settings.has_section("privilege_escalation"), "who needs no password is not asked for one"
    assert ("# become_ask_pass = true" in text) == ("-K" in result["shown"]) == by_sudo
    if by_sudo:
        settings.read_string(text.replace("\n# [", "\n[").replace("\n# become", "\nbecome"), "opened")
        assert settings["privilege_escalation"]["become_ask_pass"] == "true"


def memory_ratios(folder: pathlib.Path, inventory: str) -> dict[str, t.Any]:
    """Compute host -> its ratio of memory, as Ansible reads this inventory of a folder."""
    loader = DataLoader()
    manager = InventoryManager(loader, sources=[str(folder / inventory)])
    variables = VariableManager(loader, manager)
    hosts = [manager.get_host(name) for name in manager.get_groups_dict()["bootflow_compute"]]
    return {h.name: variables.get_vars(host=h).get("bootflow_ram_allocation_ratio") for h in hosts}


def test_no_inventory_that_people_begin_with_gives_out_more_memory_than_there_is(
    begin: t.Callable[..., t.Any], tmp_path: pathlib.Path
) -> None:
    """The default is Nova's, 1.5: somebody who wants that writes it down. Hosts that are written below the others have it, too."""
    begin(hosts=["kvm1", "kvm2=192.0.2.12"])
    samples = sorted(path.parent for path in (ROOT / "inventory").glob("*/hosts.yml"))
    assert [folder.name for folder in samples] == ["fleet", "single"]
    for folder in (*samples, tmp_path / "new"):
        ratios = memory_ratios(folder, "hosts.yml")
        assert ratios and set(ratios.values()) == {1.0}, (folder.name, ratios)


def test_nothing_is_overwritten_and_check_mode_writes_nothing(
    begin: t.Callable[..., t.Any], tmp_path: pathlib.Path
) -> None:
    planned = begin(check=True)
    assert planned["changed"] and set(planned["created"]) == FILES and not (tmp_path / "new").exists()
    assert "Would write" in planned["shown"] and {d["before_header"] for d in planned["diff"]} == FILES
    (tmp_path / "new").mkdir()
    mine = tmp_path / "new" / "web.yml"
    mine.write_text("mine")
    (tmp_path / "new" / "site.yml").symlink_to(tmp_path / "nowhere")
    result = begin()
    assert set(result["created"]) == FILES - {"web.yml", "site.yml"} and set(result["kept"]) == {"web.yml", "site.yml"}
    assert mine.read_text() == "mine" and not (tmp_path / "nowhere").exists()
    again = begin()
    assert not again["changed"] and again["created"] == [] and set(again["kept"]) == FILES and again["diff"] == []


@pytest.mark.parametrize("content", [None, "", "-----BEGIN OPENSSH PRIVATE KEY-----\nx", "hello", "\udcff"])
def test_what_is_no_public_key_is_said(
    begin: t.Callable[..., t.Any], tmp_path: pathlib.Path, content: str | None
) -> None:
    (tmp_path / "key.pub").unlink()
    if content is not None:
        (tmp_path / "key.pub").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(errors.InvalidInput) as caught:
        begin()
    assert "public SSH key" in caught.value.message and "bootflow_init_public_key" in caught.value.remedy
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("host", ["", "a b", "kvm1: {x: y}", "kvm1=", "-e", "a=b c", "../x"])
def test_what_is_no_host_is_said(begin: t.Callable[..., t.Any], tmp_path: pathlib.Path, host: str) -> None:
    if host == "kvm1=":
        assert begin(hosts=[host])["changed"]
        return
    with pytest.raises(errors.InvalidInput, match="bootflow_init_hosts"):
        begin(hosts=["kvm0", host])
    assert not (tmp_path / "new").exists()
