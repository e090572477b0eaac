// Every round in a row: its figures as they stand in metrics.jsonl, and who was slow or missing.

import { byId, deviceLink, h, say } from "./dom.js";
import { bytes, decimal, duration, integer, moment } from "./format.js";
import { growsBetter, scored, scoreFormat, scoreNames, scoreTitle } from "./scores.js";
import { opinion } from "./state.js";
import { Table } from "./table.js";

let table;

function figure(id, title, width, format, more = {}) {
  const of = more.of ?? opinion(id);
  return { id, title, width, right: true, of, draw: (cell, row) => {
    say(cell, format(of(row)));
    cell.dataset.value = of(row) ?? "";
  }, ...more };
}

const absent = (row) => row.missing.length + row.late_devices.length;
const longest = (row) => row.slowest?.took ?? null;

function drawMissing(cell, row) {
  const names = [...new Set([...row.missing, ...row.late_devices])].join(", ");
  say(cell, names || "–");
  cell.title = names;
  cell.className = names ? "warn" : "faint";
}

function drawSlowest(cell, row) {
  if (!row.slowest) {
    cell.replaceChildren("–");
    return;
  }
  if (!cell.querySelector("a")) cell.replaceChildren(h("a", {}, h("bdi")), h("span", { class: "faint" }));
  cell.firstChild.setAttribute("href", deviceLink(row.slowest.device));
  say(cell.firstChild.firstChild, row.slowest.device);
  say(cell.lastChild, ` ${duration(row.slowest.took)}`);
}

const columns = [
  figure("round", "Round", "7ch", integer, { descending: true }),
  figure("forgetting", "Forgetting", "10ch", decimal, { wide: 1060, descending: true, optional: true }),
  figure("devices", "Merged", "8ch", integer, { wide: 480, descending: true }),
  { id: "missing", title: "Missing", width: "minmax(8ch, 1fr)", wide: 640, descending: true, of: absent, draw: drawMissing },
  { id: "slowest", title: "Slowest", width: "minmax(17ch, 1.2fr)", wide: 560, descending: true, of: longest, draw: drawSlowest },
  figure("seconds", "Time", "9ch", duration, { descending: true }),
  figure("waiting_seconds", "Waiting", "9ch", duration, { wide: 760, descending: true }),
  figure("bytes_up", "Up", "9ch", bytes, { wide: 820, descending: true }),
  figure("bytes_down", "Down", "9ch", bytes, { wide: 960, descending: true }),
  figure("at", "Merged at", "17ch", moment, { wide: 1300, descending: true }),
];

const ofModel = new Map(); // name of a figure: its column

/** The columns of every run, and behind the number of the round those of the model's figures. */
function allColumns(rows) {
  for (const name of scoreNames(rows)) {
    if (ofModel.has(name)) continue;
    const title = scoreTitle(name), more = { of: scored(name), optional: true, descending: growsBetter(name), wide: ofModel.size ? 700 : 0 };
    ofModel.set(name, figure(name, title, `${Math.max(9, title.length + 2)}ch`, scoreFormat(name), more));
  }
  return [columns[0], ...ofModel.values(), ...columns.slice(1)];
}

export function drawRounds(state) {
  table ??= new Table(byId("rounds-table"), {
    label: "Rounds", columns, sort: { by: "round", down: true }, keyOf: (row) => row.round, empty: "No round is merged yet.",
  });
  table.set(state.rounds, allColumns(state.rounds));
}
