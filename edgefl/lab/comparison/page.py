"""A comparison as one HTML file that needs nothing but itself."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from edgefl.lab.comparison import significance
from edgefl.lab.comparison.curves import colours_of
from edgefl.lab.comparison.outcomes import FailedRun
from edgefl.lab.comparison.significance import VariantResult
from edgefl.lab.comparison.table import BOUNDED, DIVERGED, MEDIAN, Line, Score, cells
from edgefl.learn.evaluation.figures import metric_of, title_of

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
tr.single td { opacity: .7; }
tr.head td { font-weight: 600; }
tr.failed td { color: #c33; }
img { max-width: 100%; background: white; border-radius: 4px; }
td.best { text-decoration: underline; text-underline-offset: .2em; }
.curve { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .5em; }
figure { margin: 1.5rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
pre { padding: .8rem; border: 1px solid #8884; border-radius: 4px; font-size: .85rem; }
"""


# The columns that have a best value, in the order of the table: the highest accuracy, the lowest loss.
JUDGED: tuple[Callable[[Score], float], ...] = (lambda s: s.best, lambda s: s.last, lambda s: s.last_five)


def page(
    title: str,
    command: str,
    *,
    lines: Sequence[Line],
    levels: Sequence[float],
    standings: Sequence[VariantResult] = (),
    choices: tuple[Sequence[str], Sequence[Sequence[str]], Sequence[str]] = ((), (), ()),
    pictures: Mapping[str, Path],
    runs: Mapping[str, str],
) -> str:
    """The page: the command that made it, the table, the pictures, and the run behind each label."""
    figures = "\n".join(_figure(caption, path) for caption, path in pictures.items())
    files = "\n".join(
        f"<details><summary>{escape(label)}</summary><pre>{escape(text)}</pre></details>"
        for label, text in runs.items()
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<pre>{escape(command)}</pre>
{_chosen(*choices)}
<h2>Scores</h2>
<div class="wide">{_table(lines, levels)}</div>
<p>{_legend(lines)}; megabytes both ways; CPU seconds of the whole run. A free round asks
no device: it belongs to the round before it and is counted in no column but its own. Every algorithm saw the same
devices in the same rounds for the same seed. The best values are
underlined{_unsolved(lines)}{_bounded(lines)}{_diverged(lines)}{_private(lines)}.</p>
{_over_seeds(standings)}
{_failures(lines)}
<h2>Curves</h2>
<p>Lines are means over the seeds, bands one standard deviation to each side. Round 0 is the model before training.</p>
{figures}
<h2>Runs</h2>
{files}
</body>
</html>
"""


def _table(lines: Sequence[Line], levels: Sequence[float]) -> str:
    head, rows = cells(lines, levels)
    several = {line.label for line in lines if line.seed == MEDIAN}
    colours = colours_of([line.label for line in lines if isinstance(line, Score)])
    chief = [line for line in lines if isinstance(line, Score) and (line.label not in several or line.seed == MEDIAN)]
    pick = max if all(metric_of(line.measure).higher for line in chief) else min
    finite = [line for line in chief if not _astray(line)]
    best = [pick((column(line) for line in finite), default=0.0) for column in JUDGED]
    body = []
    for line, row in zip(lines, rows, strict=True):
        shown = [f"<td>{escape(cell)}</td>" for cell in row]
        kind = "failed" if isinstance(line, FailedRun) or _astray(line) else "single"
        if isinstance(line, Score) and line in chief:
            kind = "failed" if _astray(line) else "head"
            shown[0] = f'<td><span class="curve" style="background: {colours[line.label]}"></span>{escape(row[0])}</td>'
            for i, column in enumerate(JUDGED, 2):
                if line in finite and column(line) == best[i - 2]:
                    shown[i] = f'<td class="best">{escape(row[i])}</td>'
        body.append(f'<tr class="{kind}">{"".join(shown)}</tr>')
    titles = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _astray(line: Score) -> bool:
    """Whether the line is that of a run that diverged; a median has none of these in it."""
    return bool(line.diverged) and line.seed != MEDIAN


def _chosen(head: Sequence[str], rows: Sequence[Sequence[str]], cautions: Sequence[str]) -> str:
    """How the settings were chosen, if there was a grid."""
    if not rows:
        return ""
    edges = "".join(f"\n<p>{escape(line)}</p>" for line in cautions)
    return f"""<h2>Chosen</h2>
{_plain_table(head, rows)}
<p>By the mean of the last five scores on a validation part of the training data. Below, what was chosen is trained on
all training data and judged by the test data.</p>{edges}"""


def _plain_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _over_seeds(standings: Sequence[VariantResult]) -> str:
    """Means, intervals and tests, where there are several seeds."""
    if not any(standing.score.seeds + standing.diverged > 1 for standing in standings):
        return ""
    head, rows = significance.cells(standings)
    return f"""<h2>Over seeds</h2>
{_plain_table(head, rows)}
<p>Of the mean of the last five scores of each run. Intervals are Student's; p is that of a paired t-test, two-sided,
over the seeds that both have; Holm corrects it for the number of rows.</p>"""


def _legend(lines: Sequence[Line]) -> str:
    line = next((line for line in lines if isinstance(line, Score)), None)
    if line and line.measure == "loss":
        return (
            "Best, last and mean of the last five test losses, lower is better; mean absolute error, root of the mean"
            " squared error and R2 after the last round; rounds until R2 first reached a level (- is never), and the"
            " megabytes sent until then"
        )
    if line and line.measure != "accuracy":
        better = "higher" if metric_of(line.measure).higher else "lower"
        others = ", ".join(title_of(name) for name in line.figures)
        levels = f"; rounds until {title_of(line.levelled)} first reached a level (- is never)" if line.levelled else ""
        return (
            f"Best, last and mean of the last five test figures of {title_of(line.measure)}, {better} is better;"
            f" {others} after the last round{levels}{', and the megabytes sent until then' if levels else ''}"
        )
    return (
        "Best, last and mean of the last five test accuracies; balanced: the mean accuracy of all classes after the"
        " last round; rounds until a level was first reached (- is never), and the megabytes sent until then; mean"
        " round forgetting"
    )


def _bounded(lines: Sequence[Line]) -> str:
    some = any(line.bounded for line in lines if isinstance(line, Score))
    return f"; {BOUNDED}" if some else ""


def _diverged(lines: Sequence[Line]) -> str:
    return f"; {DIVERGED}" if any(line.diverged for line in lines if isinstance(line, Score)) else ""


def _unsolved(lines: Sequence[Line]) -> str:
    some = any(line.unsolved for line in lines if isinstance(line, Score))
    return "; unsolved counts the projections that had to be given up" if some else ""


def _private(lines: Sequence[Line]) -> str:
    if not any(line.as_published is not None for line in lines if isinstance(line, Score)):
        return ""
    return (
        "; epsilon is an upper bound for the device that spent most (- promises nothing), beside the figure of the"
        " paper's formula, which is no bound"
    )


def _failures(lines: Sequence[Line]) -> str:
    """What did not come to its end, or diverged, and why."""
    failed = [line for line in lines if isinstance(line, FailedRun)]
    astray = [line for line in lines if isinstance(line, Score) and _astray(line)]
    return _reasons("Failed", failed) + _reasons("Diverged", astray)


def _reasons(title: str, lines: Sequence[Line]) -> str:
    items = [f"<li>{escape(line.label)}, seed {line.seed}: {escape(line.why)}</li>" for line in lines]
    return f"<h2>{title}</h2>\n<ul>{''.join(items)}</ul>\n" if items else ""


def _figure(caption: str, path: Path) -> str:
    """A picture says in its title what it is."""
    data = b64encode(path.read_bytes()).decode()
    return f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{data}"></figure>'
