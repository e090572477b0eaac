"""Comparisons with other frameworks and with bare programs: always in the same run, so that a busy machine is fair."""
