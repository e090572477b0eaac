// Runs before this one, side by side: whichever are chosen, over their rounds.

import { Chart } from "./chart.js";
import { byId, h, keyed, say } from "./dom.js";
import { bytes, decimal, duration, integer, moment } from "./format.js";
import { byCoordinator, scoreFormat, scoreNames, scoreTitle } from "./scores.js";

const MOST = 8;
const chosen = new Map(); // name: its rounds
let listed = [], measure = null, chart = null;

export async function openRuns() {
  const answer = await fetch("api/runs").catch(() => null);
  if (!answer?.ok) return;
  listed = (await answer.json()).runs;
  const here = listed.find((run) => run.here) ?? listed[0];
  const first = here ? [here, ...listed.filter((one) => one !== here).slice(0, 2)] : [];
  if (!chosen.size) for (const run of first) await choose(run.name, true);
  draw();
}

async function choose(name, wanted) {
  if (!wanted) {
    chosen.delete(name);
    return;
  }
  const answer = await fetch(`api/runs/${encodeURIComponent(name)}`).catch(() => null);
  if (answer?.ok && chosen.size < MOST) chosen.set(name, (await answer.json()).rounds);
}

function draw() {
  const present = scoreNames([...chosen.values()].flat());
  if (!present.includes(measure)) measure = present[0] ?? "accuracy";
  keyed(byId("runs-measure"), present, (name) => name,
    (name) => h("button", { type: "button", on: { click: () => { measure = name; draw(); } } }),
    (button, name) => { say(button, scoreTitle(name)); button.setAttribute("aria-pressed", name === measure); });
  drawChart();
  drawTable();
}

const valueOf = (row) => (row ? byCoordinator(measure)(row) : null);

const colourOf = (name) => `--s${1 + ([...chosen.keys()].indexOf(name) % MOST)}`;

function drawChart() {
  chart?.close();
  const numbers = [...new Set([...chosen.values()].flatMap((rows) => rows.map((row) => row.round)))].sort((a, b) => a - b);
  const byRound = new Map([...chosen].map(([name, rows]) => [name, new Map(rows.map((row) => [row.round, row]))]));
  const at = (name, round) => valueOf(byRound.get(name).get(round));
  const series = [...chosen.keys()].map((name) => ({ label: name, colour: colourOf(name), of: (row) => at(name, row.round) }));
  const plan = { id: "runs", title: scoreTitle(measure), series, format: scoreFormat(measure), sync: "runs", height: 300, empty: "Choose a run below." };
  chart = new Chart(byId("runs-chart"), plan);
  chart.root.className = "chart";
  chart.set(numbers.map((round) => ({ round })));
}

const TITLES = ["Run", "Algorithm", "Rounds", "Judged by", "Last", "Best", "Loss", "Traffic up", "Time", "Ended"];

function drawTable() {
  const title = (words, i) => h("th", { scope: "col", class: i > 1 ? "right" : "" }, words);
  const head = h("thead", {}, h("tr", {}, ...TITLES.map(title)));
  byId("runs-table").replaceChildren(head, h("tbody", {}, ...listed.map(runRow)));
  if (!listed.length) byId("runs-table").replaceChildren(h("caption", {}, "No run has left its figures here yet."));
}

function runRow(run) {
  const format = run.measure ? scoreFormat(run.measure) : decimal;
  const figures = [
    integer(run.rounds), run.measure ? scoreTitle(run.measure) : "–", format(run.score), format(run.best_score),
    decimal(run.loss), bytes(run.bytes_up), duration(run.seconds), run.finished ? moment(run.at) : "not finished",
  ];
  const cells = figures.map((text) => h("td", { class: "right" }, text));
  return h("tr", { data: { run: run.name } }, h("td", {}, choice(run)), h("td", {}, run.algorithm || "–"), ...cells);
}

/** The name of a run, and whether its curve is drawn. */
function choice(run) {
  const drawn = chosen.has(run.name), swatch = h("i", { class: "swatch" });
  if (drawn) swatch.style.background = `var(${colourOf(run.name)})`;
  const change = async (event) => {
    await choose(run.name, event.target.checked);
    draw();
  };
  const box = h("input", { type: "checkbox", checked: drawn, disabled: !drawn && chosen.size >= MOST, on: { change } });
  return h("label", {}, box, swatch, h("bdi", {}, run.name), run.here ? h("span", { class: "hint" }, "this one") : null);
}
