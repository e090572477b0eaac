// The page of a fleet: what the server tells goes into one state, and the view in sight is drawn from it.

import { byId, h, keyed, mark, say, show } from "/static/dom.js";
import { integer } from "/static/format.js";
import { begin, isOnline, take } from "/static/state.js";
import { askAlerts } from "./alerts.js";
import { drawDevices, showDevices, tickDevices } from "./devices.js";
import { closeDrawer, deviceShown, drawDevice, drawRun, redrawRun } from "./drawer.js";
import { FleetConnection } from "./fleet_connection.js";
import { drawGroups } from "./groups.js";
import { drawNeeds } from "./needs_card.js";
import { needs } from "./needs.js";
import { allow } from "./actions.js";
import { drawQueue, drawSchedules } from "./queue_card.js";
import { drawRuns } from "./runs_table.js";
import { drawTiles } from "./tiles.js";

const LINES = { live: "live", away: "no answer; trying again", ended: "the server has ended", connecting: "connecting" };
const VIEWS = ["overview", "devices", "runs"];
const ALERTS = 15000; // milliseconds between two looks at the alerts

let state = begin(), queue = null, alerts = null, me = { fleets: [] }, fleet = "", view = "overview", frame = 0, connection = null;
let stale = true; // what is in sight has to be drawn again

function later() {
  stale = true;
  frame ||= requestAnimationFrame(draw);
}

function draw() {
  frame = 0;
  if (!state.run || !queue || !stale) return;
  stale = false;
  const page = { state, queue, alerts, fleet, needs: needs(state, queue, alerts, fleet) };
  drawHead(page);
  if (view === "overview") {
    drawTiles(page);
    drawNeeds(page);
    drawQueue(page);
    drawGroups(page);
  }
  if (view === "devices") drawDevices(page);
  if (view === "runs") {
    drawSchedules(page);
    drawRuns(page);
  }
  document.body.dataset.version = state.version;
}

function drawHead({ needs: wanted }) {
  const devices = [...state.devices.values()], online = devices.filter(isOnline).length;
  document.title = `${wanted.length ? `(${wanted.length}) ` : ""}${fleet} · edgefl`;
  say(byId("devices-count"), devices.length ? `${integer(online)}/${integer(devices.length)}` : "");
  const open = queue.runs.filter((run) => !run.ended).length;
  say(byId("runs-count"), open || "");
  const worst = wanted.some((one) => one.level === "bad") ? "failed" : wanted.length ? "waiting" : "finished";
  mark(byId("fleet-pill"), "state", worst);
  say(byId("fleet-pill"), wanted.length ? `${wanted.length} to look at` : "all well");
}

/** The address says what is in sight: the fleet, a view, and perhaps one device or run over it. */
function route() {
  const [name, place, ...rest] = location.hash.slice(1).split("/").map(decoded);
  const wanted = me.fleets.includes(name) ? name : fleet || me.fleets[0] || "";
  if (wanted && wanted !== fleet) enter(wanted);
  const item = rest.join("/");
  if (place === "device" && item) {
    drawDevice(fleet, item, state);
  } else if (place === "runs" && item) {
    view = "runs";
    drawRun(item, queue);
  } else {
    closeDrawer();
    view = VIEWS.includes(place) ? place : "overview";
  }
  for (const section of document.querySelectorAll("[data-section]")) show(section, section.dataset.section === view);
  for (const tab of document.querySelectorAll("[data-view]")) {
    tab.setAttribute("href", address(tab.dataset.view));
    if (tab.dataset.view === view) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  later();
}

const address = (place) => `#${encodeURIComponent(fleet)}/${place}`;

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

/** Show this fleet from now on. */
function enter(name) {
  fleet = name;
  connection?.close();
  [state, queue, alerts] = [begin(), null, null];
  say(byId("fleet-name"), fleet);
  byId("fleet-select").value = fleet;
  connection = new FleetConnection(fleet, {
    onDevices: (told) => {
      take(state, told);
      if (told.devices.some((one) => one.name === deviceShown())) drawDevice(fleet, deviceShown(), state);
      later();
    },
    onQueue: (told) => {
      queue = told;
      redrawRun(queue);
      later();
    },
    onLine: (line) => {
      mark(byId("line"), "line", line);
      say(byId("line"), LINES[line]);
    },
    mark: () => state.mark,
  });
  connection.open();
  lookForAlerts();
}

async function lookForAlerts() {
  const asked = fleet, answer = await askAlerts();
  if (asked !== fleet) return;
  alerts = answer;
  later();
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("edgefl-theme", root.dataset.theme); } catch { /* then it is not kept */ }
}

const back = () => { location.hash = address(view); };

byId("theme").addEventListener("click", switchTheme);
byId("drawer").addEventListener("close", () => { if (byId("drawer").dataset.open) back(); });
byId("drawer-close").addEventListener("click", back);
byId("drawer").addEventListener("click", (event) => { if (event.target === byId("drawer")) back(); });
byId("fleet-select").addEventListener("change", (event) => { location.hash = `${encodeURIComponent(event.target.value)}/${view}`; });
addEventListener("hashchange", route);
addEventListener("edgefl:alerts", lookForAlerts); // a person knows of one
addEventListener("edgefl:devices", (event) => {
  showDevices(event.detail);
  location.hash = address("devices");
  later();
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("content").focus(); });

setInterval(() => { if (!document.hidden && view === "devices") tickDevices(); }, 1000);
setInterval(() => { if (!document.hidden && view !== "devices") later(); }, 10000); // times go on though nothing happens
setInterval(() => { if (!document.hidden && fleet) lookForAlerts(); }, ALERTS);

const answer = await fetch("/me").catch(() => null);
if (answer?.ok) {
  me = await answer.json();
  allow(me.role);
  say(byId("who"), `${me.name} · ${me.role}`);
  say(byId("foot"), `edgefl ${me.version}`);
  keyed(byId("fleet-select"), me.fleets, (name) => name, (name) => h("option", { value: name }, name), () => {});
  show(byId("fleet-choice"), me.fleets.length > 1);
  show(byId("fleet-name").parentElement, me.fleets.length < 2);
  route();
} else {
  say(byId("fleet-name"), answer?.status === 401 ? "a token is needed" : "the server does not answer");
  if (answer?.status === 401) location.assign("/login");
}
