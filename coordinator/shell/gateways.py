"""Whether a run takes the answer of a gateway, which is the weighted mean of the answers behind it. Pure."""

from edgefl.job.config.schema import RunFile
from edgefl.learn.contract import traits_of

Objection = tuple[str, str]  # its code, and the reason in one line


def objection(id: str, speaks_for: int, run: RunFile) -> Objection | None:
    """Return why this run refuses a gateway for this number of devices; None for a device, or if it does not."""
    if speaks_for == 1:
        return None
    gateway = f"gateway '{id}' speaks for {speaks_for} devices"
    if speaks_for > run.guards.speaks_for:
        return "gateway.many", f"{gateway}, and the run has guards.speaks_for = {run.guards.speaks_for}: raise it"
    if run.purposes.describes:
        why = f"{gateway}, and task.normalise or task.class_weights asks each device what its data are like"
        return "gateway.individual", f"{why}: set them to numbers, or bridge the site (edgefl fleet site)"
    for stage in run.make_stages():
        if not traits_of(stage).nests:
            why = f"{gateway} by their mean, and aggregation '{stage.name}' needs every device's own answer"
            return "gateway.individual", f"{why}: bridge the site instead (edgefl fleet site), or choose other stages"
    return None
