"""A gateway: a site's devices answer as one."""
