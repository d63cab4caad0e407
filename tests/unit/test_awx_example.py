# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What docs/examples/awx configures in AWX 24.6.1 is what AWX takes. Its rules are written here as they are in awx/api and awx/main of that release."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import jinja2
import jsonschema
import pytest
import yaml

from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.table import ALL

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "docs" / "examples" / "awx"
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "awx_surveys.py"))
PLAYBOOK_LINE = re.compile(
    r"^\s*?-?\s*?(?:hosts|(ansible\.builtin\.)?import_playbook):"
)  # by which AWX knows playbooks
TYPES = ("text", "textarea", "password", "multiplechoice", "multiselect", "integer", "float")


class Loader(yaml.SafeLoader):
    pass


Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def load(name: str) -> t.Any:
    return yaml.load((PROJECT / "controller" / name).read_text(), Loader=Loader)


SURVEYS = load("surveys.yml")["awx_surveys"]
VARIABLES = load("vars.yml")
(PLAY,) = load("configure.yml")
QUESTIONS = [(playbook, asked) for playbook, survey in SURVEYS.items() for asked in survey["spec"]]


def task_of(module: str) -> dict[str, t.Any]:
    (task,) = [task for task in PLAY["tasks"] if "awx.awx." + module in task]
    return dict(task["awx.awx." + module])


def test_the_surveys_are_those_of_the_settings() -> None:
    assert SCRIPT["FILE"].read_text() == SCRIPT["page"](), "run scripts/awx_surveys.py"


@pytest.mark.parametrize("playbook", sorted(SURVEYS))
def test_a_survey_is_one_of_awx(playbook: str) -> None:
    survey = SURVEYS[playbook]
    assert isinstance(survey["name"], str) and isinstance(survey["description"], str) and survey["spec"]
    variables = [asked["variable"] for asked in survey["spec"]]
    assert len(variables) == len(set(variables))
    for asked in survey["spec"]:
        assert {"variable", "question_name", "type", "required"} <= set(asked)
        assert asked["type"] in TYPES and isinstance(asked["required"], bool)
        # A default would come before the variables of the inventory.
        assert "default" not in asked
        assert all(re.fullmatch(r"-?\d+", repr(asked[bound])) for bound in ("min", "max") if bound in asked)
        if asked["type"] in ("multiplechoice", "multiselect"):
            assert asked["choices"] and all(isinstance(choice, str) and choice.strip() for choice in asked["choices"])
        assert not re.search(r"[`\[\]]", asked["question_description"])


@pytest.mark.parametrize(("playbook", "asked"), QUESTIONS, ids=["%s-%s" % (p, a["variable"]) for p, a in QUESTIONS])
def test_answers_are_values_of_the_setting(playbook: str, asked: dict[str, t.Any]) -> None:
    """AWX gives texts, whole numbers, numbers, one choice as a text, or some as a list."""
    setting = ALL[asked["variable"]]
    assert (asked["type"] == "password") == setting.secret
    answers: dict[str, list[t.Any]] = {
        "text": ["one"],
        "textarea": ['[{"name": "one"}]'],
        "password": ['[{"name": "one"}]'],
        "multiplechoice": asked.get("choices", []),
        "multiselect": [asked.get("choices", [])],
        "integer": [asked.get("min", 1), asked.get("max", 1)],
        "float": [asked.get("min", 1), 1.5],
    }
    if asked["variable"] == "bootflow_uuids":
        answers["text"] = ["2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11,3f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"]
    read = [setting.read(answer) for answer in answers[asked["type"]]]
    assert None not in read
    if asked.get("choices") == ["true", "false"]:
        assert read == [True, False]
    if "Separated by commas." in asked["question_description"]:
        assert len(setting.read(answers["text"][0] + "," + answers["text"][0])) >= 2


def test_each_template_runs_a_playbook_of_the_project() -> None:
    for path in PROJECT.glob("*.yml"):
        is_playbook = any(PLAYBOOK_LINE.match(line) for line in path.read_text().splitlines())
        assert is_playbook == (path.name != "execution-environment.yml")
        if is_playbook:
            (play,) = yaml.safe_load(path.read_text())
            assert play["import_playbook"] == "bootflow.compute." + path.stem
            assert (ROOT / "playbooks" / path.name).exists()
    templates = VARIABLES["awx_templates"]
    assert {template["playbook"] for template in templates} == {p.stem for p in PROJECT.glob("*.yml")} - {
        "execution-environment"
    }
    assert {template["playbook"] for template in templates} == set(SURVEYS)
    names = {template["name"]: template for template in templates}
    assert len(names) == len(templates)
    for name, template in names.items():
        assert name.endswith(" plan") == (template.get("more", {}).get("job_type") == "check")
        for variable, value in template.get("more", {}).get("extra_vars", {}).items():
            assert ALL[variable].read(value)
            assert (PROJECT / value.removeprefix("/runner/project/")).exists()


def test_nobody_can_set_other_variables_than_those_of_a_survey() -> None:
    for module in ("job_template", "workflow_job_template"):
        arguments = task_of(module)
        assert arguments["ask_variables_on_launch"] is False and arguments["survey_enabled"] is True
        assert not [name for name, value in arguments.items() if name.startswith("ask_") and value is not False]


def test_the_type_of_the_credential_is_one_of_awx() -> None:
    kind = VARIABLES["awx_credential_type"]
    text = {"type": "string"}
    field = {
        "type": {"enum": ["string", "boolean"]},
        "format": {"enum": ["ssh_private_key", "url"]},
        "choices": {"type": "array", "minItems": 1, "items": text, "uniqueItems": True},
        "id": {"type": "string", "pattern": "^[a-zA-Z_]+[a-zA-Z0-9_]*$"},
        **dict.fromkeys(("label", "help_text"), text),
        **dict.fromkeys(("multiline", "secret", "ask_at_runtime"), {"type": "boolean"}),
        "default": {},
    }
    fields = {"type": "object", "properties": field, "additionalProperties": False, "required": ["id", "label"]}
    names = {"type": "array", "items": text}
    inputs = {"type": "object", "properties": {"required": names, "fields": {"type": "array", "items": fields}}}
    jsonschema.validate(kind["inputs"], {**inputs, "additionalProperties": False})
    ids = [field["id"] for field in kind["inputs"]["fields"]]
    assert len(ids) == len(set(ids)) and set(kind["inputs"]["required"]) <= set(ids) and "tower" not in ids
    assert set(kind["injectors"]) <= {"env", "extra_vars", "file"}
    assert task_of("credential_type")["kind"] in ("cloud", "net")  # of types that people make
    assert set(VARIABLES["awx_ledger"]) == set(ids)
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    values = {name: "<%s>" % name for name in ids}
    for kind_of_injector, injected in kind["injectors"].items():
        for name, template in injected.items():
            assert environment.from_string(template).render(values) in values.values()
            assert not name.startswith("ANSIBLE_")
            if kind_of_injector == "extra_vars":
                (used,) = [i for i in ids if "{{ %s }}" % i == template]
                secret = {f["id"]: f.get("secret", False) for f in kind["inputs"]["fields"]}[used]
                assert secret == ALL[name].secret
    assert kind["injectors"]["env"] == {"BOOTFLOW_LEDGER_PASSWORD": "{{ ledger_password }}"}
    (sslmode,) = [f for f in kind["inputs"]["fields"] if f["id"] == "ledger_sslmode"]
    assert (
        tuple(sslmode["choices"]) == ALL["bootflow_ledger_sslmode"].choices and sslmode["default"] in sslmode["choices"]
    )


def test_a_workflow_runs_nothing_before_somebody_approved_its_plan() -> None:
    nodes = {node["identifier"]: node for node in task_of("workflow_job_template")["workflow_nodes"]}
    order = ["plan"]
    while following := nodes[order[-1]].get("related", {}):
        assert set(following) == {"success_nodes"}
        (one,) = following["success_nodes"]
        order.append(one["identifier"])
    assert order == ["plan", "approval", "run"] and set(nodes) == set(order)
    jobs = {name: node["unified_job_template"] for name, node in nodes.items()}
    assert [jobs[name]["type"] for name in order] == ["job_template", "workflow_approval", "job_template"]
    templates = {"bootflow " + template["name"]: template for template in VARIABLES["awx_templates"]}
    for workflow in VARIABLES["awx_workflows"]:
        plan, run = (templates[jobs[n]["name"].replace("{{ item }}", workflow)] for n in ("plan", "run"))
        assert plan["playbook"] == run["playbook"] == workflow
        assert plan["more"]["job_type"] == "check" and "more" not in run


def test_schedules_have_the_rules_that_awx_takes() -> None:
    names = {template["name"] for template in VARIABLES["awx_templates"]}
    for schedule in VARIABLES["awx_schedules"]:
        assert schedule["template"] in names
        assert not [asked for asked in SURVEYS[schedule["template"]]["spec"] if asked["required"]]
        begin, rule = schedule["rrule"].split(" ")
        assert re.fullmatch(r"DTSTART:\d{8}T\d{6}Z", begin)
        parts = dict(part.split("=") for part in rule.removeprefix("RRULE:").split(";"))
        assert parts["FREQ"] in ("MINUTELY", "HOURLY", "DAILY", "WEEKLY") and int(parts["INTERVAL"]) > 0


def test_the_context_of_the_execution_environment(tmp_path: Path) -> None:
    """ansible-builder makes it, and finds what the collection needs of Python and of the system."""
    for name in ("execution-environment.yml", "collections"):
        (shutil.copytree if (PROJECT / name).is_dir() else shutil.copy)(PROJECT / name, tmp_path / name)
    builder = str(Path(sys.executable).parent / "ansible-builder")
    made = subprocess.run([builder, "create"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    build = tmp_path / "context" / "_build"
    (wanted,) = yaml.safe_load((build / "requirements.yml").read_text())["collections"]
    assert wanted["name"].startswith(yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"])
    (file,) = [p for p in (tmp_path / "context").iterdir() if p.is_file()]
    lines = file.read_text().splitlines()
    galaxy = lines[lines.index("FROM base AS galaxy") : lines.index("FROM base AS builder")]
    git = [n for n, line in enumerate(galaxy) if "install -y git" in line]
    assert git and git[0] < min(n for n, line in enumerate(galaxy) if "ansible-galaxy collection install" in line)
    (core,) = re.findall(r"ansible-core>=([\d.]+)", file.read_text())
    requires = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["requires_ansible"]
    assert requires == ">=" + core
    # The step of the build that reads the collections, as the image would have them.
    collections = tmp_path / "collections_of_the_image"
    target = collections / "ansible_collections" / "bootflow" / "compute"
    for name in ("galaxy.yml", "meta/execution-environment.yml", "meta/ee-bindep.txt", "requirements.txt"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    python, system = tmp_path / "requirements.txt", tmp_path / "bindep.txt"
    found = subprocess.run(
        [sys.executable, str(build / "scripts" / "introspect.py"), "introspect", str(collections)]
        + ["--write-pip", str(python), "--write-bindep", str(system)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    needed = [n for n in (ROOT / "requirements.txt").read_text().splitlines() if n and not n.startswith("#")]
    written = [line.partition("#")[0].strip() for line in python.read_text().splitlines()]
    assert [n for n in needed if n not in written] == []
    assert re.search(r"^openssh-clients .*platform:rpm", system.read_text(), re.M), system.read_text()
