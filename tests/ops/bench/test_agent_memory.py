"""What processes would take alone is what the kernel tells of each page, whatever else runs here."""

import os
import subprocess
import sys

import psutil

from edgefl.ops.bench.agent_memory import family

# In a process of its own: one that runs tests may have forked others, which share what it had written by then.
ALONE = """
import os
from pathlib import Path
from edgefl.ops.bench.agent_memory import alone_mb

def rollup(name):
    lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()]
    return next(int(words[1]) for words in lines if words[0] == f"{name}:") / 1024

me = os.getpid()
before, alone = rollup("Rss"), alone_mb([me])
print(rollup("Pss_Anon"), before, alone, alone_mb([me, me]), rollup("Rss") + rollup("Pss_Anon"))
"""


def test_alone_a_process_takes_what_is_resident_and_no_more_for_being_counted_twice() -> None:
    told = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True).stdout
    anonymous, resident, alone, twice, both = map(float, told.split())
    assert anonymous <= alone
    assert abs(alone - resident) < 0.05 * resident
    assert twice < both + 5  # pages of files count once; looking takes some


def test_a_family_is_a_process_and_its_children() -> None:
    assert family(os.getpid())[0] == psutil.Process().pid
