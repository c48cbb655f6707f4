"""Two Linux guests on two switches that vhost-user joins: one has the device, one drives it."""

from lib.process import require
from lib.sluice import DriverPort, Port, Sluice

from .guests import Pair, Setup, traffic
from .restarts import RECOVERY_SECONDS, start_stream, wait_stream


class Chain(Pair):
    """vm0 - sluice (virtio-user port) - sluice (vhost-user port) - vm1."""

    def __init__(self, rundir, setup, extra):
        super().__init__(rundir, setup)
        link = rundir / "link.sock"
        near, far = rundir / "near", rundir / "far"
        for folder in (near, far):
            folder.mkdir()
        uplink = DriverPort(link, "uplink", extra=extra)
        self.sluice = Sluice(near, [Port(self.paths[0], "vm0"), uplink], setup.sluice)
        downlink = Port(link, "downlink", extra=setup.extra)
        self.far = Sluice(far, [downlink, Port(self.paths[1], "vm1")], setup.sluice)

    def start(self):
        self.far.start()
        return super().start()

    def stop(self):
        super().stop()
        self.far.stop()


def exchange(rundir, extra, far_extra=""):
    chain = Chain(rundir, Setup(forward="bridge", extra=far_extra), extra).start()
    seen = traffic(chain)
    totals = chain.far.settled()
    require(totals.conserved(), f"packets are missing on the far side: {totals.describe()}")
    chain.stop()
    return seen


def restart(rundir, extra):
    """The switch in between is killed under TCP; the port finds the next one by itself."""
    chain = Chain(rundir, Setup(forward="bridge"), extra).start()
    left, right = chain.guests
    start_stream(chain)
    pauses = []
    for _ in range(3):
        chain.far.kill()
        chain.far.start()
        pauses.append(left.ping_until(right.ip, RECOVERY_SECONDS))
        wait_stream(chain)
    left.sh("killall iperf3", check=False)
    left.must_ping(right.ip, 5)
    totals = chain.sluice.settled()
    require(totals.conserved(), f"packets are missing: {totals.describe()}")
    chain.stop()
    return "pings again after " + ", ".join(f"{pause:.1f} s" for pause in pauses)


def add_to(suite):
    for extra in ("packed_vq=0,in_order=1", "packed_vq=1,in_order=0"):
        suite.add(f"chain of two switches {extra}", lambda d, extra=extra: exchange(d, extra))
    suite.add(
        "chain of two switches, the link has no offloads",
        lambda d: exchange(d, "packed_vq=1,csum=0,tso=0", "offloads=off"),
        slow=True,
    )
    suite.add(
        "chain of two switches, one is killed three times under TCP",
        lambda d: restart(d, "packed_vq=1,in_order=1"),
    )
