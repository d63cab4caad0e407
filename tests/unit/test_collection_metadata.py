# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lists that have to be kept in step by hand are in step."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import jsonschema
import yaml

from ansible_collections.bootflow.compute.plugins.doc_fragments.attributes import ModuleDocFragment
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.namespaces import OWNER_NAMESPACE
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import network

ROOT = Path(__file__).resolve().parents[2]


def pins(name):
    lines = (ROOT / name).read_text().splitlines()
    return {
        re.sub(r"[-_.]+", "-", match[1]).lower(): match[2]
        for match in (re.match(r"([A-Za-z0-9_.-]+)(?:\[\w+\])?==(\S+)$", line) for line in lines)
        if match
    }


def test_action_group_has_every_module():
    modules = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py") if path.stem != "__init__")
    groups = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["action_groups"]
    assert groups["bootflow"] == modules


def test_each_module_says_that_it_is_in_the_action_group():
    attributes = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["attributes"]
    groups = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["action_groups"]
    assert attributes["action_group"]["membership"] == ["bootflow.compute." + group for group in groups]
    for path in (ROOT / "plugins" / "modules").glob("*.py"):
        assert path.stem == "__init__" or "bootflow.compute.attributes" in path.read_text(), path.name


def requirements(name):
    """Lines of the file, without comments and references to other files."""
    return [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith(("#", "-r "))]


def test_every_requirement_is_pinned_as_the_constraints_say():
    constraints = pins("constraints.txt")
    for name in ("requirements-dev.txt", "requirements-docs.txt"):
        wanted = pins(name)
        assert len(wanted) == len(requirements(name)), "a line has no pinned version"
        assert wanted == {package: constraints.get(package) for package in wanted}


def test_every_requirement_has_a_least_version_and_the_tests_run_with_a_later_one():
    constraints = pins("constraints.txt")
    for line in requirements("requirements.txt"):
        name, least = re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", line).groups()
        numbers = [[int(n) for n in version.split(".")] for version in (least, constraints[name.lower()])]
        assert numbers[0] <= numbers[1], line


def test_one_list_of_requirements():
    """Pip, the execution environment and the role controller read the same file; its least version of ansible-core is the collection's."""
    environment = yaml.safe_load((ROOT / "meta" / "execution-environment.yml").read_text())
    assert environment["dependencies"]["python"] == "requirements.txt"
    role = yaml.safe_load((ROOT / "roles" / "controller" / "defaults" / "main.yml").read_text())
    assert "requirements.txt" in role["controller_requirements"]
    requires = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["requires_ansible"]
    (core,) = requirements("requirements-core.txt")
    assert core == "ansible-core" + requires
    assert not [line for line in requirements("requirements.txt") if line.startswith("ansible")], (
        "who runs a collection has it"
    )
    for each in ("dev", "bench", "docs", "eda"):
        text = (ROOT / ("requirements-%s.txt" % each)).read_text()
        assert "-r requirements.txt" in text and "-r requirements-core.txt" in text


def test_nothing_names_an_address_that_is_not_ours():
    """Names that cannot be changed after the first release."""
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text())
    for name in ("repository", "documentation", "homepage", "issues"):
        assert galaxy[name].startswith("https://github.com/bootflow/bootflow.compute"), name
    assert network.NETWORK_NAMESPACE.startswith("urn:bootflow:") and OWNER_NAMESPACE.startswith("urn:bootflow:")
    found = [
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.rglob("*"))
        if path.suffix in (".py", ".md", ".yml", ".txt", ".sh", ".j2", ".toml")
        and not {".cache", ".git", ".venv"} & set(path.parts)
        if "bootflow." + "example.org" in path.read_text()
    ]
    assert found == ["plugins/module_utils/hosts/libvirt/network_types/network.py"], (
        "the former namespace, which is read only"
    )


def test_the_readme_has_the_sections_of_automation_hub_and_full_links():
    text = (ROOT / "README.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.M)
    wanted = [
        "Description",
        "Requirements",
        "Installation",
        "Use Cases",
        "Testing",
        "Support",
        "Release Notes and Roadmap",
    ]
    assert [h for h in headings if h in (*wanted, "Related Information", "License Information")] == [
        *wanted,
        "Related Information",
        "License Information",
    ]
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert pictures and [path for path in pictures if not (ROOT / path).exists()] == []
    links = re.findall(r"(?<!!)\[[^]]+\]\(([^)]+)\)", text)
    assert links and [link for link in links if not link.startswith("https://")] == []
    base = "https://github.com/bootflow/bootflow.compute/"
    for link in links:
        if link.startswith((base + "blob/main/", base + "tree/main/")):
            path = link[len(base + "blob/main/") :].partition("#")[0]
            assert (ROOT / path).exists(), link


def test_the_event_source_has_a_schema_of_its_options():
    """Beside the source, as ansible-rulebook and editors look for it."""
    folder = ROOT / "extensions" / "eda" / "plugins" / "event_source"
    for source in folder.glob("*.py"):
        (text,) = re.findall(r'^DOCUMENTATION = r"""\n(.*?)"""', source.read_text(), re.M | re.S)
        options = yaml.safe_load(text)["options"]
        schema = json.loads(source.with_suffix(".json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        assert set(schema["properties"]) == set(options) and schema["additionalProperties"] is False
        assert schema["required"] == [name for name, option in options.items() if option.get("required")]
        for name, option in options.items():
            assert schema["properties"][name].get("default") == option.get("default")
            assert schema["properties"][name]["description"]


def test_files_that_judges_look_for():
    assert yaml.safe_load((ROOT / "meta" / "extensions.yml").read_text()) == {
        "extensions": [{"args": {"ext_dir": "eda/plugins/event_source"}}]
    }
    config = yaml.safe_load((ROOT / "tests" / "config.yml").read_text())
    assert config["modules"]["python_requires"]
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    assert '<a href="#v%s">' % version.replace(".", "-") in (ROOT / "CHANGELOG.md").read_text(), "run scripts/changelog"
    assert (ROOT / "SECURITY.md").exists()


def test_no_dependency_from_galaxy():
    assert yaml.safe_load((ROOT / "galaxy.yml").read_text())["dependencies"] == {}


def test_one_function_starts_the_programs_of_hosts_and_one_those_that_listen_to_them():
    starts = re.compile(
        r"\bsubprocess\.(Popen|run|call|check_call|check_output)\(|\bos\.(system|popen|spawn\w*|posix_spawn)\("
    )
    found = [path for path in (ROOT / "plugins").rglob("*.py") if starts.search(path.read_text())]
    names = sorted(path.relative_to(ROOT / "plugins").as_posix() for path in found)
    # What listens on a host imports nothing of ours, and asks systemd itself; child_playbook.py, syncs.py and fleet_run.py start
    # ansible-playbook on the controller, sending.py ssh, northbound_client.py ovn-nbctl.
    assert names == [
        "module_utils/hosts/libvirt/listener.py",
        "module_utils/hosts/os/command.py",
        "plugin_utils/molecule/fleet_run.py",
        "plugin_utils/relay/sending.py",
        "plugin_utils/run/ovn/northbound_client.py",
        "plugin_utils/run/playbooks/child_playbook.py",
        "plugin_utils/run/playbooks/syncs.py",
        "plugin_utils/watch/listening.py",
    ]


def test_each_fragment_is_named_by_a_subject_of_the_changelog() -> None:
    """CHANGELOG.md is sorted by subject."""
    done = subprocess.run(
        [str(ROOT / "scripts" / "changelog"), "--subjects"], check=True, capture_output=True, text=True
    )
    subjects = done.stdout.split()
    assert "volumes" in subjects
    names = {path.stem for path in (ROOT / "changelogs" / "fragments").glob("*.yml")}
    other = {n for n in names if not any(n == s or n.startswith(s + "-") for s in subjects)}
    assert other == {"0.9.0"}, "name them SUBJECT.yml or SUBJECT-CHANGE.yml, see scripts/changelog"
