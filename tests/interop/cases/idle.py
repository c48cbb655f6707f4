"""What sluice costs while nothing happens: processor time and memory, with drivers connected."""

from lib.process import require
from lib.sluice import Options
from lib.testpmd import Ring

from .testpmd_driver import LOOP_BURSTS, at_rest, drivers, sluice_for, sockets

# The targets are 1 % and 40 MiB; the margin is for a busy test machine.
CPU_LIMIT = 0.03
MEMORY_LIMIT_KIB = 40 * 1024
SECONDS = 3


def idle(rundir, poll):
    """Two connected ports, after some traffic, measured for some seconds."""
    paths = sockets(rundir)
    rings = [Ring(packed=True), Ring()]
    sluice = sluice_for(rundir, paths, 1, options=Options(poll=poll)).start()
    alone = sluice.cpu_share(SECONDS)
    pmd = drivers(rundir, rings, paths).wait_up()
    pmd.start("io", LOOP_BURSTS)
    pmd.stop()
    at_rest(pmd, sluice)
    share = sluice.cpu_share(SECONDS)
    memory = sluice.memory_kib()
    own = memory["RssAnon"] + memory["RssFile"]
    text = f"{share:.2%} CPU with drivers, {alone:.2%} without; {own / 1024:.1f} MiB of its own"
    text += f", {memory['RssShmem'] / 1024:.1f} MiB of its peers"
    require(share < CPU_LIMIT and alone < CPU_LIMIT, f"{text}; the limit is {CPU_LIMIT:.0%}")
    require(own < MEMORY_LIMIT_KIB, f"{text}; the limit is {MEMORY_LIMIT_KIB // 1024} MiB")
    pmd.quit()
    sluice.stop()
    return text


def add_to(suite):
    for poll in ("adaptive", "interrupt"):
        suite.add(f"idle {poll}: processor time and memory", lambda d, poll=poll: idle(d, poll))
