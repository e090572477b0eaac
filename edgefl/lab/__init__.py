"""What a researcher uses: the Python interface, comparison, sweep, planning."""
