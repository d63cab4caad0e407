# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of imports and deletions, with hosts that answer, fail, and say what cannot be true."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import image_delete, image_import, image_stage
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import image_views
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

SHA, OTHER = "ab" * 32, "cd" * 32
URL = "http://images.example/web.raw"
STORES = [
    {"name": "one", "path": "/srv/images", "kind": "host", "host": "kvm1"},
    {"name": "two", "path": "/srv/images", "kind": "host", "host": "kvm2"},
]


def entry(name: str = "web", store: str = "one", **fields: t.Any) -> dict[str, t.Any]:
    return {"name": name, "url": URL, "checksum": "sha256:" + SHA, "disk_format": "raw", "store": store, **fields}


class Site:
    """Two hosts with a store each. ``lies``: fields of the outcome of each image that a host writes."""

    def __init__(self, world: World):
        self.world = world
        self.lies: dict[str, t.Any] = {}
        self.others: dict[str, t.Any] = {}  # outcomes that nobody asked for
        self.silent: set[str] = set()
        self.stores_of: dict[str, t.Any] = {}  # by the variables of a host
        self.warnings: list[str] = []
        self.given: list[tuple[str, dict[str, t.Any]]] = []

    def answer(self, host: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if arguments:
            self.given.append((host, dict(arguments)))
        if host in self.silent:
            return {"unreachable": True, "msg": "no route"}
        written = {"changed": True, "size": 9, "checksum": SHA, "error": None, **self.lies}
        outcomes = {image["id"]: written for image in arguments["images"]}
        gone = {image_id: {"changed": True, "error": None} for image_id in arguments["removed"]}
        return {"changed": True, "outcomes": {**outcomes, **gone, **self.others}}

    def task(self, module: t.Any, host: str = "localhost", run: str = "a", **options: t.Any) -> dict[str, t.Any]:
        ports = WorldPorts(self.world, run, lambda _name, arguments: self.answer(host, arguments))
        variables = {"inventory_hostname": host, "groups": {"all": ["kvm1", "kvm2"]}, "hostvars": {host: {}}}
        stores = self.stores_of.get(host, STORES)
        action = action_of(module, ports, variables, **{"image_stores": stores, **options})
        result: dict[str, t.Any] = action.act()
        self.warnings += ports.warnings
        return result

    def load(self, *entries: dict[str, t.Any], run: str = "a", **more: t.Any) -> dict[str, t.Any]:
        """The playbook image_import. Returns the result of its last task."""
        begun = self.task(image_import, run=run, image_imports=list(entries))
        for host in [*begun["storage"], "localhost"]:
            self.task(image_stage, host, run, image_imports=more.get("of_hosts", list(entries)))
        return self.task(image_import, run=run, image_imports=list(entries), phase="finish")

    def delete(self, *names: str, run: str = "d") -> dict[str, t.Any]:
        begun = self.task(image_delete, run=run, image_names=list(names))
        for host in [*begun["storage"], "localhost"]:
            self.task(image_stage, host, run)
        return self.task(image_delete, run=run, image_names=list(names), phase="finish")

    def views(self) -> dict[str, dict[str, t.Any]]:
        return {v["name"]: v for v in self.world.ledger.inspect(image_views.image_views, None, None, None)}


@pytest.fixture
def site(world: World) -> Site:
    return Site(world)


def test_two_hosts_and_back(site: Site) -> None:
    done = site.load(entry(), entry("base", "two"))
    assert done["changed"] and [v["name"] for v in done["images"]] == ["base", "web"]
    assert [host for host, _arguments in site.given] == ["kvm1", "kvm2"]
    assert {n: (v["status"], v["stores"]) for n, v in site.views().items()} == {
        "web": ("active", ["one"]),
        "base": ("active", ["two"]),
    }
    site.silent = {"kvm2"}
    done = site.delete("web", "base")
    assert [i["name"] for i in done["deleted"]] == ["web"] and done["failed"]
    assert [(i["name"], i["stores"]) for i in done["pending"]] == [("base", ["two"])]
    site.silent = set()
    assert [i["name"] for i in site.delete("base", run="e")["deleted"]] == ["base"]


@pytest.mark.parametrize("checksum", ["sha256:" + SHA, SHA])
def test_a_host_that_wrote_other_bytes_than_the_entry_says_has_not_written_the_image(site: Site, checksum: str) -> None:
    site.lies = {"checksum": OTHER}
    done = site.load(entry(checksum=checksum))
    (view,) = done["failed_images"]
    assert (view["status"], view["places"]) == ("killed", {"one": "ending"}) and OTHER in view["fault"]
    site.lies = {}
    assert site.load(entry(checksum=checksum), run="b")["changed"] and site.views()["web"]["status"] == "active"
    assert site.given[-1][1]["removed"] == [view["id"]]


@pytest.mark.parametrize("checksum", ["", "sha512:" + "0" * 128, "sha256:http://images.example/SUMS"])
def test_where_the_entry_has_no_sha256_that_of_the_host_is_taken(site: Site, checksum: str) -> None:
    site.lies = {"checksum": OTHER}
    done = site.load(entry(checksum=checksum, allow_unverified=not checksum))
    assert [v["checksum"] for v in done["images"]] == [OTHER]


def test_of_images_that_are_not_its_own_a_host_says_nothing(site: Site) -> None:
    site.load(entry("first"))
    first = site.views()["first"]["id"]
    site.others = {first: {"changed": True, "size": 1, "checksum": OTHER, "error": None}}
    site.load(entry("second"), run="b")
    assert (site.views()["first"]["size"], site.views()["first"]["checksum"]) == (9, SHA)


def test_what_failed_is_reported_with_what_to_do(site: Site) -> None:
    site.lies = {"error": errors.DiskFull(host="kvm1", path="/srv/images", reason="full").between_hosts()}
    done = site.load(entry())
    assert done["failed"] and done["remedy"] and done["remedy"] in done["msg"]
    assert site.views()["web"]["places"] == {}


def test_no_task_of_a_host_opens_the_ledger(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_ledger = LedgerAction.open_ledger

    def noted(action: LedgerAction, *given: t.Any, **more: t.Any) -> t.Any:
        opened.append(action.task_vars["inventory_hostname"])
        return open_ledger(action, *given, **more)

    monkeypatch.setattr(LedgerAction, "open_ledger", noted)
    site.load(entry(), entry("base", "two"))
    site.delete("web", "base")
    assert set(opened) == {"localhost"}


def test_the_second_import_of_a_run_reports_its_own_images_only(site: Site) -> None:
    assert site.load(entry())["changed"]
    done = site.load(entry())
    assert (done["changed"], done["images"]) == (False, [])
    done = site.load(entry("base", "two"))
    assert [v["name"] for v in done["images"]] == ["base"]


def test_a_run_that_ends_before_it_wrote_what_hosts_did_leaves_nothing_for_ever(site: Site) -> None:
    begun = site.task(image_import, image_imports=[entry()])
    site.task(image_stage, "kvm1", image_imports=[entry()])
    first = site.views()["web"]
    assert (first["id"], first["status"], first["places"]) == (begun["created"][0], "saving", {"one": "begun"})
    site.world.time += 10_000  # its lease is over
    assert site.load(entry(), run="b")["changed"] and site.views()["web"]["status"] == "active"
    assert site.given[-1][1]["removed"] == [first["id"]]
    late = site.task(image_import, phase="finish", image_imports=[entry()])
    assert late["images"] == [] and site.views()["web"]["status"] == "active"


def test_a_stage_without_its_beginning(site: Site) -> None:
    with pytest.raises(errors.InvalidInput, match="has no result in this run"):
        site.task(image_stage, "kvm1", image_imports=[entry()])


def test_a_host_whose_variables_differ_fails_its_images_not_its_task(site: Site) -> None:
    site.stores_of["kvm1"] = [{"name": "another", "path": "/srv/images"}]
    done = site.load(entry(), entry("base", "two"))
    assert [v["name"] for v in done["images"]] == ["base"] and [v["name"] for v in done["failed_images"]] == ["web"]
    assert "bootflow_image_stores" in done["failed_images"][0]["fault"] and "Image store one" in site.warnings[0]
    site.load(entry("web"), run="b", of_hosts=[])
    assert "bootflow_image_imports" in site.views()["web"]["fault"]
    site.stores_of.clear()
    site.load(entry(), run="c")
    site.stores_of["kvm1"] = []
    assert [i["name"] for i in site.delete("web")["deleted"]] == ["web"]  # what is removed was handed over
