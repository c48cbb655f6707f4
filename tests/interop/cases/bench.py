"""`sluice bench` beside a pair of DPDK's testpmd, which it starts and drives by itself."""

import json

from lib.process import SLUICE, require, run


def against(_rundir):
    words = "bench matrix --against testpmd --ring split --queues 1 --runs 1 --seconds 0.1 --json"
    rows = json.loads(run([SLUICE, *words.split()], 90))["rows"]
    require(len(rows) == 6, f"{len(rows)} rows")
    for row in rows:
        require(row["mpps"] > 0, f"we moved nothing: {row}")
        # A window in another state than ours has no ratio, and that can be any of them.
        require(row.get("testpmd_mpps", 1) > 0, f"testpmd moved nothing: {row}")
    seen = sum("ratio" in row for row in rows)
    return f"{len(rows)} cells, {seen} with testpmd in the same state"


def add_to(suite):
    suite.add("bench against testpmd", against)
