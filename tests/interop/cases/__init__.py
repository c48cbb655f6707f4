"""The interop cases, by peer and by what is done to sluice."""

from lib.case import Suite

from . import bench, chains, guests, idle, migration, restarts
from . import testpmd_backend, testpmd_driver, testpmd_server


def suite():
    """All cases; the cheap and most telling first."""
    everything = Suite()
    for module in (
        testpmd_driver,
        testpmd_backend,
        bench,
        idle,
        guests,
        chains,
        restarts,
        testpmd_server,
        migration,
    ):
        module.add_to(everything)
    return everything
