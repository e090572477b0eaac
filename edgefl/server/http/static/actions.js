// What an operator may do with a run or a schedule, from this page. The server decides; the page asks and shows why not.

import { byId, h, say, show } from "/static/dom.js";

let mayAct = false, timer = 0;

/** What the person who looks may do. */
export const allow = (role) => { mayAct = role === "operator" || role === "admin"; };

const RUN = {
  queued: ["pause", "cancel"],
  working: ["pause", "cancel"],
  stopping: [],
  paused: ["resume", "cancel"],
};
const TITLES = { pause: "Pause", resume: "Resume", cancel: "Cancel" };

const title = (wish, isSchedule) => (isSchedule && wish === "cancel" ? "Remove" : TITLES[wish]);

export const ofRun = (run) => (mayAct ? RUN[run.phase] ?? [] : []);
export const ofSchedule = (schedule) => (mayAct ? [schedule.paused ? "resume" : "pause", "cancel"] : []);

/** Buttons for these wishes; the same ones are kept. */
export function drawButtons(place, name, wishes, isSchedule = false) {
  const wanted = `${name} ${wishes.join(" ")}`;
  if (place.dataset.wishes === wanted) return;
  place.dataset.wishes = wanted;
  place.replaceChildren(...wishes.map((wish) => h("button", {
    type: "button", class: wish === "cancel" ? "small quiet" : "small", "aria-label": `${title(wish, isSchedule)} ${name}`,
    on: { click: (event) => act(event.currentTarget, name, wish, isSchedule) },
  }, title(wish, isSchedule))));
}

/** A button that says of these alerts that a person knows of them. */
export function drawQuiet(place, ids, about) {
  const wanted = mayAct ? ids.join(" ") : "";
  if ((place.dataset.ids ?? "") === wanted) return;
  place.dataset.ids = wanted;
  const quiet = async (event) => {
    event.currentTarget.disabled = true;
    for (const id of ids) {
      const answer = await post(`/api/v1/alerts/${encodeURIComponent(id)}/quiet`);
      if (!answer?.ok) tell(`${about}: ${await reason(answer)}`);
    }
    dispatchEvent(new Event("edgefl:alerts"));
  };
  place.replaceChildren(...(wanted ? [h("button", { type: "button", class: "small", "aria-label": `I know of it: ${about}`, on: { click: quiet } }, "I know")] : []));
}

const post = (path) => fetch(path, { method: "POST" }).catch(() => null);

async function act(button, name, wish, isSchedule) {
  if (wish === "cancel" && !(await confirmed(name, isSchedule))) return;
  button.disabled = true;
  const answer = await post(`/api/v1/runs/${encodeURIComponent(name)}/${wish}`);
  button.disabled = false;
  if (!answer?.ok) tell(`${title(wish, isSchedule)} ${name}: ${await reason(answer)}`);
}

async function reason(answer) {
  if (!answer) return "the server does not answer";
  try {
    return (await answer.json()).error ?? `refused (${answer.status})`;
  } catch {
    return `refused (${answer.status})`;
  }
}

function confirmed(name, isSchedule) {
  const dialog = byId("ask");
  say(byId("ask-title"), isSchedule ? `Remove the schedule ${name}?` : `Cancel the run ${name}?`);
  say(byId("ask-text"), isSchedule
    ? "It starts no more runs. Those that it has started stay."
    : "It ends for good and cannot be resumed. What it has learnt so far stays in its folder.");
  say(byId("ask-yes"), isSchedule ? "Remove the schedule" : "Cancel the run");
  return new Promise((done) => {
    const end = (answer) => () => { dialog.dataset.answer = answer; dialog.close(); };
    byId("ask-yes").onclick = end("yes");
    byId("ask-no").onclick = end("no");
    dialog.dataset.answer = "no"; // Escape
    dialog.onclose = () => done(dialog.dataset.answer === "yes");
    dialog.showModal();
    byId("ask-no").focus();
  });
}

/** One sentence at the foot of the page, for a while. */
function tell(text) {
  say(byId("toast"), text);
  show(byId("toast"), true);
  clearTimeout(timer);
  timer = setTimeout(() => show(byId("toast"), false), 8000);
}
