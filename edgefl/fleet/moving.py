"""The broker moves, or has another name: devices try old and new addresses until the old one is dropped.

edgefl fleet host NAME ─▶ fleet.json, the broker's certificate ─▶ coordinator ─ Addresses ─▶ each device's folder
"""

from collections.abc import Sequence
from datetime import datetime

from edgefl.base.errors import ConfigError
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import check_host
from edgefl.fleet.folder import Settings
from edgefl.wire.messages import ADDRESSES


def move(fleet: FleetAdministration, first: Sequence[str], drop: Sequence[str], now: datetime) -> Settings:
    """Have devices try these addresses first and those of before after them, without those to drop.

    The broker's certificate is for all of them when this returns; a broker that runs has to read it again.
    """
    settings = fleet.folder.read_settings()
    before = settings.addresses or settings.hosts[:1]
    if unknown := [host for host in drop if host not in settings.hosts]:
        raise ConfigError(f"--drop {unknown[0]}: the broker is not reached by it ({', '.join(settings.hosts)})")
    addresses = [host for host in dict.fromkeys([*map(check_host, first), *before]) if host not in drop]
    hosts = [host for host in dict.fromkeys([*addresses, *settings.hosts]) if host not in drop]
    if not addresses:
        raise ConfigError(f"--drop {drop[0]}: devices know no other address; `edgefl fleet host NAME` gives one first")
    if len(addresses) > ADDRESSES:
        raise ConfigError(f"a device tries {ADDRESSES} addresses at most: --drop one that is no longer used")
    if (tuple(addresses), tuple(hosts)) == (before, settings.hosts):
        return settings
    changed = fleet.change(addresses=tuple(addresses), hosts=tuple(hosts), moves=settings.moves + 1)
    fleet.refresh(now)
    return changed
