"""Where things are said. One topic per device and direction, so that a broker's ACL can keep devices apart.

edgefl/v1/{fleet}/{job}/state                   retained JSON *    coordinator -> all
edgefl/v1/{fleet}/{job}/model/{id}/manifest     retained JSON      coordinator -> all
edgefl/v1/{fleet}/{job}/model/{id}/{group}/{i}  retained chunk     coordinator -> all
edgefl/v1/{fleet}/{job}/model/round             chunks of frames * coordinator -> all that a round asks
edgefl/v1/{fleet}/{job}/dev/{device}/down       chunks of frames * coordinator -> one device
edgefl/v1/{fleet}/{job}/dev/{device}/up         chunks of frames * device -> coordinator
edgefl/v1/{fleet}/server/dev/{device}/down      chunks of frames * the fleet's operator -> one device, whatever runs
edgefl/v1/{fleet}/server/dev/{device}/up        chunks of frames * its answer
edgefl/v1/{fleet}/presence/{device}             retained JSON *    device -> coordinator, and its last will
edgefl/v1/{fleet}/site/{site}                   retained "1", "0"  a site's bridge -> both brokers, and its last will

* in a signed envelope, see `signed.py`; a manifest bears its own signature and names the hash of the chunks
"""

import re

from edgefl.base.errors import ConfigError

ROOT = "edgefl/v1"
PROTOCOL = 3  # 3 may send several chunks in one message; topics stay, so that a peer of another version is met and told
SERVER = "server"  # a job that is no run: what the fleet's operator and a device say to each other between runs too
DIAGNOSIS = "diagnosis"  # the run of that job in the envelopes of requests and their replies
GROUP = 256  # chunks per group: a broker's queue for a new subscriber holds that many

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # of everything that has one: no path and no second topic can be made of it
_NAME = re.compile(NAME)
_RESERVED = {"presence", "state"}  # would read as another kind of topic


def check_name(kind: str, name: str) -> str:
    """`name` itself, if it may stand in a topic."""
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise ConfigError(
            f"{kind} '{name}' cannot stand in a topic: use up to 64 letters, digits, '.', '_' or '-',"
            f" begin with a letter or digit, and none of {', '.join(sorted(_RESERVED))}"
        )
    return name


def is_name(name: str) -> bool:
    """Whether something that came from outside may be called so."""
    return _NAME.fullmatch(name) is not None


def state(fleet: str, job: str) -> str:
    return f"{ROOT}/{fleet}/{job}/state"


def manifest(fleet: str, job: str, model: str) -> str:
    return f"{ROOT}/{fleet}/{job}/model/{model}/manifest"


def chunk(fleet: str, job: str, model: str, index: int) -> str:
    return f"{ROOT}/{fleet}/{job}/model/{model}/{index // GROUP}/{index % GROUP}"


def group(fleet: str, job: str, model: str, number: int) -> str:
    """The filter for all chunks of one group."""
    return f"{ROOT}/{fleet}/{job}/model/{model}/{number}/+"


def round(fleet: str, job: str) -> str:
    """Where all devices of a round are called; beside the models, because their readers may hear it too."""
    return f"{ROOT}/{fleet}/{job}/model/round"


def down(fleet: str, job: str, device: str) -> str:
    return f"{ROOT}/{fleet}/{job}/dev/{device}/down"


def up(fleet: str, job: str, device: str) -> str:
    return f"{ROOT}/{fleet}/{job}/dev/{device}/up"


def presence(fleet: str, device: str) -> str:
    return f"{ROOT}/{fleet}/presence/{device}"


def site(fleet: str, name: str) -> str:
    """Where the bridge of a site says whether it is there: a message of brokers, without a signature."""
    return f"{ROOT}/{fleet}/site/{name}"


def parts(topic: str) -> tuple[str, ...]:
    """What stands behind the fleet's name: ("job", "dev", "pi-1", "up"), ("presence", "pi-1"), ..."""
    return tuple(topic.split("/")[3:])
