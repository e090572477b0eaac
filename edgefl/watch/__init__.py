"""Readers of facts: overview, terminal, page, report, status, exporters."""
