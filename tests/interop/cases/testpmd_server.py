"""DPDK's virtio-user driver that listens, with sluice as the one that connects."""

import time

from lib.process import require, wait_for
from lib.testpmd import Ring

from .testpmd_driver import LOOP_BURSTS, at_rest, drivers, flood, loop, sluice_for, sockets

RINGS = [
    Ring(),
    Ring(in_order=True),
    Ring(packed=True),
    Ring(packed=True, in_order=True, mrg_rxbuf=False, vectorized=True, queues=2),
]


def exchange(rundir, ring):
    paths = sockets(rundir)
    sluice = sluice_for(rundir, paths, ring.queues, client=True).start()
    pmd = drivers(rundir, [ring, ring], paths, server=True).wait_up()
    moved = loop(pmd, sluice)
    dropped = flood(pmd, sluice)
    pmd.quit()
    sluice.stop()
    return f"{moved} sent = received; then a flood with {dropped} drops, all counted"


def restart(rundir, ring):
    """The driver keeps its rings; a new sluice connects and traffic goes on, killed or stopped."""
    paths = sockets(rundir)
    sluice = sluice_for(rundir, paths, ring.queues, client=True).start()
    pmd = drivers(rundir, [ring, ring], paths, server=True).wait_up()
    pauses = []
    for hard in (True, False, True):
        pmd.start("io", LOOP_BURSTS)
        time.sleep(0.3)
        sluice.restart(hard)
        begin = time.monotonic()
        pmd.stop()
        at_rest(pmd, sluice)
        before = sum(port.rx_packets for port in pmd.counts())
        pmd.start("io", LOOP_BURSTS)

        def moves(before=before):
            return sum(port.rx_packets for port in pmd.counts()) > before + 1000

        wait_for(moves, 15, "packets move after the restart", pause=0.1)
        pauses.append(time.monotonic() - begin)
        pmd.stop()
    totals = sluice.settled()
    require(totals.conserved(), f"packets are missing: {totals.describe()}")
    sluice.stop()
    return "moving again after " + ", ".join(f"{pause:.1f} s" for pause in pauses)


def add_to(suite):
    for ring in RINGS:
        suite.add(f"testpmd listens {ring.name()}", lambda d, ring=ring: exchange(d, ring))
    for ring in (Ring(), Ring(packed=True)):
        suite.add(
            f"testpmd listens, sluice is restarted {ring.name()}",
            lambda d, ring=ring: restart(d, ring),
        )
