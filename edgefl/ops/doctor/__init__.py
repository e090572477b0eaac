"""The doctor: what an operator needs before a fleet works, looked at one by one."""
