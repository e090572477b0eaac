// The page: what the coordinator tells goes into one state, and the view in sight is drawn from it.

import { recolour } from "./chart.js";
import { Connection } from "./connection.js";
import { closeDevice, deviceShown, drawDevice } from "./device.js";
import { byId, mark, say, show } from "./dom.js";
import { drawFleet, tickFleet } from "./fleet.js";
import { recolourMaps } from "./heatmap.js";
import { drawNotes } from "./notes.js";
import { drawNow, tick } from "./now.js";
import { drawCharts } from "./run.js";
import { drawRounds } from "./rounds.js";
import { openRuns } from "./runs.js";
import { begin, isOnline, notInRun, standing, take } from "./state.js";
import { drawTiles } from "./tiles.js";

const LINES = { live: "live", away: "no answer; trying again", ended: "the coordinator has ended", connecting: "connecting" };
const VIEWS = ["run", "fleet", "rounds", "runs"];

const state = begin();
let view = "run", line = "connecting", frame = 0, fresh = { rounds: true, devices: true };

function changed(told) {
  const parts = take(state, told);
  fresh = { rounds: fresh.rounds || parts.rounds, devices: fresh.devices || parts.devices };
  frame ||= requestAnimationFrame(draw);
  if (told.devices.some((device) => device.name === deviceShown())) drawDevice(deviceShown(), state);
}

function draw() {
  frame = 0;
  if (!state.run) return;
  drawHead();
  if (view === "run") {
    drawNow(state);
    drawTiles(state);
    drawNotes(state);
    if (fresh.rounds) drawCharts(state);
  }
  if (view === "fleet" && fresh.devices) drawFleet(state);
  if (view === "rounds" && fresh.rounds) drawRounds(state);
  fresh = { rounds: false, devices: false };
  document.body.dataset.version = state.version;
}

function drawHead() {
  const { run, devices } = state;
  say(byId("run-name"), run.name || "run");
  document.title = `${run.name || "run"} · edgefl`;
  say(byId("run-algorithm"), run.algorithm);
  show(byId("run-algorithm"), Boolean(run.algorithm));
  const pill = byId("run-state");
  say(pill, standing(run));
  mark(pill, "state", standing(run));
  drawLine();
  const fleet = [...devices.values()].filter((one) => !notInRun(one));
  say(byId("fleet-count"), fleet.length ? `${fleet.filter(isOnline).length}/${fleet.length}` : "");
  say(byId("rounds-count"), run.rounds ? `${run.rounds_done}/${run.rounds}` : "");
  say(byId("foot-run"), run.run_id ? `run ${run.run_id} at ${run.broker}` : "");
  say(byId("foot-key"), run.key ? `models are signed by ${run.key}` : "");
}

/** The connection to the server of this page: of an interrupted run that is no coordinator. */
function drawLine() {
  const shown = line === "live" && state.run?.state === "interrupted" ? "ended" : line;
  mark(byId("line"), "line", shown);
  say(byId("line"), LINES[shown]);
}

/** The address says what is in sight: a view, and perhaps the story of a device over it. */
function route() {
  const [first, name] = location.hash.slice(1).split("/", 2);
  if (first === "device" && name) {
    drawDevice(decodeURIComponent(name), state);
  } else {
    closeDevice();
    view = VIEWS.includes(first) ? first : "run";
  }
  for (const section of document.querySelectorAll("[data-section]")) show(section, section.dataset.section === view);
  for (const tab of document.querySelectorAll("[data-view]")) {
    if (tab.dataset.view === view) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  fresh = { rounds: true, devices: true };
  if (view === "runs") openRuns();
  frame ||= requestAnimationFrame(draw);
}

function repaint() {
  recolour();
  recolourMaps();
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("edgefl-theme", root.dataset.theme); } catch { /* then it is not kept */ }
  repaint();
}

byId("theme").addEventListener("click", switchTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
byId("device").addEventListener("close", () => { if (deviceShown()) location.hash = view; });
byId("device-close").addEventListener("click", () => { location.hash = view; });
byId("device").addEventListener("click", (event) => { if (event.target === byId("device")) location.hash = view; });
addEventListener("hashchange", route);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("content").focus(); });

setInterval(() => {
  if (document.hidden || !state.run) return;
  if (view === "run" && !state.run.done) tick(state);
  if (view === "fleet") tickFleet();
}, 1000);

show(byId("back"), location.pathname !== "/"); // a server shows it as one of many
new Connection({
  onChange: changed,
  onLine: (now) => { line = now; drawLine(); },
  mark: () => state.mark,
}).open();
route();
