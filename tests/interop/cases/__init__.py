"""The interop cases, by peer and by what is done to sluice."""

from lib.case import Suite

from . import guests, idle, migration, restarts, testpmd_driver, testpmd_server


def suite():
    """All cases; the cheap and most telling first."""
    everything = Suite()
    for module in (testpmd_driver, idle, guests, restarts, testpmd_server, migration):
        module.add_to(everything)
    return everything
