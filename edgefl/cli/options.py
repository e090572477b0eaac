"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

RunPath = Annotated[Path, typer.Argument(help="The run file (TOML); `edgefl init` writes one.", show_default=False)]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="Override a key: --set algorithm.lr=0.05", show_default=False)
]
DataRoot = Annotated[
    Path | None, typer.Option(help="Where data sets are (else EDGEFL_DATA, ../shared/data, ~/.cache/edgefl).")
]
Forgetting = Annotated[
    bool, typer.Option("--forgetting", help="Also tell where each round forgets: in training, in merging.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without TLS or without identities, although others can listen and speak.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line on stdout.")]
Where = Annotated[
    str | None,
    typer.Option(help="Only devices that this means: \"site == 'north' and memory_mb >= 900\".", show_default=False),
]
FleetName = Annotated[str, typer.Option("--fleet", help="The name of the fleet.")]
Log = Annotated[str, typer.Option("--log", help="debug, info, warning or error.")]


def with_flags(
    sets: list[str] | None, *, forgetting: bool, page: str | None = None, no_page: bool = False
) -> list[str]:
    """What `--set` says, and the flags that are short for one."""
    flags = ["run.forgetting=true"] if forgetting else []
    if page is not None:
        from edgefl.job.config.page import place

        flags += [f"page.{name}={value}" for name, value in place(page).items()]
    return [*(sets or ()), *flags, *(["page.serve=false"] if no_page else [])]
