"""Measurements that say where we stand: always against a reference in the same run, so that a busy machine is fair."""
