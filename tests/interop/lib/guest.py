"""A Linux guest in QEMU (software emulation), with a command channel and the QMP monitor."""

import base64
import itertools
import json
import re
import socket
import time
from dataclasses import dataclass, field

from .image import guest_image
from .process import Child, Failure, patient, readable, require, wait_for

# The guests' features by bit, as /sys/class/net/eth0/device/features shows them.
FEATURES = {
    0: "CSUM", 1: "GUEST_CSUM", 2: "CTRL_GUEST_OFFLOADS", 3: "MTU", 5: "MAC", 7: "GUEST_TSO4",
    8: "GUEST_TSO6", 9: "GUEST_ECN", 10: "GUEST_UFO", 11: "HOST_TSO4", 12: "HOST_TSO6",
    13: "HOST_ECN", 14: "HOST_UFO", 15: "MRG_RXBUF", 16: "STATUS", 17: "CTRL_VQ", 18: "CTRL_RX",
    19: "CTRL_VLAN", 21: "GUEST_ANNOUNCE", 22: "MQ", 23: "CTRL_MAC_ADDR", 28: "INDIRECT_DESC",
    29: "EVENT_IDX", 32: "VERSION_1", 33: "ACCESS_PLATFORM", 34: "RING_PACKED", 35: "IN_ORDER",
    40: "RING_RESET", 56: "HOST_USO",
}  # fmt: skip


@dataclass
class Nic:
    """A virtio-net device of a guest on a vhost-user socket."""

    path: str
    mac: str
    queues: int = 1
    packed: bool = False
    server: bool = False  # QEMU listens, sluice connects.
    reconnect: int = 1  # Seconds between QEMU's attempts to connect again; 0: it gives up.
    properties: dict = field(default_factory=dict)  # Of virtio-net-pci: {"mrg_rxbuf": "off"}.

    def chardev(self, number):
        text = f"socket,id=chardev{number},path={self.path}"
        if self.server:
            return text + ",server=on,wait=off"
        return text + (f",reconnect={self.reconnect}" if self.reconnect else "")

    def netdev(self, number):
        return f"vhost-user,id=net{number},chardev=chardev{number},queues={self.queues}"

    def device(self, number):
        # Without vectors the guest uses INTx: QEMU 7.2 under emulation crashes when a guest
        # starts a vhost-user device with MSI-X (its irqfd path is for KVM alone).
        values = {"id": f"nic{number}", "netdev": f"net{number}", "mac": self.mac, "vectors": 0}
        values |= {"romfile": "", "packed": "on" if self.packed else "off"}
        values |= {"mq": "on"} if self.queues > 1 else {}
        values |= self.properties
        return "virtio-net-pci," + ",".join(f"{k}={v}" for k, v in values.items())


@dataclass
class Machine:
    """A guest's hardware and what its kernel is told."""

    memory_mb: int = 160
    cpus: int = 1
    address: str = ""  # Of eth0, with prefix: "10.0.0.1/24".
    mtu: int = 0
    hotplug: bool = False  # NIC 0 sits on a PCI Express root port, so that it can be pulled.
    incoming: str = ""  # Wait for a migration from this URI instead of booting.

    def kernel_words(self):
        words = ["console=ttyS0", "quiet", "panic=-1", "tsc=reliable", "mitigations=off"]
        words += ["random.trust_cpu=on", "net.ifnames=0", "no_timer_check"]
        words += [f"address={self.address}"] if self.address else []
        words += [f"mtu={self.mtu}"] if self.mtu else []
        return " ".join(words)


class Guest:
    """A running guest. Commands run as root in a shell of busybox."""

    def __init__(self, name, rundir, nics, machine):
        self.name, self.rundir, self.nics, self.machine = name, rundir, nics, machine
        self.child = self._agent = self._monitor = None
        self._received = b""
        self._numbers = itertools.count(1)
        self.events = []

    @property
    def ip(self):
        return self.machine.address.split("/")[0]

    def _argv(self):
        image, machine = guest_image(), self.machine
        argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-machine", "q35"]
        argv += ["-cpu", "max", "-smp", machine.cpus, "-m", machine.memory_mb]
        argv += ["-nodefaults", "-no-user-config", "-display", "none"]
        argv += ["-object", f"memory-backend-memfd,id=ram,size={machine.memory_mb}M,share=on"]
        argv += ["-numa", "node,memdev=ram", "-kernel", image.kernel, "-initrd", image.initrd]
        argv += ["-append", machine.kernel_words()]
        argv += ["-serial", f"file:{self.rundir / self.name}-console.log"]
        argv += ["-chardev", f"socket,id=agent,path={self._socket('agent')},server=on,wait=off"]
        argv += ["-device", "virtio-serial-pci,vectors=0,addr=0x1e"]
        argv += ["-device", "virtserialport,chardev=agent,name=agent"]
        argv += ["-qmp", f"unix:{self._socket('qmp')},server=on,wait=off"]
        if machine.hotplug:
            argv += ["-device", "pcie-root-port,id=slot0,chassis=1,addr=0x1d"]
        for number, nic in enumerate(self.nics):
            bus = ",bus=slot0" if machine.hotplug and number == 0 else ""
            argv += ["-chardev", nic.chardev(number), "-netdev", nic.netdev(number)]
            argv += ["-device", nic.device(number) + bus]
        return argv + (["-incoming", machine.incoming] if machine.incoming else [])

    def _socket(self, kind):
        return self.rundir / f"{self.name}.{kind}"

    def start(self):
        """Starts QEMU and connects to it; wait_up() waits for the guest inside."""
        self.child = Child(f"QEMU of {self.name}", self._argv(), self.rundir / f"{self.name}.log")
        self.began = time.monotonic()
        self._agent = self._connect("agent")
        self._monitor = self._connect("qmp").makefile("rw", encoding="utf-8")
        self._monitor.readline()  # The greeting.
        self.qmp("qmp_capabilities")
        return self

    def _connect(self, kind):
        channel = socket.socket(socket.AF_UNIX)
        channel.settimeout(patient(20))

        def connected():
            if not self.child.running():
                raise Failure(f"QEMU of {self.name} ended:\n{self.child.output()[-2000:]}")
            try:
                channel.connect(str(self._socket(kind)))
                return True
            except (FileNotFoundError, ConnectionRefusedError):
                return False

        wait_for(connected, 20, f"{self.name}'s {kind} socket")
        return channel

    def wait_up(self, seconds=60):
        """Waits until the agent in the guest says hello: after start, and after a reboot."""
        self._answer(b"hello", seconds, "has booted")
        self.boot_seconds = time.monotonic() - self.began
        return self

    def _answer(self, first_word, seconds, what):
        """The words after `first_word` of the line that begins with it; others are passed over."""
        end = time.monotonic() + patient(seconds)
        while True:
            line, newline, rest = self._received.partition(b"\n")
            if newline:
                self._received = rest
                words = line.split()
                if words and words[0] == first_word:
                    return words[1:]
                continue
            self.child.check_running()
            left = end - time.monotonic()
            require(left > 0, f"guest {self.name} {what}: not within {seconds:g} s")
            if readable(self._agent, min(left, 0.2)):
                self._received += self._agent.recv(65536)

    def sh(self, command, seconds=30, check=True):
        """Runs a shell command in the guest; returns its output without the last newline."""
        number = str(next(self._numbers)).encode()
        self._agent.sendall(number + b" " + base64.b64encode(command.encode()) + b"\n")
        words = self._answer(number, seconds, f"has run `{command}`")
        output = base64.b64decode(words[1]).decode(errors="replace") if len(words) > 1 else ""
        status = int(words[0])
        if check and status != 0:
            raise Failure(f"guest {self.name}: `{command}`: status {status}: {output[-500:]}")
        return output.rstrip("\n")

    def qmp(self, command, **arguments):
        """Runs a monitor command; `_` in the names of arguments stands for `-`."""
        message = {"execute": command}
        if arguments:
            message["arguments"] = {k.replace("_", "-"): v for k, v in arguments.items()}
        try:
            self._monitor.write(json.dumps(message) + "\n")
            self._monitor.flush()
        except OSError as error:
            raise Failure(f"QEMU of {self.name} is gone before {command}") from error
        while True:
            line = self._monitor.readline()
            require(line, f"QEMU of {self.name} closed its monitor during {command}")
            answer = json.loads(line)
            if "error" in answer:
                raise Failure(f"{self.name}: {command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]
            self.events.append(answer)

    def event(self, name, seconds):
        """Waits for a monitor event of the name, also one that has been read already."""

        def seen():
            self.qmp("query-status")  # Reads what is queued.
            for event in self.events:
                if event.get("event") == name:
                    self.events.remove(event)
                    return event
            return None

        return wait_for(seen, seconds, f"{self.name}: event {name}", pause=0.1)

    def features(self, device="eth0"):
        """Names of the virtio features the guest's driver negotiated."""
        bits = self.sh(f"cat /sys/class/net/{device}/device/features")
        return {FEATURES.get(i, str(i)) for i, bit in enumerate(bits) if bit == "1"}

    def ping(self, address, count=5, interval=0.2):
        """(sent, received) of a ping."""
        text = self.sh(
            f"ping -q -c {count} -i {interval} -W 2 {address}", 20 + count * 2, check=False
        )
        found = re.search(r"(\d+) packets transmitted, (\d+) packets received", text)
        require(found, f"guest {self.name}: ping printed {text!r}")
        return int(found[1]), int(found[2])

    def must_ping(self, address, count=5):
        """Every ping is answered."""
        sent, received = self.ping(address, count)
        require(sent == received == count, f"{self.name}: {received} of {sent} pings answered")

    def ping_until(self, address, seconds):
        """Seconds until a ping is answered; a Failure after `seconds`."""
        begin = time.monotonic()
        wait_for(
            lambda: self.ping_once(address), seconds, f"{self.name}: an answer from {address}"
        )
        return time.monotonic() - begin

    def ping_once(self, address):
        return " 1 packets received" in self.sh(f"ping -q -c 1 -W 1 {address}", 20, check=False)

    def iperf_server(self):
        self.sh("iperf3 -s -D -I /tmp/iperf3.pid && sleep 0.3")

    def iperf(self, address, seconds=2, flags=""):
        """Received Mbit/s of a TCP run towards the server; flags="-R" for the other way."""
        text = self.sh(f"iperf3 -c {address} -t {seconds} {flags} -J", seconds + 40, check=False)
        try:
            document = json.loads(text)
        except ValueError as error:
            raise Failure(f"guest {self.name}: iperf3 printed {text[-500:]!r}") from error
        require("error" not in document, f"guest {self.name}: iperf3: {document.get('error')}")
        return document["end"]["sum_received"]["bits_per_second"] / 1e6

    def stop(self):
        """Ends QEMU; the guest is not asked."""
        if self.child is not None and self.child.running():
            self.child.terminate()
