"""DPDK's virtio-user driver against sluice: every ring it has, every packet accounted for."""

import time

from lib.process import require, wait_for
from lib.sluice import Port, Sluice
from lib.testpmd import PmdOptions, Ring, Testpmd

# A loop with 64 packets a port and queue never fills a ring of 256, so not one may be lost.
LOOP_BURSTS = 2
SIZES = ("64", "1514", "64,300,900")

RINGS = [
    Ring(packed, in_order, mrg_rxbuf, queues=queues)
    for queues in (1, 2)
    for packed in (False, True)
    for in_order in (False, True)
    for mrg_rxbuf in (True, False)
] + [
    Ring(packed, in_order=packed, mrg_rxbuf=False, vectorized=True, queues=queues)
    for queues in (1, 2)
    for packed in (False, True)
]


def sockets(rundir, number=2):
    return [rundir / f"port{i}.sock" for i in range(number)]


def sluice_for(rundir, paths, queues, client=False, options=None):
    """A sluice with one port for each path, patched 0-1, 2-3, ..."""
    ports = [Port(path, f"p{i}", queues, client) for i, path in enumerate(paths)]
    return Sluice(rundir, ports, options)


def drivers(rundir, rings, paths, server=False, name="testpmd"):
    """One testpmd with a virtio-user port of its own ring for each path."""
    vdevs = [ring.vdev(i, paths[i], server) for i, ring in enumerate(rings)]
    options = PmdOptions(queues=rings[0].queues)
    options.wide_vectors = any(ring.needs_wide_vectors() for ring in rings)
    # Room for the multi-segment frames, and no flush that would hide what waits in a ring.
    return Testpmd(name, vdevs, rundir / f"{name}.log", options)


def at_rest(pmd, sluice):
    """Counters of both sides once testpmd has read everything that is on its way."""
    pmd.start("rxonly")

    def drained():
        before = sum(port.rx_packets for port in pmd.counts())
        totals = sluice.settled()
        counts = pmd.counts()
        return (counts, totals) if sum(port.rx_packets for port in counts) == before else None

    counts, totals = wait_for(drained, 10, "packets at rest")
    pmd.stop()
    return counts, totals


def check_same(counts, totals, names=("p0", "p1")):
    """What the driver says and what sluice says are the same numbers."""
    for port, name in zip(counts, names):
        for ours, theirs, what in (
            (totals.packets(name, "from_driver"), port.tx_packets, "packets from the driver"),
            (totals.packets(name, "to_driver"), port.rx_packets, "packets to the driver"),
            (totals.bytes(name, "from_driver"), port.tx_bytes, "bytes from the driver"),
            (totals.bytes(name, "to_driver"), port.rx_bytes, "bytes to the driver"),
        ):
            require(ours == theirs, f"{name}: {what}: sluice {ours}, testpmd {theirs}")
    require(totals.conserved(), f"packets are missing: {totals.describe()}")


def loop(pmd, sluice, seconds=0.4, sizes=SIZES):
    """Packets circle for a while, some sizes in turn; none may be lost. Returns their number."""
    laps = 0
    for size in sizes:
        before = pmd.counts()
        pmd.command(f"set txpkts {size}")
        pmd.start("io", LOOP_BURSTS)
        time.sleep(seconds)
        pmd.stop()
        counts, totals = at_rest(pmd, sluice)
        sent = sum(c.tx_packets - b.tx_packets for c, b in zip(counts, before))
        received = sum(c.rx_packets - b.rx_packets for c, b in zip(counts, before))
        require(sent > 1000, f"only {sent} packets of {size} bytes moved")
        lost = f"{size} bytes: {sent} sent, {received} received: {totals.describe()}"
        require(sent == received, lost)
        check_same(counts, totals)
        laps += received
    require(not totals.all_drops(), f"drops without overload: {totals.describe()}")
    return laps


def flood(pmd, sluice, seconds=0.3):
    """Both ports send and read nothing; what has no room is dropped and counted."""
    pmd.command("set txpkts 64")
    pmd.start("txonly")
    time.sleep(seconds)
    pmd.stop()
    counts, totals = at_rest(pmd, sluice)
    check_same(counts, totals)
    sent, received = (sum(getattr(c, k) for c in counts) for k in ("tx_packets", "rx_packets"))
    dropped = sum(totals.all_drops().values())
    require(sent == received + dropped, f"{sent} sent, {received} received, {dropped} dropped")
    require(dropped > 0, "a flood nobody reads dropped nothing")
    return dropped


def check_negotiated(sluice, rings):
    """The driver got the ring it asked for: else the case would prove something else."""
    shown = {port["name"]: port for port in sluice.ask("port", "show")["ports"]}
    for i, ring in enumerate(rings):
        features = " ".join(shown[f"p{i}"]["features"]).upper()
        for word, wanted in (
            ("RING_PACKED", ring.packed),
            ("IN_ORDER", ring.in_order),
            ("MRG_RXBUF", ring.mrg_rxbuf),
        ):
            require((word in features) == wanted, f"p{i}: {word} is {not wanted}: {features}")


def check_vectorized(pmd, rings):
    if rings[0].vectorized:
        paths = pmd.paths()
        require(any("vectorized" in path for path in paths), f"not vectorized: {paths}")


def exchange(rundir, rings):
    paths = sockets(rundir)
    sluice = sluice_for(rundir, paths, rings[0].queues).start()
    pmd = drivers(rundir, rings, paths).wait_up()
    check_vectorized(pmd, rings)
    moved = loop(pmd, sluice)
    check_negotiated(sluice, rings)
    dropped = flood(pmd, sluice)
    pmd.quit()
    sluice.stop()
    return f"{moved} sent = received; then a flood with {dropped} drops, all counted"


def jumbo(rundir, packed):
    """Frames longer than a receive buffer are spread over several, where the driver can merge."""
    paths = sockets(rundir)
    sluice = sluice_for(rundir, paths, 1).start()
    rings = [Ring(packed=packed), Ring(packed=packed)]
    vdevs = [ring.vdev(i, paths[i]) for i, ring in enumerate(rings)]
    options = PmdOptions(arguments=["--max-pkt-len=9018", "--enable-scatter"])
    pmd = Testpmd("testpmd", vdevs, rundir / "testpmd.log", options).wait_up()
    moved = loop(pmd, sluice, sizes=("2000,2000,2000,2000", "1000,2000,2000"))
    return f"{moved} frames of 8000 and 5000 bytes sent = received"


def take_turns(rundir):
    """One sluice, many drivers one after the other: nothing of a session outlives it."""
    paths = sockets(rundir)
    sluice = sluice_for(rundir, paths, 2).start()
    files = None
    order = [RINGS[0], RINGS[6], RINGS[-1], RINGS[1], RINGS[-2], RINGS[12], RINGS[0]]
    for turn, ring in enumerate(order):
        before = sluice.stats()
        pmd = drivers(rundir, [ring, ring], paths, name=f"testpmd{turn}").wait_up()
        pmd.start("io", LOOP_BURSTS)
        time.sleep(0.2)
        moved = sum(port.rx_packets for port in pmd.counts())
        require(moved > 1000, f"{ring.name()}, driver {turn}: only {moved} packets moved")
        # One in two is killed at work, the others leave in an orderly way.
        pmd.kill() if turn % 2 else pmd.quit()
        totals = sluice.settled()
        require(totals.sum("from_driver") > before.sum("from_driver"), "nothing was counted")
        require(totals.conserved(), f"packets are missing: {totals.describe()}")
        now = wait_for(lambda: _closed(sluice, files), 5, "sluice closes what a driver left")
        files = files or now
    sluice.stop()
    return f"{len(order)} drivers, {files} open files after each"


def _closed(sluice, expected):
    now = sluice.open_files()
    return now if expected is None or now <= expected else None


def add_to(suite):
    for ring in RINGS:
        suite.add(f"testpmd {ring.name()}", lambda d, ring=ring: exchange(d, [ring, ring]))
    mixed = [Ring(), Ring(packed=True, in_order=True)]
    suite.add("testpmd split in_order=0 to packed in_order=1", lambda d: exchange(d, mixed))
    for packed in (False, True):
        name = "packed" if packed else "split"
        suite.add(f"testpmd {name} jumbo frames", lambda d, packed=packed: jumbo(d, packed))
    suite.add("testpmd seven drivers take turns on one sluice", take_turns)
