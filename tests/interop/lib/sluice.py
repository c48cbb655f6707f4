"""`sluice run` as the tests drive it: start, stop, kill, restart, and its counters."""

import json
import os
import time
from dataclasses import dataclass, field

from .process import SLUICE, Child, Failure, Unavailable, require, run, wait_for


@dataclass
class Port:
    """A --vhost-user argument."""

    path: str
    name: str
    queues: int = 1
    client: bool = False
    extra: str = ""  # More options, as the command line has them: "offloads=off,mtu=1500".

    def arguments(self):
        parts = [str(self.path), f"name={self.name}", f"queues={self.queues}"]
        parts += ["client"] if self.client else []
        parts += [self.extra] if self.extra else []
        return ["--vhost-user", ",".join(parts)]

    def listens(self):
        return not self.client


@dataclass
class DriverPort:
    """A --virtio-user argument."""

    path: str
    name: str
    queues: int = 1
    server: bool = False
    extra: str = ""  # As above: "packed_vq=1,in_order=0".

    def arguments(self):
        parts = [str(self.path), f"name={self.name}", f"queues={self.queues}"]
        parts += ["server"] if self.server else []
        parts += [self.extra] if self.extra else []
        return ["--virtio-user", ",".join(parts)]

    def listens(self):
        return self.server


@dataclass
class Options:
    """The other flags of `sluice run`."""

    forward: str = "patch"
    workers: int = 1
    cores: str = ""
    poll: str = "adaptive"
    more: list = field(default_factory=list)


class Totals:
    """The counters of all ports, one reading."""

    def __init__(self, document):
        self.ports = {port["name"]: port for port in document["stats"]}
        self.forwarding = document["forwarding"]

    def packets(self, name, direction):
        return self.ports[name][direction]["packets"]

    def bytes(self, name, direction):
        return self.ports[name][direction]["bytes"]

    def drops(self, name, direction):
        return {k: n for k, n in self.ports[name][direction]["drops"].items() if n}

    def all_drops(self):
        """Every cause that is not zero, over all ports and directions."""
        total = {}
        for name in self.ports:
            for direction in ("from_driver", "to_driver"):
                for cause, n in self.drops(name, direction).items():
                    total[cause] = total.get(cause, 0) + n
        return total

    def sum(self, direction):
        return sum(port[direction]["packets"] for port in self.ports.values())

    def conserved(self):
        """Every packet is accounted for: taken, then offered to ports, then delivered or dropped.

        A packet that is flooded is offered more than once.
        """
        forwarded, offers = self.forwarding["forwarded"], self.forwarding["offers"]
        taken = forwarded + self._dropped("from_driver")
        delivered = self.sum("to_driver") + self._dropped("to_driver")
        return self.sum("from_driver") == taken and offers == delivered

    def _dropped(self, direction):
        return sum(sum(self.drops(name, direction).values()) for name in self.ports)

    def describe(self):
        lines = []
        for name in self.ports:
            parts = [name]
            for direction in ("from_driver", "to_driver"):
                drops = self.drops(name, direction)
                parts.append(f"{direction} {self.packets(name, direction)}")
                parts.append(f"dropped {drops}" if drops else "")
            lines.append(" ".join(part for part in parts if part))
        return "; ".join(lines) + f"; {self.forwarding}"


class Sluice:
    """A running `sluice run`, and what follows it when it is started again."""

    def __init__(self, rundir, ports, options=None):
        self.rundir, self.ports, self.options = rundir, ports, options or Options()
        self.control = rundir / "control.sock"
        self.state = rundir / "state"
        self.child = None
        self.state.mkdir(exist_ok=True)

    def argv(self):
        options = self.options
        argv = [SLUICE, "run"]
        for port in self.ports:
            argv += port.arguments()
        argv += ["--forward", options.forward, "--workers", options.workers]
        argv += ["--cores", options.cores] if options.cores else []
        argv += ["--poll", options.poll, "--control", self.control, "--state-dir", self.state]
        return argv + options.more

    def start(self):
        """Starts it and waits until it answers and its sockets exist."""
        if not os.access(SLUICE, os.X_OK):
            raise Unavailable(f"{SLUICE} is not there: run `make build`")
        self.child = Child("sluice", self.argv(), self.rundir / "sluice.log")
        servers = [port.path for port in self.ports if port.listens()]

        def up():
            self.child.check_running()
            return self.answers() and all(os.path.exists(path) for path in servers)

        try:
            wait_for(up, 20, "sluice is up")
        except Failure as failure:
            raise Failure(f"{failure}; it said:\n{self.child.output()[-3000:]}") from failure
        return self

    def answers(self):
        if not self.control.exists():
            return False
        try:
            self.ask("stats")
            return True
        except Failure:
            return False

    def ask(self, *command):
        """The answer of a `sluice ... --json` command."""
        text = run([SLUICE, *command, "--json", "--control", self.control], 20)
        try:
            return json.loads(text)
        except ValueError as error:
            raise Failure(f"sluice {' '.join(command)} --json: no JSON: {text[:300]!r}") from error

    def stats(self):
        return Totals(self.ask("stats"))

    def settled(self, seconds=5):
        """The counters once nothing moves any more."""
        before = None

        def quiet():
            nonlocal before
            now = self.stats()
            same = before is not None and before.ports == now.ports
            before = now
            return now if same else None

        return wait_for(quiet, seconds, "sluice's counters at rest", pause=0.15)

    def kill(self):
        """SIGKILL: no chance to say good-bye to anybody."""
        self.child.kill()

    def stop(self, seconds=10):
        """SIGTERM; a Failure unless it ends in time and with status 0."""
        if self.child is None or not self.child.running():
            return
        status = self.child.terminate(seconds)
        require(status == 0, f"sluice ended with status {status} after SIGTERM")

    def restart(self, hard):
        """Ends it, hard (SIGKILL) or orderly, and starts it anew."""
        self.kill() if hard else self.stop()
        return self.start()

    def cpu_seconds(self):
        """CPU time used so far, user and system."""
        fields = self._proc("stat").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def cpu_share(self, seconds):
        """The share of one core used during the next `seconds`."""
        used, begin = self.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        return (self.cpu_seconds() - used) / (time.monotonic() - begin)

    def memory_kib(self):
        """Resident KiB by kind: anonymous, files, shared memory (which holds the guests' RAM)."""
        found = {}
        for line in self._proc("status").splitlines():
            key, _, value = line.partition(":")
            if key in ("RssAnon", "RssFile", "RssShmem"):
                found[key] = int(value.split()[0])
        return found

    def open_files(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def _proc(self, name):
        with open(f"/proc/{self.child.pid}/{name}", encoding="ascii") as file:
            return file.read()
