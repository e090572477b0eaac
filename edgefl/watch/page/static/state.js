// What this browser knows of the run: everything at first, then rows that have changed. Nothing here touches the document.

export function begin() {
  return { run: null, open: null, at: 0, mark: "", rounds: [], devices: new Map(), notes: new Map(), signs: [], ahead: 0, version: 0 };
}

/** Take in what the server told; gives back which parts are new. */
export function take(state, told) {
  if (told.whole) Object.assign(state, { rounds: [], devices: new Map(), notes: new Map(), signs: Object.entries(told.signs) });
  Object.assign(state, { run: told.run, open: told.open, at: told.at, mark: told.mark, version: state.version + 1 });
  state.ahead = told.now - Date.now() / 1000; // by how much the server's clock is ahead of ours
  for (const row of told.rounds) put(state.rounds, row);
  for (const row of told.devices) state.devices.set(row.name, row);
  for (const note of told.notes) {
    const key = `${note.device ?? ""}\n${note.text}`;
    state.notes.delete(key); // to the end: the newest last
    state.notes.set(key, note);
  }
  while (state.notes.size > 100) state.notes.delete(state.notes.keys().next().value);
  return { rounds: told.whole || told.rounds.length > 0, devices: told.whole || told.devices.length > 0 };
}

function put(rounds, row) {
  const last = rounds.length ? rounds[rounds.length - 1].round : 0;
  if (row.round > last) {
    rounds.push(row);
    return;
  }
  const place = rounds.findIndex((one) => one.round >= row.round);
  rounds.splice(place, rounds[place].round === row.round ? 1 : 0, row);
}

/** The server's time. */
export const now = (state) => Date.now() / 1000 + state.ahead;

export const WORKING = new Set(["asked", "training", "sending"]);
export const TROUBLE = new Set(["declined", "refused", "quarantined", "no data"]);

export const isOnline = (device) => device.state !== "offline" && device.state !== "barred";
/** The run is for other devices, and nothing is wrong with this one. */
export const notInRun = (device) => device.state === "barred" && device.why.startsWith("not in this run");
/** A device that needs a person now, whatever it did before. */
export const isFailing = (device, at) => TROUBLE.has(device.state) || Boolean(device.data_trouble)
  || (device.state === "barred" && !notInRun(device))
  || (device.state === "offline" && device.certificate_ends !== null && device.certificate_ends <= at);
export const inTrouble = (device, at) => isFailing(device, at) || device.strikes > 0;

/** In one word where the run stands, what is wrong first. */
export function standing(run) {
  if (run.failed) return "failed";
  if (run.paused) return "paused";
  return run.state === "starting" && run.waiting ? "waiting" : run.state;
}

/** What is said of a round's model beside its figures: by the coordinator, else by the devices. */
export const opinion = (name) => (row) => row[name] ?? row.evaluated?.[name] ?? null;
