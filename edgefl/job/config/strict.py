"""How tables of a file that an operator writes are checked."""

from pydantic import ConfigDict

STRICT = ConfigDict(
    frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True, defer_build=True
)  # built when first read: a device never reads a run file
