"""DPDK's testpmd as a peer: virtio-user ports (drivers) or net_vhost ports (back-ends)."""

import re
import subprocess
import time
from dataclasses import dataclass, field

from .process import Dialogue, Failure, patient, require

PROMPT = "testpmd> "
BINARY = "dpdk-testpmd"


def address_of(index):
    """The MAC address of virtio-user port `index`."""
    return f"02:00:00:00:00:{index + 1:02x}"


@dataclass
class Ring:
    """Which ring the virtio-user driver asks for."""

    packed: bool = False
    in_order: bool = False
    mrg_rxbuf: bool = True
    vectorized: bool = False
    queues: int = 1
    queue_size: int = 256

    def name(self):
        parts = ["packed" if self.packed else "split"]
        parts.append(f"in_order={int(self.in_order)} mrg_rxbuf={int(self.mrg_rxbuf)}")
        parts += ["vectorized"] if self.vectorized else []
        parts.append(f"queues={self.queues}")
        return " ".join(parts)

    def needs_wide_vectors(self):
        """DPDK takes its vectorized packed path only when told to use AVX-512."""
        return self.vectorized and self.packed

    def vdev(self, index, path, server=False):
        """The --vdev argument of a virtio-user port."""
        options = [
            f"net_virtio_user{index}",
            f"path={path}",
            f"queues={self.queues}",
            f"queue_size={self.queue_size}",
            f"packed_vq={int(self.packed)}",
            f"in_order={int(self.in_order)}",
            f"mrg_rxbuf={int(self.mrg_rxbuf)}",
            f"mac={address_of(index)}",
        ]
        options += ["vectorized=1"] if self.vectorized else []
        options += ["cq=1"] if self.queues > 1 else []
        options += ["server=1"] if server else []
        return ",".join(options)


def vhost_vdev(index, path, queues=1, client=False):
    """The --vdev argument of a net_vhost port."""
    return f"net_vhost{index},iface={path},queues={queues}" + (",client=1" if client else "")


@dataclass
class PmdOptions:
    """How testpmd runs: memory, cores, and arguments of its own."""

    lcores: str = "(0,1)"  # Main and forwarding thread may share a core: the main one is idle.
    memory_mb: int = 256
    huge_dir: str = ""  # Empty: 4 KiB pages of a memfd.
    file_prefix: str = "sluice"
    mbufs: int = 16384
    queues: int = 1
    wide_vectors: bool = False
    eal: list = field(default_factory=list)
    arguments: list = field(default_factory=list)


@dataclass
class PortCounts:
    """What testpmd's driver counted on one port."""

    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    taken: float  # When they were read, on time.monotonic().


def _argv(vdevs, options):
    memory = ["--no-huge", "-m", str(options.memory_mb), "--no-shconf"]
    if options.huge_dir:
        # One file per process: a front-end can hand over few descriptors.
        memory = ["--huge-dir", options.huge_dir, "--single-file-segments"]
        memory += ["--file-prefix", options.file_prefix]
    eal = ["--no-pci", "--no-telemetry", "--lcores", options.lcores, *memory]
    eal += ["--log-level=pmd.net.virtio.init:info", "--log-level=pmd.net.virtio.driver:info"]
    eal += ["--force-max-simd-bitwidth=512"] if options.wide_vectors else []
    for vdev in vdevs:
        eal += ["--vdev", vdev]
    own = ["-i", "--nb-cores=1", "--no-mlockall", f"--total-num-mbufs={options.mbufs}"]
    own += [f"--rxq={options.queues}", f"--txq={options.queues}"]
    return [BINARY, *eal, *options.eal, "--", *own, *options.arguments]


class Testpmd(Dialogue):
    """A running testpmd with its command line."""

    __test__ = False  # Not a test class, whatever a collector may think of the name.

    def __init__(self, name, vdevs, log, options=None):
        self.options = options or PmdOptions()
        super().__init__(name, _argv(vdevs, self.options), log, PROMPT)

    def wait_up(self, seconds=30):
        """Waits for the first prompt: all ports are configured and started."""
        self.expect(PROMPT, seconds)
        return self

    def start(self, mode, tx_first=0):
        """Starts forwarding, in testpmd's words: io, mac, rxonly, txonly, ..."""
        self.command(f"set fwd {mode}")
        self.command("start" + (f" tx_first {tx_first}" if tx_first else ""))

    def stop(self):
        """Stops forwarding; the ports stay up."""
        self.command("stop")

    def counts(self):
        """The counters of every port, as a list in order of port number."""
        ports = {}
        taken = time.monotonic()
        text = self.command("show port stats all")
        for block in text.split("NIC statistics for port ")[1:]:
            number = int(re.match(r"\d+", block)[0])
            values = [
                int(re.search(rf"{word}:\s*(\d+)", block)[1])
                for word in ("RX-packets", "TX-packets", "RX-bytes", "TX-bytes")
            ]
            ports[number] = PortCounts(*values, taken)
        require(ports, "testpmd's `show port stats all` printed nothing known")
        return [ports[number] for number in sorted(ports)]

    def paths(self):
        """Names of the driver's receive and transmit paths, as testpmd logged them."""
        return re.findall(r"virtio: using (.*?) path", self.text())

    def quit(self, seconds=10):
        """Ends it in an orderly way."""
        if not self.running():
            return
        self.type("stop")
        self.type("quit")
        try:
            self._reap(patient(seconds))
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise Failure(f"{self.name} did not quit within {seconds} s") from error
