"""Hugepages for a peer that wants them; what was set before is restored."""

import os
import tempfile
from pathlib import Path

from .process import Failure, Unavailable, run

PAGE_MB = 2
NUMBER = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
FREE = NUMBER.with_name("free_hugepages")


class Hugepages:
    """A context: a mounted hugetlbfs with at least so many free megabytes; needs root."""

    def __init__(self, megabytes):
        self.pages = (megabytes + PAGE_MB - 1) // PAGE_MB
        self.before, self.folder = None, None

    def __enter__(self):
        if os.geteuid() != 0:
            raise Unavailable("hugepages need root")
        self.before = int(NUMBER.read_text())
        missing = self.pages - int(FREE.read_text())
        if missing > 0:
            NUMBER.write_text(str(self.before + missing))
        try:
            if int(FREE.read_text()) < self.pages:
                raise Unavailable(f"the kernel has no {self.pages} hugepages of {PAGE_MB} MiB")
            self.folder = tempfile.mkdtemp(prefix="sluice-huge-")
            run(["mount", "-t", "hugetlbfs", "-o", f"pagesize={PAGE_MB}M", "none", self.folder])
        except Failure:
            self._restore()
            raise
        return self.folder

    def __exit__(self, *_):
        run(["umount", self.folder], check=False)
        self._restore()

    def _restore(self):
        if self.folder:
            os.rmdir(self.folder)
        NUMBER.write_text(str(self.before))
