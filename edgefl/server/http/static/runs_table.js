// All runs that the server tells of: those that work and wait, and the last that have ended.

import { byId, h, keyed, mark, say, show } from "/static/dom.js";
import { duration, integer, moment, plural } from "/static/format.js";
import { now } from "/static/state.js";
import { Table } from "/static/table.js";
import { drawButtons, ofRun } from "./actions.js";
import { seconds } from "./needs.js";
import { far, pillOf } from "./queue_card.js";

const RANK = ["working", "stopping", "queued", "paused", "failed", "cancelled", "finished"];
const FILTERS = [
  ["all", "All", () => true],
  ["open", "Open", (run) => !run.ended],
  ["failed", "Failed", (run) => run.phase === "failed"],
  ["finished", "Finished", (run) => run.phase === "finished"],
];
let table, filter = "all", current;

export function drawRuns(page) {
  current = page;
  const { runs, ended } = page.queue, told = runs.filter((run) => run.ended).length;
  table ??= new Table(byId("runs-table"), { label: "Runs", columns: COLUMNS, sort: { by: "phase", down: false }, keyOf: (run) => run.name });
  keyed(byId("runs-filters"), FILTERS, ([id]) => id,
    ([id]) => h("button", { type: "button", on: { click: () => { filter = id; drawRuns(current); } } }),
    (button, [id, title, holds]) => {
      say(button, `${title} ${integer(runs.filter(holds).length)}`);
      button.setAttribute("aria-pressed", id === filter);
    });
  say(byId("runs-hint"), ended > told ? `The last ${told} of ${plural(ended, "run")} that ended; all of them: edgefl run history` : "");
  show(byId("runs-hint"), ended > told);
  table.emptyText = runs.length ? "No run is like that." : "No run yet: edgefl run submit run.toml";
  table.set(runs.filter(FILTERS.find(([id]) => id === filter)[2]));
}

function drawName(cell, run) {
  const link = cell.firstChild ?? cell.appendChild(h("a", { class: "name" }, h("bdi")));
  const href = `#${encodeURIComponent(current.fleet)}/runs/${encodeURIComponent(run.name)}`;
  say(link.firstChild, run.name);
  if (link.getAttribute("href") !== href) link.setAttribute("href", href);
}

function drawPhase(cell, run) {
  const pill = cell.firstChild ?? cell.appendChild(h("span", { class: "pill" }));
  say(pill, run.position ? `${run.phase} ${run.position}` : run.phase);
  mark(pill, "state", pillOf(run.phase));
}

const took = (run) => (run.started ? (seconds(run.ended) ?? now(current.state)) - seconds(run.started) : null);
const words = (of) => (cell, run) => {
  say(cell, of(run));
  if (cell.title !== cell.textContent) cell.title = cell.textContent;
};

/** What works, what waits in its order, what is paused; then what failed and what ended, the newest first. */
const order = (run) => 1e11 * RANK.indexOf(run.phase) + (run.position ?? -(seconds(run.ended ?? run.started) ?? 0));

const COLUMNS = [
  { id: "name", title: "Run", width: "minmax(10ch, 1.1fr)", of: (run) => run.name, draw: drawName },
  { id: "phase", title: "State", width: "12ch", of: order, draw: drawPhase },
  { id: "about", title: "Where it stands", width: "minmax(14ch, 1.8fr)", wide: 560, of: (run) => run.reason || far(run) || null, draw: words((run) => [far(run), run.reason].filter(Boolean).join(" · ")) },
  { id: "by", title: "By", width: "minmax(8ch, .6fr)", wide: 900, of: (run) => run.schedule || run.by, draw: words((run) => run.schedule || run.by) },
  { id: "priority", title: "Priority", width: "8ch", wide: 1000, right: true, descending: true, of: (run) => run.priority, draw: (cell, run) => say(cell, integer(run.priority)) },
  { id: "submitted", title: "Submitted", width: "17ch", wide: 1080, descending: true, of: (run) => seconds(run.submitted), draw: (cell, run) => say(cell, moment(seconds(run.submitted))) },
  { id: "took", title: "Time", width: "11ch", wide: 760, right: true, descending: true, of: took, draw: (cell, run) => say(cell, duration(took(run))) },
  { id: "ended", title: "Ended", width: "17ch", wide: 700, descending: true, of: (run) => seconds(run.ended), draw: (cell, run) => say(cell, moment(seconds(run.ended))) },
  { id: "acts", title: "", width: "17ch", wide: 480, of: () => 0, draw: (cell, run) => {
    const place = cell.firstChild ?? cell.appendChild(h("div", { class: "buttons" }));
    drawButtons(place, run.name, ofRun(run));
  } },
];
