"""DPDK's net_vhost back-end: sluice is the driver, by its virtio-user ports."""

from lib.process import Failure, require, wait_for
from lib.sluice import DriverPort, Options, Sluice
from lib.testpmd import PmdOptions, Ring, Testpmd, vhost_vdev

from .testpmd_driver import check_negotiated, flood, loop, sockets

RINGS = [
    Ring(packed, in_order, mrg_rxbuf, queues=queues)
    for queues in (1, 2)
    for packed in (False, True)
    for in_order in (False, True)
    for mrg_rxbuf in ((True, False) if queues == 1 else (True,))
]


def sluice_for(rundir, paths, ring, server=False):
    extra = f"packed_vq={int(ring.packed)},in_order={int(ring.in_order)}"
    extra += f",mrg_rxbuf={int(ring.mrg_rxbuf)},queue_size={ring.queue_size}"
    ports = [DriverPort(p, f"p{i}", ring.queues, server, extra) for i, p in enumerate(paths)]
    return Sluice(rundir, ports, Options())


def devices(rundir, ring, paths, client=False, name="testpmd"):
    vdevs = [vhost_vdev(i, path, ring.queues, client) for i, path in enumerate(paths)]
    options = PmdOptions(queues=ring.queues)
    return Testpmd(name, vdevs, rundir / f"{name}.log", options).wait_up()


def wait_running(sluice):
    def running():
        return all(port["state"] == "running" for port in sluice.ask("port", "show")["ports"])

    wait_for(running, 15, "both ports run")


def exchange(rundir, ring, server=False):
    paths = sockets(rundir)
    if server:
        sluice = sluice_for(rundir, paths, ring, server=True).start()
        pmd = devices(rundir, ring, paths, client=True)
    else:
        pmd = devices(rundir, ring, paths)
        sluice = sluice_for(rundir, paths, ring).start()
    wait_running(sluice)
    check_negotiated(sluice, [ring, ring])
    moved = loop(pmd, sluice)
    dropped = flood(pmd, sluice)
    sluice.stop()
    pmd.quit()
    return f"{moved} sent = received; then a flood with {dropped} drops, all counted"


def restart(rundir, ring):
    """The device's process is killed and another takes its place: the port finds it by itself."""
    paths = sockets(rundir)
    pmd = devices(rundir, ring, paths)
    sluice = sluice_for(rundir, paths, ring).start()
    moved = []
    for turn in range(3):
        wait_running(sluice)
        pmd.start("io", 2)
        wait_for(lambda: sum(p.rx_packets for p in pmd.counts()) > 1000, 10, "packets move")
        moved.append(sum(port.rx_packets for port in pmd.counts()))
        pmd.kill()
        for path in paths:
            path.unlink(missing_ok=True)
        pmd = devices(rundir, ring, paths, name=f"testpmd{turn}")
    wait_running(sluice)
    totals = sluice.settled()
    require(totals.conserved(), f"packets are missing: {totals.describe()}")
    sluice.stop()
    pmd.quit()
    return f"killed three times; {len(moved) + 1} sessions"


def reset(rundir, ring):
    """The device cannot reset one queue (Q-02), so the whole of it is, also to other sizes."""
    paths = sockets(rundir)
    pmd = devices(rundir, ring, paths)
    sluice = sluice_for(rundir, paths, ring).start()
    wait_running(sluice)
    moved = loop(pmd, sluice)
    try:
        sluice.ask("queue", "reset", "p0", "1")
        refused = "nothing"
    except Failure as failure:
        refused = str(failure)
    for words in ("does not offer RING_RESET", "--whole-device"):
        require(words in refused, f"a reset of one queue should be refused: {refused}")
    moved += loop(pmd, sluice)
    back = 0
    for queue, size in ((0, 0), (1, 512), (0, 1024), (1, 256)):
        order = ["queue", "reset", "p0", str(queue), "--whole-device"]
        order += ["--size", str(size)] if size else []
        done = sluice.ask(*order)["reset"]
        require(done["buffers"] > 0, f"no buffer came back: {done}")
        shown = sluice.ask("queue", "show", "p0")["queues"][queue]["size"]
        require(shown == (size or ring.queue_size), f"queue {queue} has {shown} buffers")
        back += done["buffers"]
        moved += loop(pmd, sluice)
    sessions = [port["sessions"] for port in sluice.ask("port", "show")["ports"]]
    require(sessions == [1, 1], f"a session ended: {sessions}")
    sluice.stop()
    pmd.quit()
    return f"{moved} sent = received; {back} buffers came back in 4 resets"


def add_to(suite):
    for ring in RINGS:
        suite.add(f"testpmd back-end {ring.name()}", lambda d, ring=ring: exchange(d, ring))
    for ring in (Ring(in_order=True), Ring(packed=True, in_order=True)):
        suite.add(
            f"testpmd back-end connects {ring.name()}",
            lambda d, ring=ring: exchange(d, ring, server=True),
        )
        suite.add(
            f"testpmd back-end is killed {ring.name()}", lambda d, ring=ring: restart(d, ring)
        )
        suite.add(f"testpmd back-end is reset {ring.name()}", lambda d, ring=ring: reset(d, ring))
