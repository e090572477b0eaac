"""The machine underneath: clocks, disks, processes, logs."""
