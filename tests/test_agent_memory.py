"""What processes would take alone is what the kernel tells of each page, whatever else runs here."""

import os
from pathlib import Path

import psutil

from edgefl.bench.agent_memory import alone_mb, family


def rollup(name: str) -> float:
    lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()]
    return next(int(words[1]) for words in lines if words[0] == f"{name}:") / 1024


def test_alone_a_process_takes_what_is_resident_and_no_more_for_being_counted_twice() -> None:
    me = os.getpid()
    before = rollup("Rss")
    alone = alone_mb([me])
    assert rollup("Pss_Anon") <= alone
    assert abs(alone - before) < 0.05 * before  # nobody shares what this process has written
    assert alone_mb([me, me]) < rollup("Rss") + rollup("Pss_Anon") + 5  # pages of files count once; looking takes some


def test_a_family_is_a_process_and_its_children() -> None:
    assert family(os.getpid())[0] == psutil.Process().pid
