"""Shells of the server: they carry out what `decide` decides."""
