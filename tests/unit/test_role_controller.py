# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The libraries of the controller: from pip in a virtual environment, from the distribution for its own interpreter, or a remedy in words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jinja2.nativetypes
import pytest
import yaml

from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.run import MAINTENANCE

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "roles" / "controller" / "files" / "unmet_requirements.py"
DISTRIBUTION = "/usr/bin/python3"  # Debian's, which is EXTERNALLY-MANAGED
ABSENT = "no-such-library>=2.0"


def unmet(python, requirement, path):
    environment = {**os.environ, "PATH": path}
    found = subprocess.run([python, SCRIPT, requirement], env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(found.stdout)


@pytest.fixture
def apt(tmp_path):
    """A function that lets apt offer a version; returns the PATH to use."""

    def offers(version):
        program = tmp_path / "apt-cache"
        program.write_text(
            '#!/bin/sh\nshift\nfor i; do printf "%%s:\\n  Installed: (none)\\n  Candidate: %s\\n  Version table:\\n" "$i"; done\n'
            % version
        )
        program.chmod(0o755)
        return "%s:/usr/bin:/bin" % tmp_path

    return offers


@pytest.mark.parametrize(
    ("version", "too_old"),
    [
        ("2.0.40+ds1-1", []),
        ("1:2.0-1", []),
        ("2.0.0~rc1-1", ["python3-no-such-library 2.0.0~rc1-1"]),
        ("2.1~rc1-1", []),
        ("1.4.46+ds1-1", ["python3-no-such-library 1.4.46+ds1-1"]),
        ("(none)", ["python3-no-such-library (not available)"]),
    ],
)
def test_interpreter_of_the_distribution_gets_its_packages_if_they_are_new_enough(apt, version, too_old):
    found = unmet(DISTRIBUTION, ABSENT, apt(version))
    assert found == {
        "missing": [ABSENT],
        "refused": True,
        "packages": ["python3-no-such-library"],
        "too_old": too_old,
    }


def test_virtual_environment_asks_pip(apt):
    assert unmet(sys.executable, ABSENT, apt("9")) == {
        "missing": [ABSENT],
        "refused": False,
        "packages": [],
        "too_old": [],
    }


def test_old_library_counts_as_missing(apt):
    assert unmet(sys.executable, "PyYAML>=4", apt("9"))["missing"] == []
    for old in (
        "PyYAML>=4000",
        "PyYAML~=4.0",
        "PyYAML<5",
        "PyYAML!=%s" % yaml.__version__,
        "PyYAML==5.*",
        "PyYAML >=4, <5",
    ):
        assert unmet(sys.executable, old, apt("9"))["missing"] == [old]
    for met in ("PyYAML~=6.0", "PyYAML>=6.0rc1", "PyYAML<4000,>=4", "pyyaml", "PyYAML>=4000; python_version < '3'"):
        assert unmet(sys.executable, met, apt("9"))["missing"] == []


def play(tmp_path, **variables):
    role = {"name": "bootflow.compute.controller"}
    plays = [{"hosts": "localhost", "connection": "local", "gather_facts": False}]
    plays[0]["vars"] = {"ansible_python_interpreter": sys.executable, **variables}
    plays[0]["tasks"] = [{"ansible.builtin.include_role": role}]
    book = tmp_path / "play.yml"
    book.write_text(json.dumps(plays))
    program = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", str(book)]
    done = subprocess.run(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, check=False
    )
    return done.returncode, " ".join(done.stdout.split())


@pytest.mark.slow
def test_old_packages_of_the_distribution_are_refused_in_words_before_anything_is_installed(tmp_path):
    rc, said = play(tmp_path, controller_python=DISTRIBUTION, controller_requirements=[ABSENT], ansible_become=False)
    assert rc == 2
    assert "/usr/bin/python3 belongs to the distribution (EXTERNALLY-MANAGED, PEP 668)" in said
    assert "python3 -m venv ~/bootflow-env" in said
    assert "pip install -r %s" % (ROOT / "requirements.txt") in said
    assert "Install the distribution's libraries" not in said


@pytest.mark.slow
def test_virtual_environment_gets_from_pip_what_it_lacks_and_nothing_else(tmp_path):
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(
        '#!/bin/sh\ncase "$1" in -m) echo "$@" >>%s ;; *) exec %s "$@" ;; esac\n' % (calls, sys.executable)
    )
    python.chmod(0o755)
    assert play(tmp_path, controller_python=str(python))[0] == 0  # what requirements.txt says is met
    assert not calls.exists()
    assert play(tmp_path, controller_python=str(python), controller_requirements=["PyYAML>=4", ABSENT])[0] == 0
    assert calls.read_text() == "-m pip install --quiet --constraint %s %s\n" % (ROOT / "constraints.txt", ABSENT)
    calls.unlink()
    free = {"controller_requirements": [ABSENT], "controller_constraints": ""}
    assert play(tmp_path, controller_python=str(python), **free)[0] == 0
    assert calls.read_text() == "-m pip install --quiet %s\n" % ABSENT


@pytest.mark.parametrize(("interval", "seconds"), [(600, 600), (0, 45), ("900", 900)])
def test_timer_of_power_sync(interval, seconds):
    """As Nova's sync_power_state_interval: 0 is the interval of the others."""
    text = (ROOT / "roles" / "controller" / "templates" / "bootflow.timer.j2").read_text()
    settings = {"controller_timers_interval": 45, "controller_timers_fuzzy_delay": 7}
    units = {
        name: jinja2.Template(text, trim_blocks=True).render(
            item=(name, "timer"), controller_sync_power_state_interval=interval, **settings
        )
        for name in ("power_sync", "heartbeat")
    }
    assert units["power_sync"].count("=%d\n" % seconds) == 2 and "Delay" not in units["power_sync"]
    assert units["heartbeat"].count("=45\n") == 2 and "RandomizedDelaySec=7\n" in units["heartbeat"]


def test_old_history_is_purged_every_day_by_default():
    defaults = yaml.safe_load((ROOT / "roles" / "controller" / "defaults" / "main.yml").read_text())
    assert defaults["controller_purge_interval"] == 86400 and MAINTENANCE.named("history_retention_days").default == 90
    text = (ROOT / "roles" / "controller" / "templates" / "bootflow.timer.j2").read_text()
    unit = jinja2.Template(text, trim_blocks=True).render(item=("purge", "timer"), **defaults)
    assert unit.count("=86400\n") == 2
    assert service("purge", {})[-1].endswith("bootflow.compute.purge -i /etc/hosts.yml")


def test_incremental_backups_have_their_own_interval_and_variables():
    text = (ROOT / "roles" / "controller" / "templates" / "bootflow.timer.j2").read_text()
    settings = {"controller_sync_power_state_interval": 600, "controller_timers_interval": 60}
    unit = jinja2.Template(text, trim_blocks=True).render(
        item=("incremental_backup", "timer"), controller_backup_interval=7200, **settings
    )
    assert unit.count("=7200\n") == 2
    assert service("incremental_backup", {})[-1].endswith(" -e @/etc/bootflow/units/incremental_backup.json")
    tasks = yaml.safe_load((ROOT / "roles" / "controller" / "tasks" / "timers.yml").read_text())
    (own,) = [t["vars"]["controller_own_variables"] for t in tasks if "vars" in t]
    assert own["incremental_backup"] == "{{ controller_backup_variables }}"


def test_metrics_have_the_name_of_their_file():
    assert service("metrics", {})[-1].endswith(" -e @/etc/bootflow/units/metrics.json")
    tasks = yaml.safe_load((ROOT / "roles" / "controller" / "tasks" / "timers.yml").read_text())
    (own,) = [t["vars"]["controller_own_variables"] for t in tasks if "vars" in t]
    assert own["metrics"] == "{{ {'bootflow_metrics_file': controller_metrics_file} }}"


def test_reports_have_the_name_of_their_file_and_their_own_interval():
    assert service("report", {})[-1].endswith(" -e @/etc/bootflow/units/report.json")
    tasks = yaml.safe_load((ROOT / "roles" / "controller" / "tasks" / "timers.yml").read_text())
    (own,) = [t["vars"]["controller_own_variables"] for t in tasks if "vars" in t]
    assert own["report"] == "{{ {'bootflow_report_file': controller_report_file} }}"
    defaults = yaml.safe_load((ROOT / "roles" / "controller" / "defaults" / "main.yml").read_text())
    text = (ROOT / "roles" / "controller" / "templates" / "bootflow.timer.j2").read_text()
    unit = jinja2.Template(text, trim_blocks=True).render(item=("report", "timer"), **defaults)
    assert unit.count("=3600\n") == 2


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"controller_sync_power_state_interval": 600}, ["power_sync"]),
        ({"controller_sync_power_state_interval": 0, "bootflow_reclaim_instance_interval": 0}, ["power_sync"]),
        ({"controller_sync_power_state_interval": -1}, []),
        ({"controller_sync_power_state_interval": -1, "bootflow_reclaim_instance_interval": "3600"}, ["reclaim"]),
        ({"controller_sync_power_state_interval": -1, "bootflow_resize_confirm_window": 60}, ["confirm_resize"]),
        ({"controller_sync_power_state_interval": -1, "bootflow_shelved_offload_time": 60}, ["shelve_offload"]),
        ({"controller_sync_power_state_interval": -1, "bootflow_shelved_offload_time": -1}, []),
        ({"controller_sync_power_state_interval": -1, "controller_purge_interval": 86400}, ["purge"]),
        ({"controller_sync_power_state_interval": -1, "controller_purge_interval": 0}, []),
        ({"controller_sync_power_state_interval": -1, "controller_backup_interval": 86400}, ["incremental_backup"]),
        ({"controller_sync_power_state_interval": -1, "controller_metrics_file": ""}, []),
        ({"controller_sync_power_state_interval": -1, "controller_metrics_file": "/srv/b.prom"}, ["metrics"]),
        ({"controller_sync_power_state_interval": -1, "controller_report_file": ""}, []),
        ({"controller_sync_power_state_interval": -1, "controller_report_file": "/srv/b.html"}, ["report"]),
    ],
)
def test_which_playbooks_have_timers(variables, wanted):
    tasks = yaml.safe_load((ROOT / "roles" / "controller" / "tasks" / "main.yml").read_text())
    (timed,) = [task["vars"]["controller_timed"] for task in tasks if "controller_timed" in task.get("vars", {})]
    found = jinja2.nativetypes.NativeEnvironment().from_string(timed).render(variables)
    assert found == ["audit", "heartbeat", *wanted]


def service(playbook, extra):
    text = (ROOT / "roles" / "controller" / "templates" / "bootflow.service.j2").read_text()
    environment = jinja2.Environment(trim_blocks=True)
    environment.filters["to_json"] = json.dumps
    environment.filters["bool"] = bool
    settings = {
        "controller_timers_user": "ops",
        "controller_timers_inventory": "/etc/hosts.yml",
        "controller_timers_collections_path": "",
        "controller_timers_extra_vars": extra,
        "controller_timers_variables": "/etc/bootflow/units",
        "controller_watch_seconds": 3600,
        "controller_watch_sync": True,
        "controller_ansible_playbook": "/venv/bin/ansible-playbook",
    }
    return environment.from_string(text).render(item=(playbook, "service"), **settings).splitlines()


def test_services_of_timers_and_of_events():
    watch, timed = service("watch", {"bootflow_project": "web"}), service("power_sync", {})
    assert "Restart=always" in watch and "RestartSec=10" in watch and not [w for w in watch if w.startswith("Type=")]
    assert "Type=oneshot" in timed and not [w for w in timed if w.startswith("Restart")]
    start = "ExecStart=/venv/bin/ansible-playbook bootflow.compute.%s -i /etc/hosts.yml"
    assert timed[-1] == start % "power_sync"
    assert watch[-1] == start % "watch" + " -e @/etc/bootflow/units/watch.json"
    assert "web" not in "".join(watch), "variables may be secret, and everybody can read a unit"


def test_variables_of_units_are_for_their_user_alone(tmp_path):
    """As Ansible writes them, for an umask that would leave them to everybody."""
    path, folder = tmp_path / "play.yml", tmp_path / "units"
    extra = {"bootflow_ledger_url": 'postgresql://u:it\'s $x %n \\ "q"@db/x'}
    task = {
        "ansible.builtin.include_tasks": str(ROOT / "roles" / "controller" / "tasks" / "variables.yml"),
        "vars": {
            "controller_units_of": ["watch", "audit"],
            "controller_own_variables": {
                "watch": {"bootflow_watch_seconds": "{{ 3600 }}", "bootflow_watch_sync": True}
            },
            "controller_timers_variables": str(folder),
            "controller_timers_extra_vars": extra,
            "controller_timers_user": str(os.geteuid()),
        },
    }
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
    path.write_text(yaml.safe_dump([play]))
    argv = ["ansible-playbook", "-i", "localhost,", "-vvv", "--diff", str(path)]
    done = subprocess.run(
        ["sh", "-c", 'umask 000; exec "$@"', "sh", *argv], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "postgresql" not in done.stdout
    for name in ("watch.json", "audit.json"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o755
        found = json.loads((folder / name).read_text())
        own = {"bootflow_watch_seconds": 3600, "bootflow_watch_sync": True} if name == "watch.json" else {}
        assert found == {**extra, **own}
