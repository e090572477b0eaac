"""Drawings for a report: curves, heat maps and bars as inline SVG. Colours are classes, which follow the theme."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

from edgefl.watch.report.html import element, text

WIDTH, HEIGHT = 540, 240
LEFT, RIGHT, TOP, BOTTOM = 48, 8, 10, 28
LEAST = 1e-300  # of a span: smaller powers of ten are no numbers
POINTS = 600  # as many have a word of their own, which a mouse finds

Number = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Curve:
    """A line; None is a gap."""

    name: str
    values: Sequence[float | None]


def percent(value: float) -> str:
    return f"{value:.0%}" if value == round(value, 2) else f"{value:.1%}"


def plain(value: float) -> str:
    return f"{value:.4g}"


def curves(  # noqa: PLR0917 - a drawing
    title: str,
    across: Sequence[float],
    lines: Sequence[Curve],
    number: Number = plain,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """Curves over rounds; nothing, where there is nothing to draw."""
    known = [v for line in lines for v in line.values if v is not None and isfinite(v)]
    if not known or not across:
        return ""
    frame = _Frame(across[0], across[-1], min(known) if low is None else low, max(known) if high is None else high)
    parts = frame.grid(number)
    for i, line in enumerate(lines):
        points = [
            (frame.x(x), None if v is None or not isfinite(v) else frame.y(v))
            for x, v in zip(across, line.values, strict=True)
        ]
        parts.append(f'<path class="line c{i % 7}" d="{_path(points)}"/>')
        if len(points) <= POINTS:
            for (x, y), at, v in zip(points, across, line.values, strict=True):
                if y is not None and v is not None:
                    about = text(f"round {at:g}: {line.name} {number(v)}")
                    parts.append(
                        f'<circle class="dot c{i % 7}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{about}</title></circle>'
                    )
    return _figure(title, parts, [line.name for line in lines] if len(lines) > 1 else [])


def stacked(title: str, across: Sequence[float], layers: Sequence[Curve], number: Number = plain) -> str:
    """Bars of several parts, one bar for each round."""
    layers = [
        Curve(one.name, [v if v is not None and isfinite(v) and v > 0 else 0.0 for v in one.values]) for one in layers
    ]
    totals = [sum(v or 0.0 for v in bar) for bar in zip(*(layer.values for layer in layers), strict=True)]
    if not totals or max(totals) <= 0:
        return ""
    frame = _Frame(across[0] - 0.5, across[-1] + 0.5, 0.0, max(totals))
    width = max(0.4, 0.8 * (frame.x(1) - frame.x(0)))
    parts, floors = frame.grid(number), [0.0] * len(totals)
    for i, layer in enumerate(layers):
        for j, (x, v) in enumerate(zip(across, layer.values, strict=True)):
            if not v:
                continue
            top, bottom = frame.y(floors[j] + v), frame.y(floors[j])
            about = f"<title>{text(f'round {x:g}: {layer.name} {number(v)}')}</title>" if len(totals) <= POINTS else ""
            box = f'x="{frame.x(x) - width / 2:.1f}" y="{top:.1f}" width="{width:.2f}" height="{bottom - top:.1f}"'
            parts.append(f'<rect class="f{i % 7}" {box}>{about}</rect>')
            floors[j] += v
    return _figure(title, parts, [layer.name for layer in layers], filled=True)


def heat(title: str, across: Sequence[float], rows: Sequence[Curve]) -> str:
    """How good each of many is over the rounds: a dark cell is bad, a gap is not known."""
    if not rows or not across:
        return ""
    names = max(len(row.name) for row in rows)
    left, cell = min(180, 16 + 7 * min(names, 24)), max(6, min(18, 300 / len(rows)))
    width = (WIDTH - left - RIGHT) / len(across)
    height = TOP + cell * len(rows) + BOTTOM
    parts = []
    for i, row in enumerate(rows):
        y = TOP + i * cell
        if cell >= 9 or i % 5 == 0:
            at = f'x="{left - 6}" y="{y + cell * 0.75:.1f}" text-anchor="end"'
            parts.append(f'<text class="tick" {at}>{text(row.name[:24])}</text>')
        for j, v in enumerate(row.values):
            if v is None or not isfinite(v):
                continue
            box = f'x="{left + j * width:.2f}" y="{y:.1f}" width="{width + 0.3:.2f}" height="{cell - 1:.1f}"'
            about = text(f"round {across[j]:g}: {row.name} {percent(v)}")
            told = f"<title>{about}</title>" if len(across) * len(rows) <= 10 * POINTS else ""
            parts.append(f'<rect fill="{_shade(v)}" {box}>{told}</rect>')
    for j in range(0, len(across), max(1, len(across) // 8)):
        x = left + (j + 0.5) * width
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height - 10:.1f}" text-anchor="middle">{across[j]:g}</text>')
    return _figure(title, parts, [], height=height)


class _Frame:
    """Where the axes are, and what a value comes to on the paper."""

    def __init__(self, first: float, last: float, low: float, high: float) -> None:
        self.first, self.last = first, max(last, first + 1)
        steps = _ticks(low, high if high > low else low + (abs(low) or 1.0))
        self.ticks = steps
        self.low, self.high = min(low, steps[0]), max(high, steps[-1])

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - self.first) / (self.last - self.first)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - self.low) / (self.high - self.low)

    def grid(self, number: Number) -> list[str]:
        """Lines and words of both axes."""
        parts = []
        for tick in self.ticks:
            y = self.y(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(
                f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text(number(tick))}</text>'
            )
        for tick in _ticks(self.first, self.last):
            if tick == int(tick) and self.first <= tick <= self.last:
                x = self.x(tick)
                parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{tick:g}</text>')
        return parts


def _ticks(low: float, high: float) -> list[float]:
    """Four to nine round numbers from below `low` to above `high`."""
    span = high - low
    step = 10 ** floor(log10(span / 4)) if span > LEAST else 1.0
    step = next((step * factor for factor in (1, 2, 2.5, 5, 10) if span / (step * factor) <= 6), step * 10)
    start, count = floor(low / step + 1e-9), 0
    ticks = [start * step]
    while ticks[-1] < high - 1e-9 * span and count < 20:
        count += 1
        ticks.append((start + count) * step)
    return [round(tick, 12) for tick in ticks]


def _path(points: Sequence[tuple[float, float | None]]) -> str:
    words, lifted = [], True
    for x, y in points:
        if y is not None:
            words.append(f"{'M' if lifted else 'L'}{x:.1f} {y:.1f}")
        lifted = y is None
    return "".join(words)


def _shade(share: float) -> str:
    """From dark blue (nothing) to yellow (all): told apart by colour-blind readers, and on both themes."""
    stops = ((0, 32, 76), (66, 78, 108), (124, 123, 120), (188, 175, 111), (255, 233, 69))
    place = min(1.0, max(0.0, share)) * (len(stops) - 1)
    i = min(int(place), len(stops) - 2)
    mixed = (round(a + (b - a) * (place - i)) for a, b in zip(stops[i], stops[i + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _figure(
    title: str, parts: Sequence[str], names: Sequence[str], *, height: float = HEIGHT, filled: bool = False
) -> str:
    about = f'role="img" aria-label="{text(title)}" viewBox="0 0 {WIDTH} {height:.0f}"'
    kind = "f" if filled else "c"
    legend = element(
        "p",
        *(element("span", f'<i class="key {kind}{i % 7}"></i>', text(name)) for i, name in enumerate(names)),
        css="legend",
    )
    caption = element("figcaption", text(title))
    return element("figure", caption, f"<svg {about}>{''.join(parts)}</svg>", legend if names else "")
