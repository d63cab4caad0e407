# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one process that stays: it listens to the events of hosts, and the ledger follows them."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.amounts import counted
from ...module_utils.core.instances.power_states import NOSTATE, POWER_STATES
from ...module_utils.core.instances.power_sync import EVENTS, RESUME
from ...module_utils.core.legible import legible
from ...module_utils.core.settings.hosts import HOST
from ...module_utils.core.settings.run import WATCHED
from ...module_utils.flows.recovery import power_sync
from ...module_utils.flows.recovery.power_sync import Difference, Noticed, Report, Synced
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, host_variables
from ..run.ledger_action import LedgerAction
from ..run.playbooks.syncs import Done, Syncs
from .events_file import EventsFile
from .listening import Heard, Listening, Lost, command

LOOK = 1.0  # seconds between two looks at whether it is to end
PAUSE_OF_LEDGER = 5.0  # seconds until hosts are asked again after the ledger could not be written
SLOW = 0.1  # the same while the events are read more slowly than they come
NOT_READ = "The events in %s have no reader: waiting events are dropped. After the next reader comes, each host begins with Listening."
LISTENING, LOST = "Listening", "Lost"  # in addition to Nova's names, in the file of events


class Watcher:
    """The hosts that are listened to, and the events so far."""

    def __init__(self, action: LedgerAction):
        self.action = action
        self._parent = os.getppid()
        self._counts = {"events": 0, "late": 0, "written": 0, "stopped": 0, "syncs": 0}
        syncs = action.options["sync"] and action.options["write"] and not action.check_mode
        self._syncs = Syncs(action.ports.power_sync()) if syncs else None
        self._again: dict[str, float] = {}  # hosts to be asked again -> when, monotonic
        self._lost_hosts: set[str] = set()
        # uuid -> the state of its guest for which a line was shown: power_sync ends it
        self._shown: dict[str, int] = {}

    def run(self) -> dict[str, t.Any]:
        """Listen until the time is over or the run ends. Returns the result of the task."""
        programs = self._programs()
        self._hosts = sorted(programs)
        if not programs:
            self._warn("There is no host to listen to.")
        elif self.action.options["write"]:
            self._open_ledger().close()  # a wrong URL, or a ledger that is not there, ends the task at once
        with contextlib.ExitStack() as stack:
            file: EventsFile | None = None
            if self.action.options["events_file"] is not None:
                file = stack.enter_context(EventsFile(self.action.options["events_file"]))
            listening = stack.enter_context(Listening(programs, lambda: self.action.context().now))
            self._listen(listening, file, bool(programs))
        if self._syncs is not None and os.getppid() == self._parent:
            self._show_synced(self._syncs.look(wait=True))
        return {"changed": bool(self._counts["written"]), "hosts": sorted(programs), **self._counts}

    def _programs(self) -> dict[str, list[str]]:
        """Return the programs that listen on hosts, by host. Warns of hosts without one."""
        programs = {}
        for host in self.action.hosts_to_use():
            variables = host_variables.of_host(self.action.task_vars["hostvars"], host)
            if not WATCHED.read(variables).handle_virt_lifecycle_events:
                continue
            python = str(variables.get("ansible_python_interpreter") or "")
            line = command(
                python if python.startswith("/") else "/usr/bin/python3", str(HOST.read(variables).libvirt_uri)
            )
            try:
                programs[host] = self.action.ports.program(host, variables, line)
            except errors.BootflowError as e:
                self._warn(e.paragraph)
        return programs

    def _listen(self, listening: Listening, file: EventsFile | None, hosts: bool) -> None:
        end = time.monotonic() + (self.action.options["seconds"] or float("inf"))
        while hosts and time.monotonic() < end and os.getppid() == self._parent and (file is None or file.is_read()):
            now = time.monotonic()
            due = [host for host, when in self._again.items() if when <= now]
            listening.ask(due)
            for host in due:
                del self._again[host]
            look = SLOW if file is not None and file.waits else LOOK
            messages = listening.wait(min(look, max(0.0, end - now)))
            heard = [message for message in messages if isinstance(message, Heard)]
            for message in messages:
                if isinstance(message, Lost):
                    self._show_lost(message)
                elif message.events is None:
                    self._show_listening(message)
            try:
                if file is not None and self._is_read_again(file):
                    listening.ask(self._hosts)
                self._record_events(messages, file)
            except BrokenPipeError:  # who read the events is gone
                return
            if heard and self.action.options["write"]:
                self._write(heard)
            if self._syncs is not None:
                self._show_synced(self._syncs.look())

    # --- the ledger ---------------------------------------------------------------------------------------------------

    def _open_ledger(self) -> t.Any:
        return self.action.rehearsal_ledger() if self.action.check_mode else self.action.open_ledger()

    def _write(self, heard: t.Sequence[Heard]) -> None:
        """Write the reports and events of all hosts in one transaction. Hosts are asked again where the ledger was away."""
        reports, noticed = {}, {}
        for message in heard:
            if message.events is None:
                resumes = host_settings.resumes(self.action, message.host)
                reports[message.host] = Report(message.asked_at, message.power_states, message.boot_id, resumes)
                for uuid in message.power_states:
                    self._shown.pop(uuid, None)
                continue
            names: dict[str, list[str]] = {}
            for event in message.events:
                names.setdefault(event.uuid, []).append(event.name)
                if EVENTS.get(event.name) != self._shown.get(event.uuid):
                    self._shown.pop(event.uuid, None)
            noticed[message.host] = Noticed(message.asked_at, names, message.power_states)
        try:
            ledger = self._open_ledger()
            try:
                function = ledger.rehearsal if self.action.check_mode else ledger.transact
                synced: list[Synced] = function(_compare, reports, noticed)
            finally:
                ledger.close()
        except errors.BootflowError as e:
            hosts = sorted({message.host for message in heard})
            self._warn("The answer of %s was not recorded: %s" % (", ".join(hosts), e.paragraph))
            self._again.update(dict.fromkeys(hosts, time.monotonic() + PAUSE_OF_LEDGER))
            return
        for part in synced:
            self._counts["written"] += len(part.written | part.stopped)
            self._counts["stopped"] += len(part.stopped)
            for difference in part.differences:
                self._follow_up(difference, difference.uuid in part.stopped)

    def _follow_up(self, difference: Difference, stopped: bool) -> None:
        """Show an instance whose guest is not as the ledger has it, and let power_sync look at its host: once, as a start has several events."""
        needs_sync = difference.action is not None and not stopped
        if needs_sync and self._shown.get(difference.uuid) == difference.reported:
            return
        self.action.ports.display.display(
            _difference_line(difference, stopped, self.action.check_mode, self._syncs is not None)
        )
        if needs_sync:
            self._shown[difference.uuid] = difference.reported
            if self._syncs is not None:
                # Who starts a guest has to know that no other host runs it.
                self._syncs.want(self._hosts if difference.action == RESUME else [difference.host])

    # --- people and files -----------------------------------------------------------------------------------------------

    def _warn(self, text: str) -> None:
        """Show a warning at once: Ansible shows the warnings of a task when the task ends, and this one may never."""
        self.action.ports.display.display(legible("[WARNING]: %s" % text))

    def _show_lost(self, loss: Lost) -> None:
        error = errors.HostUnreachable(host=loss.host, reason=loss.reason)
        self._warn("%s The next try is in %d s." % (error.paragraph, loss.pause))
        self._lost_hosts.add(loss.host)

    def _show_listening(self, heard: Heard) -> None:
        again = " again" if heard.host in self._lost_hosts else ""
        self._lost_hosts.discard(heard.host)
        number = counted(len(heard.power_states), "domains")
        self.action.ports.display.display(legible("Listening%s to %s, which has %s." % (again, heard.host, number)))

    def _show_synced(self, done: Done | None) -> None:
        """Show the output of power_sync."""
        if done is None:
            return
        self._counts["syncs"] += 1
        for line in done.output.splitlines():
            self.action.ports.display.display(legible(line))
        if not done.well:
            self._shown.clear()
            self._warn("power_sync of %s failed. The next one tries it again." % ", ".join(done.hosts))

    def _is_read_again(self, file: EventsFile) -> bool:
        """Write the waiting events. Returns whether events were dropped before: then all hosts are Listening again."""
        file.write()
        again = file.full and not file.waits
        file.full = file.full and not again
        return again

    def _record_events(self, messages: t.Sequence[Heard | Lost], file: EventsFile | None) -> None:
        """Count the events, and write them into the file."""
        for message in messages:
            at = self.action.context().now if isinstance(message, Lost) else message.asked_at
            entry: dict[str, t.Any] = {"host": message.host, "at": at, "uuid": None}
            if isinstance(message, Lost):
                entries = [{**entry, "event": LOST, "reason": message.reason}]
            elif message.events is None:
                entries = [{**entry, "event": LISTENING}]
            else:
                entries = []
                for event in message.events:
                    state = message.power_states.get(event.uuid, NOSTATE)
                    late = EVENTS.get(event.name) != state
                    self._counts["events"] += 1
                    self._counts["late"] += late
                    entries.append(
                        {**entry, "uuid": event.uuid, "event": event.name, "power_state": state, "late": late}
                    )
            if file is not None:
                was_full = file.full
                file.add(entries)
                if file.full and not was_full:
                    self._warn(NOT_READ % self.action.options["events_file"])


def _compare(tx: Transaction, reports: t.Mapping[str, Report], noticed: t.Mapping[str, Noticed]) -> list[Synced]:
    """Compare the ledger with the reports of whole hosts, and with events."""
    parts = [power_sync.settle_and_sync(tx, reports, stops=False)] if reports else []
    return parts + ([power_sync.follow_events(tx, noticed)] if noticed else [])


def _difference_line(difference: Difference, stopped: bool, check_mode: bool, syncs: bool) -> str:
    sentence = "%s on %s (%s, %s) is %s." % (
        difference.name,
        difference.host,
        difference.uuid,
        difference.vm_state,
        POWER_STATES[difference.reported],
    )
    done = "It would be stopped in the ledger." if check_mode else "It is stopped in the ledger."
    does = "starts" if difference.action == RESUME else "stops"
    next_step = ("power_sync %s it now." if syncs else "The next power_sync %s it.") % does
    next_step = next_step if difference.action and not stopped else ""
    return legible(" ".join(filter(None, (sentence, difference.reason, done if stopped else next_step))))
