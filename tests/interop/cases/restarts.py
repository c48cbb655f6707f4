"""What must not cost a guest its network: sluice killed, guests rebooted, NICs pulled."""

import time

from lib.process import require, wait_for

from .guests import Pair, Setup, traffic

RECOVERY_SECONDS = 10


def received_bytes(guest):
    return int(guest.sh("cat /sys/class/net/eth0/statistics/rx_bytes"))


def start_stream(pair, seconds=50):
    """TCP from the first guest to the second, in the background."""
    left, right = pair.guests
    right.iperf_server()
    left.sh(f"iperf3 -c {right.ip} -t {seconds} > /tmp/stream 2>&1 &")
    wait_stream(pair)


def wait_stream(pair, seconds=20):
    """Waits until the stream flows (again): TCP waits longer the longer the gap was."""
    guest = pair.guests[1]
    before = received_bytes(guest)
    wait_for(lambda: received_bytes(guest) > before + 200_000, seconds, "the TCP stream flows", 0.1)


def sluice_restarts(rundir, setup, manners):
    """Sluice ends under traffic, several times, and comes back: ping recovers, TCP goes on."""
    pair = Pair(rundir, setup).start()
    left, right = pair.guests
    uptime = left.sh("cat /proc/sys/kernel/random/boot_id")
    start_stream(pair)
    pauses = []
    for hard in manners:
        pair.sluice.kill() if hard else pair.sluice.stop()
        time.sleep(0.5)
        pair.sluice.start()
        pauses.append(left.ping_until(right.ip, RECOVERY_SECONDS))
        wait_stream(pair)
    left.sh("killall iperf3", check=False)
    require(left.sh("cat /proc/sys/kernel/random/boot_id") == uptime, "the guest was restarted")
    seen = traffic(pair, seconds=1)
    pair.stop()
    how = "".join("K" if hard else "T" for hard in manners)
    return f"{how}: pings again after " + " ".join(f"{p:.1f} s" for p in pauses) + "; " + seen


def guest_restarts(rundir, setup):
    """A guest is reset under traffic, then its QEMU is killed; the other guest stays."""
    pair = Pair(rundir, setup).start()
    left, right = pair.guests
    start_stream(pair, 5)
    right.qmp("system_reset")
    right.wait_up()
    left.ping_until(right.ip, RECOVERY_SECONDS)
    left.must_ping(right.ip)
    start_stream(pair, 5)
    right.child.kill()
    time.sleep(0.2)
    files = pair.sluice.open_files()
    right = pair.guests[1] = pair.guest(1, "vm1b", pair.paths[1]).start().wait_up()
    left.ping_until(right.ip, RECOVERY_SECONDS)
    seen = traffic(pair, seconds=1)
    right.child.kill()
    now = wait_for(
        lambda: pair.sluice.open_files() <= files and pair.sluice.open_files(), 5,
        "sluice closes what the guest left",
    )
    pair.stop()
    return f"{seen}; {now} open files without the guest"


def driver_restarts(rundir, setup):
    """The guest's driver goes and comes: link down and up, unbind and bind."""
    pair = Pair(rundir, setup).start()
    left, right = pair.guests
    left.sh("ip link set eth0 down; ip link set eth0 up")
    left.ping_until(right.ip, RECOVERY_SECONDS)
    driver = "/sys/bus/virtio/drivers/virtio_net"
    for _ in range(3):
        left.sh(
            f"d=$(basename $(readlink /sys/class/net/eth0/device)); echo $d > {driver}/unbind; "
            f"sleep 0.2; echo $d > {driver}/bind; sleep 0.3; "
            f"ip addr add {left.machine.address} dev eth0; ip link set eth0 up"
        )
        left.ping_until(right.ip, RECOVERY_SECONDS)
        left.must_ping(right.ip, 3)
    seen = traffic(pair, seconds=1)
    pair.stop()
    return seen


def plug(guest, nic):
    """Adds the NIC of the command line anew."""
    address = {"type": "unix", "data": {"path": str(nic.path)}}
    backend = {"type": "socket", "data": {"addr": address, "server": False, "reconnect": 1}}
    guest.qmp("chardev-add", id="chardev0", backend=backend)
    guest.qmp("netdev_add", type="vhost-user", id="net0", chardev="chardev0", queues=nic.queues)
    properties = dict(p.split("=", 1) for p in nic.device(0).split(",")[1:])
    properties["vectors"] = 0  # A number here, text on the command line.
    guest.qmp("device_add", driver="virtio-net-pci", bus="slot0", **properties)


def unplug(rundir, setup):
    """The NIC is pulled out of a running guest under traffic and put in again."""
    pair = Pair(rundir, setup).start()
    left, right = pair.guests
    start_stream(pair, 5)
    nic = right.nics[0]
    for _ in range(2):
        right.qmp("device_del", id="nic0")
        wait_for(lambda: " eth0" not in right.sh("ip -o link"), 10, "the NIC is gone", 0.2)
        right.event("DEVICE_DELETED", 10)
        right.qmp("netdev_del", id="net0")  # It takes the character device along.
        plug(right, nic)
        wait_for(lambda: " eth0" in right.sh("ip -o link"), 10, "the NIC is back", 0.2)
        right.sh(f"ip addr add {right.machine.address} dev eth0; ip link set eth0 up")
        left.ping_until(right.ip, RECOVERY_SECONDS)
    seen = traffic(pair, seconds=1)
    pair.stop()
    return seen


def wrong_address(rundir, setup):
    """A port with mac= drops, and counts, frames from any other source address."""
    setup.extra = ""
    pair = Pair(rundir, setup)
    for port, guest in zip(pair.sluice.ports, pair.guests):
        port.extra = f"mac={guest.nics[0].mac}"
    pair.start()
    left, right = pair.guests
    left.must_ping(right.ip)
    own = left.nics[0].mac
    left.sh("ip link set eth0 address 52:54:00:aa:bb:cc")
    sent, received = left.ping(right.ip, 3)
    require(received == 0, f"{received} of {sent} pings crossed from a foreign address")
    totals = pair.sluice.settled()
    require(totals.conserved(), f"packets are missing: {totals.describe()}")
    causes = totals.drops("vm0", "from_driver")
    require(causes.get("source_filter", 0) >= 1, f"vm0 counted {causes}")
    left.sh(f"ip link set eth0 address {own}")
    left.ping_until(right.ip, RECOVERY_SECONDS)
    left.must_ping(right.ip)
    pair.stop()
    return f"dropped {causes}"


def add_to(suite):
    def add(name, function, setup, *more, slow=False):
        suite.add(f"guests {name}", lambda d: function(d, Setup(**setup), *more), slow=slow)

    kills, orderly = (True, True, True), (False, True, False)
    add("split, sluice killed three times under TCP", sluice_restarts, {}, kills)
    add("packed, sluice killed three times under TCP", sluice_restarts, {"packed": True}, kills)
    both = {"packed": True, "queues": 2, "forward": "bridge"}
    add("packed two queues, sluice stopped, killed, stopped", sluice_restarts, both, orderly)
    add("split, sluice stopped, killed, stopped", sluice_restarts, {}, orderly, slow=True)
    connects = {"client": True, "packed": True}
    add("packed, QEMU listens, sluice killed three times", sluice_restarts, connects, kills)
    name = "split, QEMU listens, sluice killed three times"
    add(name, sluice_restarts, {"client": True}, kills, slow=True)
    add("split, reset and killed", guest_restarts, {})
    add("packed, reset and killed", guest_restarts, {"packed": True}, slow=True)
    add("split, driver unbound and bound", driver_restarts, {})
    add("packed, driver unbound and bound", driver_restarts, {"packed": True}, slow=True)
    add("split, NIC unplugged and plugged", unplug, {"hotplug": True})
    add("packed, NIC unplugged and plugged", unplug, {"hotplug": True, "packed": True}, slow=True)
    add("foreign source address", wrong_address, {"forward": "bridge"})
