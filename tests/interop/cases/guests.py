"""Two Linux guests in QEMU that talk through sluice, with every ring and offload QEMU has."""

from dataclasses import dataclass, field

from lib.guest import Guest, Machine, Nic
from lib.process import require, wait_for
from lib.sluice import Options, Port, Sluice

# What must be negotiated by a guest that asks for everything: the offloads and the ring features.
WANTED = {"CSUM", "GUEST_CSUM", "HOST_TSO4", "HOST_TSO6", "GUEST_TSO4", "GUEST_TSO6"}
WANTED |= {"MRG_RXBUF", "EVENT_IDX", "INDIRECT_DESC", "VERSION_1"}

# A guest that can do nothing by itself: sluice has to checksum and cut what it is sent.
POOR = {"csum": "off", "guest_csum": "off", "gso": "off", "mrg_rxbuf": "off"}
POOR |= {f"{side}_{kind}": "off" for side in ("guest", "host") for kind in ("tso4", "tso6", "ufo")}
POOR |= {"guest_ecn": "off", "host_ecn": "off"}

FILE_MIB = 1


@dataclass
class Setup:
    """How a pair of guests is made."""

    packed: bool = False
    queues: int = 1
    client: bool = False  # Sluice connects, QEMU listens.
    mtu: int = 0
    properties: tuple = ({}, {})  # Of each guest's NIC.
    forward: str = "patch"
    extra: str = ""  # Options of both ports.
    hotplug: bool = False
    sluice: Options = field(default_factory=Options)


class Pair:
    """Sluice with two ports and a guest on each."""

    def __init__(self, rundir, setup):
        self.rundir, self.setup = rundir, setup
        names = ("vm0", "vm1")
        self.paths = [rundir / f"{name}.sock" for name in names]
        setup.sluice.forward = setup.forward
        ports = [
            Port(path, name, setup.queues, setup.client, setup.extra)
            for path, name in zip(self.paths, names)
        ]
        self.sluice = Sluice(rundir, ports, setup.sluice)
        self.guests = [self.guest(i, names[i], self.paths[i]) for i in range(2)]

    def guest(self, number, name, path, incoming=""):
        """A guest as the setup describes it; `number` gives its addresses."""
        setup = self.setup
        nic = Nic(path, f"52:54:00:00:00:{number + 1:02x}", setup.queues, setup.packed)
        nic.server, nic.properties = setup.client, setup.properties[number]
        machine = Machine(cpus=min(2, setup.queues), address=f"10.0.0.{number + 1}/24")
        machine.mtu, machine.incoming, machine.hotplug = setup.mtu, incoming, setup.hotplug
        return Guest(name, self.rundir, [nic], machine)

    def start(self):
        """Starts all, and waits for the first ping through."""
        self.sluice.start()
        for guest in self.guests:
            guest.start()
        for guest in self.guests:
            guest.wait_up()
        self.guests[0].ping_until(self.guests[1].ip, 10)
        return self

    def stop(self):
        for guest in self.guests:
            guest.stop()
        self.sluice.stop()


def send_file(sender, receiver):
    """Sends random bytes by TCP and compares: with offloads nobody else verifies a checksum."""
    # With nothing to read, nc would close its side at once, and take the other end along.
    receiver.sh("sleep 20 | nc -l -p 7 > /tmp/received 2> /dev/null & sleep 0.3")
    sender.sh(f"dd if=/dev/urandom of=/tmp/file bs=1M count={FILE_MIB} 2> /dev/null")
    sender.sh(f"nc {receiver.ip} 7 < /tmp/file", 30)
    size = FILE_MIB << 20

    def arrived():
        return int(receiver.sh("wc -c < /tmp/received"))

    wait_for(lambda: arrived() >= size, 10, f"{size} bytes from {sender.name} to {receiver.name}")
    same = sender.sh("sha256sum < /tmp/file") == receiver.sh("sha256sum < /tmp/received")
    require(same, f"the file {receiver.name} got is not the one {sender.name} sent")


def traffic(pair, flags="", seconds=2):
    """Ping without loss, a file each way, iperf3 each way. Returns what iperf3 measured."""
    left, right = pair.guests
    left.must_ping(right.ip, 10)
    right.must_ping(left.ip, 5)
    send_file(left, right)
    send_file(right, left)
    right.iperf_server()
    forth = left.iperf(right.ip, seconds, flags)
    back = left.iperf(right.ip, seconds, flags + " -R")
    require(forth > 1 and back > 1, f"TCP crawls: {forth:.1f} and {back:.1f} Mbit/s")
    totals = pair.sluice.settled()
    require(totals.conserved(), f"packets are missing: {totals.describe()}")
    causes = totals.all_drops()
    return f"0 % ping loss, TCP {forth:.0f} and {back:.0f} Mbit/s" + (
        f", drops {causes}" if causes else ""
    )


def check_features(pair):
    for guest in pair.guests:
        features = guest.features()
        missing = WANTED - features
        require(not missing, f"{guest.name} lacks {sorted(missing)}")
        packed = "RING_PACKED" in features
        require(packed == pair.setup.packed, f"{guest.name}: RING_PACKED is {packed}")
        require("RING_RESET" not in features, f"{guest.name} has RING_RESET, behind QEMU a trap")


def plain(rundir, setup):
    pair = Pair(rundir, setup).start()
    check_features(pair)
    seen = traffic(pair)
    pair.stop()
    return seen


def many_queues(rundir, setup):
    """Two queues and CPUs; their number changes under way."""
    pair = Pair(rundir, setup).start()
    check_features(pair)
    for guest in pair.guests:
        require("MQ" in guest.features(), f"{guest.name} lacks MQ")
        guest.sh("ethtool -L eth0 combined 2")
    seen = traffic(pair, "-P 4")
    for name in ("vm0", "vm1"):
        used = [queue["counters"]["packets"] for queue in queues_of(pair.sluice, name, "transmitq")]
        require(len(used) == 2 and all(used), f"{name}: packets by queue pair: {used}")
    for count in (1, 2, 1):
        pair.guests[0].sh(f"ethtool -L eth0 combined {count}")
        pair.guests[0].must_ping(pair.guests[1].ip, 3)
    pair.stop()
    return seen


def queues_of(sluice, port, kind):
    """`sluice queue show` of one port, the queues of one kind."""
    document = sluice.ask("queue", "show", port)
    return [queue for queue in document["queues"] if queue["kind"] == kind]


def unequal_offloads(rundir, setup):
    """One guest has all offloads, the other none: what is missing is done in software."""
    pair = Pair(rundir, setup).start()
    features = [guest.features() for guest in pair.guests]
    require(WANTED <= features[0], f"vm0 lacks {sorted(WANTED - features[0])}")
    surplus = features[1] & (WANTED - {"EVENT_IDX", "INDIRECT_DESC", "VERSION_1"})
    require(not surplus, f"vm1 has {sorted(surplus)}")
    seen = traffic(pair)
    sizes = pair.guests[1].sh("cat /sys/class/net/eth0/statistics/rx_packets")
    pair.stop()
    return f"{seen}, {sizes} frames at the guest without offloads"


def big_frames(rundir, setup):
    pair = Pair(rundir, setup).start()
    left, right = pair.guests
    for size in (1473, 4000, 8972):
        text = left.sh(f"ping -q -c 3 -i 0.2 -W 2 -s {size} {right.ip}", 20, check=False)
        require(" 3 packets received" in text, f"pings of {size} bytes: {text!r}")
    seen = traffic(pair)
    pair.stop()
    return seen


def add_to(suite):
    def add(name, function, *setup, **options):
        suite.add(f"guests {name}", lambda d: function(d, Setup(**dict(*setup))), **options)

    add("split ping, file, TCP both ways", plain)
    add("packed ping, file, TCP both ways", plain, {"packed": True})
    add("split two queues", many_queues, {"queues": 2})
    add("packed two queues", many_queues, {"queues": 2, "packed": True})
    add("split, one has all offloads, the other none", unequal_offloads, {"properties": ({}, POOR)})
    add(
        "packed, one has all offloads, the other none",
        unequal_offloads,
        {"properties": ({}, POOR), "packed": True},
    )
    add("split, MTU 9000", big_frames, {"mtu": 9000})
    add(
        "packed, MTU 9000, one without merged buffers",
        big_frames,
        {"mtu": 9000, "packed": True, "properties": ({}, {"mrg_rxbuf": "off"})},
        slow=True,
    )
