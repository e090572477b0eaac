"""Open alerts, as Prometheus reads them."""

from collections import Counter

from edgefl.server.decide.alerts import KINDS, AlertState
from edgefl.watch.exporters.prometheus import MetricFamily, line

OPEN = MetricFamily("edgefl_alerts_open", "gauge", "Alerts that are open; those of the server have no fleet.")
WAITING = MetricFamily("edgefl_alerts_undelivered", "gauge", "Messages that no receiver has taken yet.")


def text(state: AlertState, fleets: tuple[str, ...], off: frozenset[str] = frozenset()) -> str:
    """Both families; a kind without an open alert is told as zero, so that rules see it end."""
    counts = Counter((alert.fleet, alert.kind) for alert in state.open)
    kinds = [kind for kind in KINDS if kind not in off]
    places = [(fleet, kind) for fleet in (*sorted(fleets), "") for kind in kinds if fleet or kind == "disk"]
    lines = _header(OPEN)
    lines += [line(OPEN.name, {"fleet": fleet, "kind": kind}, counts[fleet, kind]) for fleet, kind in places]
    waiting = Counter(one.channel.partition("-")[0] for one in state.outbox.values())
    lines += _header(WAITING)
    lines += [line(WAITING.name, {"channel": channel}, waiting[channel]) for channel in ("mail", "webhook")]
    return "\n".join(lines) + "\n"


def _header(metric: MetricFamily) -> list[str]:
    return [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
