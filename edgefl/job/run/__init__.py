"""What a run is made of: the job, the work of a device, what its answers look like."""
