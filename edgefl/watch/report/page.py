"""The whole report: one file. Its policy allows its own style and nothing else: nothing in it can run or call out."""

from base64 import b64encode
from hashlib import sha256

from edgefl.system.moments import shown
from edgefl.watch.report.contents import Contents
from edgefl.watch.report.html import element, text
from edgefl.watch.report.sections import ALL

STYLE = """
:root { color-scheme: light dark; --paper: #fcfcfb; --ink: #1d1f21; --dim: #666b70; --rule: #d9dcdf; --card: #f2f3f4;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #b27d00; --c5: #3a9bd1; --c6: #444; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171a; --ink: #e4e6e8; --dim: #989ea5; --rule: #363b41;
  --card: #1f2327; --c0: #4db1e8; --c1: #ff9045; --c2: #3ecf9f; --c3: #e7a3c9; --c4: #e6b84c; --c5: #8ccbf0;
  --c6: #bbb; } }
* { box-sizing: border-box; }
body { font: 15px/1.55 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1.5rem 1rem 4rem;
  background: var(--paper); color: var(--ink); }
h1 { font-size: 1.7rem; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; border-bottom: 1px solid var(--rule); padding-bottom: .25rem; }
p { margin: .4rem 0; max-width: 60rem; overflow-wrap: anywhere; }
.dim { color: var(--dim); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.tiles div { background: var(--card); border-radius: 8px; padding: .6rem .8rem; }
.tiles dt { color: var(--dim); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(30rem, 100%), 1fr)); gap: 0 1.5rem; }
figure { margin: 1rem 0; }
figcaption { font-weight: 600; margin-bottom: .2rem; }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--rule); stroke-width: 1; }
.tick { fill: var(--dim); font-size: 12px; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.dot { fill: transparent; stroke-width: 0; }
.dot:hover { fill: currentColor; }
.c0 { stroke: var(--c0); color: var(--c0); } .c1 { stroke: var(--c1); color: var(--c1); }
.c2 { stroke: var(--c2); color: var(--c2); } .c3 { stroke: var(--c3); color: var(--c3); }
.c4 { stroke: var(--c4); color: var(--c4); } .c5 { stroke: var(--c5); color: var(--c5); }
.c6 { stroke: var(--c6); color: var(--c6); }
.f0 { fill: var(--c0); color: var(--c0); } .f1 { fill: var(--c1); color: var(--c1); }
.f2 { fill: var(--c2); color: var(--c2); } .f3 { fill: var(--c3); color: var(--c3); }
.f4 { fill: var(--c4); color: var(--c4); } .f5 { fill: var(--c5); color: var(--c5); }
.f6 { fill: var(--c6); color: var(--c6); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .9rem; color: var(--dim); }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em;
  background: currentColor; }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .28rem .7rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { color: var(--dim); font-weight: 500; }
.l, .w { text-align: left; }
td.w { white-space: normal; overflow-wrap: anywhere; min-width: 6rem; }
details { margin: .8rem 0; }
summary { cursor: pointer; color: var(--dim); }
pre { background: var(--card); padding: .8rem 1rem; border-radius: 8px; overflow-x: auto; font-size: .85rem;
  line-height: 1.45; }
.head { font-weight: 700; } .over { color: var(--c1); }
footer { margin-top: 3rem; color: var(--dim); font-size: .85rem; }
@media print { details { display: block; } body { max-width: none; } }
"""


def page(c: Contents) -> str:
    """The report as HTML."""
    snapshot = c.overview.snapshot()
    name = snapshot.run.name or c.folder
    digest = b64encode(sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    body = "".join((element("h2", text(title)) if title else "") + part(c, snapshot) for title, part in ALL.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{text(name)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{text(name)}</h1>
{body}
<footer>Written {text(shown(c.written_at))} from {text(c.folder)}. Every figure is that of its metrics.jsonl.</footer>
</body>
</html>
"""
