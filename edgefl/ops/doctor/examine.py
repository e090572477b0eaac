"""The whole examination, in the order in which an operator would mend things."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from edgefl.base.errors import ConfigError
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.schema import RunFile
from edgefl.ops.doctor import engines
from edgefl.ops.doctor.box import box
from edgefl.ops.doctor.certificates import own, today
from edgefl.ops.doctor.data import data
from edgefl.ops.doctor.finding import Finding, warning, wrong
from edgefl.ops.doctor.folders import folder, key_file
from edgefl.ops.doctor.identities import at_its_broker, of_agent, of_listener, of_run
from edgefl.ops.doctor.machine import machine
from edgefl.ops.doctor.network import COORDINATOR, broker, coordinator_key, program
from edgefl.wire.address import Address, parse
from edgefl.wire.exposure import exposed
from edgefl.wire.tls import Tls


def examine(file: RunFile | AgentFile | None = None, *, torch: bool = False) -> Iterator[Finding]:
    """What is found, one thing after the other; with a file also what that file needs."""
    if isinstance(file, RunFile):
        file = at_its_broker(file)
    yield from machine()
    if isinstance(file, AgentFile):
        yield from folder(file.agent.folder, "agent.folder")
        yield from data(file.data)
    else:
        yield from folder(file.run.folder if file else Path.cwd(), "run.folder")
    yield engines.onnxruntime()
    needs_torch = torch or isinstance(file, RunFile) or (file is not None and file.compute.backend == "torch")
    yield engines.torch(needed=needs_torch)
    if isinstance(file, AgentFile):
        yield box(file.compute)
        me = file.agent
        yield from coordinator_key(me)
        with suppress(ConfigError):  # of an address, which is told below
            yield from of_agent(file, parse(me.brokers[0]))
        for url in me.brokers:
            yield from _broker(url, "agent.broker", me.tls, me.id, me.fleet)
        return
    yield program(needed=file is not None and file.broker.url == "embedded")
    if file is not None:
        if file.broker.identity is not None and file.broker.identity.expanduser().exists():  # else it will be made
            yield key_file(file.broker.identity, "broker.identity")
        with suppress(ConfigError):  # as above
            yield from of_run(file, parse(file.broker.url), today())
        yield from _broker(file.broker.url, "broker.url", file.broker.tls, COORDINATOR, file.broker.fleet)
        with suppress(ConfigError):  # as above
            yield from of_listener(file, parse(file.broker.url), today())


def _broker(url: str, key: str, files: Tls, who: str, fleet: str) -> Iterator[Finding]:
    """The broker of a file, whose address stands under `key`, and the files that TLS needs."""
    section = key.partition(".")[0]
    try:
        address: Address = parse(url, key)
    except ConfigError as error:
        text, _, remedy = str(error).rpartition(": ")
        yield wrong("broker", text, remedy)
        return
    if danger := exposed(address, files):
        yield warning("insecure", danger, "make a secured fleet: edgefl fleet init")
    if files.key is not None:
        yield key_file(files.key, f"{section}.tls.key")
    if files.certificate is not None:
        yield own(files.certificate, f"{section}.tls.certificate", today())
    if not address.embedded:
        yield from broker(address, files, who, fleet)
