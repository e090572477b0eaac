"""Off this machine nothing is said without TLS, and no client is let in without a proven name.

The option `--insecure` allows it; what that means is said at the start, once, and by the doctor.
"""

import sys

from edgefl.base.errors import ConfigError
from edgefl.wire.address import Address
from edgefl.wire.tls import Tls


def exposed(broker: Address, files: Tls) -> str | None:
    """What others could do at this broker, if anything; None where there is TLS and a proof of who we are."""
    if broker.local:
        return None
    if not broker.tls:
        return f"{broker} has no TLS: the network between can read every update, and every password"
    if files.certificate is None and broker.username is None:
        return (
            f"neither a certificate nor a password is set for {broker}: if the broker takes such clients, every machine"
            " that reaches it can read every update"
        )
    return None


def check(broker: Address, files: Tls, section: str, *, insecure: bool) -> None:
    """Refuse such a broker, unless that is meant; then it cannot be overlooked."""
    if (danger := exposed(broker, files)) is None:
        return
    if not insecure:
        raise ConfigError(
            f"{danger}: `edgefl fleet init` makes a secured fleet ({section}.tls says how to use another broker's);"
            " --insecure starts all the same"
        )
    warn(danger)


def warn(danger: str) -> None:
    """Say it where it is not overlooked, also in the log of a service, which has what stands on stderr."""
    line = "!" * 78
    sys.stderr.write(f"{line}\n!!!  INSECURE: {danger}\n{line}\n")
