"""Live migration of a guest from one sluice port to another, while it is talking."""

import time

from lib.process import require, wait_for
from lib.sluice import Port

from .guests import Pair, Setup, traffic

DOWNTIME_LIMIT_MS = 500


def migrate(rundir, setup):
    """The guest moves to a QEMU on a third port; the bridge finds it there without being told."""
    pair = Pair(rundir, setup)
    third = rundir / "vm2.sock"
    pair.sluice.ports.append(Port(third, "vm2", setup.queues))
    pair.start()
    left, source = pair.guests
    left.must_ping(source.ip)
    # Something that dirties memory through the NIC all the while, and a shell state to find again.
    source.sh("echo kept > /tmp/marker")
    left.sh(f"ping -i 0.1 {source.ip} > /tmp/pings 2>&1 &")
    source.iperf_server()
    left.sh(f"iperf3 -c {source.ip} -t 40 -b 40M > /tmp/stream 2>&1 &")
    uri = f"unix:{rundir / 'migration'}"
    target = pair.guest(1, "vm2", third, incoming=uri).start()
    source.qmp("migrate-set-parameters", max_bandwidth=1 << 30, downtime_limit=DOWNTIME_LIMIT_MS)
    source.qmp("migrate", uri=uri)

    def over():
        state = source.qmp("query-migrate")
        return state if state["status"] in ("completed", "failed", "cancelled") else None

    result = wait_for(over, 40, "the migration is over", 0.1)
    require(result["status"] == "completed", f"migration {result}")
    wait_for(lambda: target.qmp("query-status")["status"] == "running", 10, "the target runs", 0.05)
    begin = time.monotonic()
    pair.guests[1] = target
    left.ping_until(target.ip, 10)
    pause = time.monotonic() - begin
    source.stop()
    require(target.sh("cat /tmp/marker") == "kept", "the guest lost its memory")
    left.sh("killall ping iperf3", check=False)
    target.sh("killall iperf3", check=False)
    require(target.sh("dmesg | grep -c 'id .* is not a head' || true") == "0", "a broken ring")
    seen = traffic(pair, seconds=1)
    pair.stop()
    return (
        f"down {result['downtime']} ms, first ping {pause:.1f} s later, "
        f"{result['ram']['dirty-sync-count']} passes; {seen}"
    )


def add_to(suite):
    for packed in (False, True):
        setup = {"packed": packed, "forward": "bridge"}
        name = f"guests {'packed' if packed else 'split'}, live migration under TCP"
        suite.add(name, lambda d, setup=setup: migrate(d, Setup(**setup)))
    setup = {"packed": True, "queues": 2, "forward": "bridge"}
    suite.add(
        "guests packed two queues, live migration under TCP",
        lambda d: migrate(d, Setup(**setup)),
        slow=True,
    )
