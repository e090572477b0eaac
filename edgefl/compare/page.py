"""A comparison as one HTML file that needs nothing but itself."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from edgefl.compare.table import MEDIAN, Score, cells

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
tr.single td { opacity: .7; }
tr.head td { font-weight: 600; }
img { max-width: 100%; background: white; border-radius: 4px; }
figure { margin: 1.5rem 0; } figcaption { opacity: .8; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid #8884; border-radius: 4px; font-size: .85rem; }
"""


def page(
    title: str,
    command: str,
    *,
    lines: Sequence[Score],
    levels: Sequence[float],
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
<h2>Scores</h2>
<div class="wide">{_table(lines, levels)}</div>
<p>Best, last and mean of the last five test accuracies; rounds until a level was first reached (- is never); mean
round forgetting; megabytes both ways; CPU seconds of the whole run. Every algorithm saw the same devices in the same
rounds for the same seed.</p>
<h2>Curves</h2>
<p>Bold: the median over the seeds. Thin: each seed.</p>
{figures}
<h2>Runs</h2>
{files}
</body>
</html>
"""


def _table(lines: Sequence[Score], levels: Sequence[float]) -> str:
    head, rows = cells(lines, levels)
    several = any(line.seed == MEDIAN for line in lines)
    body = []
    for line, row in zip(lines, rows, strict=True):
        kind = "head" if line.seed == MEDIAN or not several else "single"
        body.append(f'<tr class="{kind}">{"".join(f"<td>{escape(cell)}</td>" for cell in row)}</tr>')
    titles = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _figure(caption: str, path: Path) -> str:
    data = b64encode(path.read_bytes()).decode()
    return (
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
