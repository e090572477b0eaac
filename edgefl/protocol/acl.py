"""Who may read and write what at Mosquitto; `deploy/mosquitto/acl` is the same text, for a broker that is installed."""

COORDINATOR = "coordinator"  # the user who may everything; every other one is a device, named like its agent.id

TEXT = """\
# Who may read and write what. %u is the user: proven by password or certificate, not chosen by the client.
# A publish that is not allowed is answered "Not authorized". A subscription that is not allowed is granted, but
# nothing comes.

user coordinator
topic readwrite edgefl/v1/#

# Devices, each by its own name; no device may be called `coordinator`. The two + are the fleet and the job. So a
# device can read the models of every fleet on this broker: give fleets that must not know each other their own.
pattern read edgefl/v1/+/+/state
pattern read edgefl/v1/+/+/model/#
pattern read edgefl/v1/+/+/dev/%u/down
pattern write edgefl/v1/+/+/dev/%u/up
pattern readwrite edgefl/v1/+/presence/%u
# For `edgefl doctor`, which sends itself a message.
pattern readwrite edgefl/v1/+/doctor/%u
"""
