"""The files an operator writes: what may stand in them, how they are read, where a value came from."""

from edgefl.config.schema import (
    LIMIT_MB,
    AgentFile,
    Broker,
    Cap,
    Compute,
    EmulatedFleet,
    Guards,
    Identity,
    Learning,
    LocalCompute,
    LocalData,
    RoundRules,
    Run,
    RunFile,
    Section,
    Wire,
)

__all__ = [
    "LIMIT_MB",
    "AgentFile",
    "Broker",
    "Cap",
    "Compute",
    "EmulatedFleet",
    "Guards",
    "Identity",
    "Learning",
    "LocalCompute",
    "LocalData",
    "RoundRules",
    "Run",
    "RunFile",
    "Section",
    "Wire",
]
