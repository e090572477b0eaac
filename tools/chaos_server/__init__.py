"""Lives of a server in virtual time, in which everything goes wrong, and bugs planted for them to find."""
