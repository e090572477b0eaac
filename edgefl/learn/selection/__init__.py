"""Whom a round asks: one file for each way to choose."""
