# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs as AWX starts them: ansible-runner with the project of docs/examples/awx, answers of surveys as extra variables that are no templates."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import sys
import threading
import typing as t
from pathlib import Path

import ansible_runner
import yaml
from flow import ROOT
from simulated_site import Site

PROJECT = ROOT / "docs" / "examples" / "awx"


class Unsafe(yaml.SafeDumper):
    """AWX writes each text as one that is no template. source: AWX 24.6.1, awx/main/utils/safe_yaml.py"""

    def represent_data(self, data: t.Any) -> yaml.Node:
        return self.represent_scalar("!unsafe", data) if isinstance(data, str) else super().represent_data(data)


@dataclasses.dataclass
class Job:
    status: str  # successful, failed or canceled
    events: list[dict[str, t.Any]]
    stdout: str
    folder: Path  # all that ansible-runner keeps of the job

    def statistics(self) -> dict[str, t.Any]:
        """What AWX hands to the next job of a workflow."""
        (stats,) = [e for e in self.events if e["event"] == "playbook_on_stats"]
        return dict(stats["event_data"].get("artifact_data", {}))

    def changed(self) -> int:
        (stats,) = [e for e in self.events if e["event"] == "playbook_on_stats"]
        return sum(stats["event_data"]["changed"].values())

    def results(self, *events: str) -> list[dict[str, t.Any]]:
        return [e["event_data"] for e in self.events if e["event"] in events]

    def everything(self) -> str:
        """All files but one, which has the environment of the job, for this user alone: AWX removes it with the folder."""
        files = [path for path in sorted(self.folder.rglob("*")) if path.is_file() and path.name != "command"]
        assert all(path.stat().st_mode & 0o077 == 0 for path in self.folder.rglob("command"))
        return "\n".join(path.read_text(errors="replace") for path in files)


class Controller:
    """An installation of AWX with the inventory, catalogue and ledger of a site, and the project of the example."""

    def __init__(self, site: Site, folder: Path):
        self.site, self.folder = site, folder
        self.numbers = itertools.count(1)
        self.password = ""
        self.lock = threading.Lock()

    def prepare(self, hosts: t.Sequence[str] | None) -> Path:
        """The private folder of a job. :arg hosts: the ones of its slice; all without"""
        folder = self.folder / ("job-%d" % next(self.numbers))
        shutil.copytree(PROJECT, folder / "project")
        with self.lock:  # jobs that begin at once write the inventory of the site, too
            self.site.arguments("list", {})
            inventory = json.loads(Path(self.site.lab.inventory).read_text())
        for group in inventory["all"]["children"].values():
            group["hosts"] = {n: v for n, v in group["hosts"].items() if hosts is None or n in hosts}
        inventory["all"]["vars"] = {n: v for n, v in self.site.variables.items() if n != "bootflow_ledger_url"}
        (folder / "inventory").mkdir()
        (folder / "inventory" / "hosts.json").write_text(json.dumps(inventory))
        (folder / "env").mkdir()
        # What the injectors of the credential write.
        credential = {"bootflow_ledger_url": self.site.variables["bootflow_ledger_url"]}
        (folder / "env" / "credential").write_text(yaml.dump(credential, Dumper=Unsafe))
        return folder

    def launch(
        self,
        playbook: str,
        check: bool = False,
        hosts: t.Sequence[str] | None = None,
        cancel: t.Callable[[], bool] | None = None,
        user: str = "alice",
        **answers: t.Any,
    ) -> Job:
        """Run a job to its end. :arg answers: of the survey, without the prefix of variables"""
        folder = self.prepare(hosts)
        variables = {"bootflow_" + name: value for name, value in answers.items()}
        meta = {"awx_user_name": user, "tower_user_name": user}
        (folder / "env" / "extravars").write_text(yaml.dump({**variables, **meta}, Dumper=Unsafe))
        programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        more = {"BOOTFLOW_LEDGER_PASSWORD": self.password} if self.password else {}
        run = ansible_runner.run(
            private_data_dir=str(folder),
            playbook="%s.yml" % playbook,
            cmdline="%s-e @%s" % ("--check --diff " if check else "", folder / "env" / "credential"),
            envvars=self.site.environment(PATH=programs, **more),
            quiet=True,
            suppress_env_files=True,  # as AWX does
            cancel_callback=cancel,
            timeout=300,
        )
        return Job(run.status, list(run.events), run.stdout.read(), folder / "artifacts")
