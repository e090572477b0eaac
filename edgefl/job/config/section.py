"""A table of a file that an operator writes."""

from typing import ClassVar

from pydantic import BaseModel

from edgefl.job.config.strict import STRICT


class Section(BaseModel):
    """What is checked alike in all of them."""

    model_config = STRICT
    missing: ClassVar[str] = "`edgefl init` writes a commented one"  # where a file comes from that is not there
