"""How a file becomes samples: the keys of `[data]`, the same in an agent file and in a run file."""

import codecs
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

MOST_ROWS = 5_000_000


class Reading(BaseModel):
    """Which columns of a table mean what, what empty cells become, and how rows become windows.

    Columns are named by their titles, or by their numbers from 1 where the file has none. A source that is no table
    (an .npz file, a function) has nothing to be told, and refuses these keys.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True, defer_build=True
    )

    columns: Annotated[tuple[str, ...], Field(min_length=1)] | None = None  # the features; unless said, all others
    # The column of the class or target; a list names one or several real targets. Unless said: label, y, class or
    # target, else the last column.
    label: str | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    time: str | None = None  # when a row was measured: rows come in this order; unless said, a column that holds dates
    group: str | None = None  # the recording, person or machine of a row: no window has rows of two
    window: Annotated[int, Field(ge=2)] | None = None  # this number of rows is one sample, of shape (columns, window)
    stride: Annotated[int, Field(ge=1)] | None = None  # rows from one window to the next; unless said, half a window
    window_label: Literal["last", "majority"] = "last"  # a window's class: that of its last row, or of most of its rows
    # Seconds (or what else the column `time` counts in) that part two recordings; unless said, three usual steps.
    gap: Annotated[float, Field(gt=0)] | None = None
    # Cells without a value: "refuse" them, "drop" their rows, take the "last" value before them, or this number.
    empty: Literal["refuse", "drop", "last"] | float = "refuse"
    day_first: bool | None = None  # whether 3/4/2026 is in April; asked where dates have slashes
    encoding: str | None = None  # of a .csv file; unless said, UTF-8, or what its first bytes say
    query: str | None = None  # SELECT ... of an SQLite file; unless said, all of its only table
    size: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = None  # images: height and width
    colour: bool = True  # images: three channels, or one of grey
    most_rows: Annotated[int, Field(ge=1)] = MOST_ROWS  # of a table or query, or images: more are refused
    # Memory that the samples of a source may take; unless said, half of the machine's, at most 2048. A file that holds
    # more, as a small archive may, is refused before it is read.
    most_mb: Annotated[int, Field(ge=1)] | None = None

    @field_validator("encoding")
    @classmethod
    def _encoding_exists(cls, name: str | None) -> str | None:
        try:
            return name and codecs.lookup(name).name
        except LookupError:
            raise ValueError(f"'{name}' is no encoding; give 'utf-8', 'cp1252', 'latin-1' or another one") from None

    @model_validator(mode="after")
    def _means_something(self) -> "Reading":
        if self.window is None and self.stride is not None:
            raise ValueError(f"stride = {self.stride} is the way from window to window; give window too")
        if self.window_label == "majority" and isinstance(self.label, tuple):
            raise ValueError("window_label = 'majority' is for classes; real targets are those of the last row")
        return self

    @property
    def of_tables(self) -> list[str]:
        """The keys that were given and that only a table heeds."""
        known = Reading.model_fields
        return sorted(key for key in TABLE_KEYS if getattr(self, key) != known[key].default)


TABLE_KEYS = frozenset(Reading.model_fields) - {"query", "encoding", "size", "colour", "most_rows", "most_mb"}
