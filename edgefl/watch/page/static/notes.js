// What an operator should look at, the latest first.

import { byId, deviceLink, h, keyed, say, show } from "./dom.js";
import { ago } from "./format.js";
import { now } from "./state.js";

const MOST = 6;

export function drawNotes(state) {
  const notes = [...state.notes.values()].filter((note) => note.kind === "warning").slice(-MOST).reverse();
  show(byId("notes-card"), notes.length > 0);
  keyed(byId("notes"), notes, (note) => `${note.device ?? ""}\n${note.text}`,
    (note) => {
      const text = note.device ? h("a", { href: deviceLink(note.device) }, h("bdi", {}, note.text)) : h("bdi", {}, note.text);
      const words = h("span", {}, text, h("span", { class: "times" }));
      return h("li", {}, h("i", { class: "mark", data: { kind: note.kind } }), words, h("time"));
    },
    (node, note) => {
      say(node.querySelector(".times"), note.times > 1 ? `  ${note.times} times` : "");
      say(node.lastChild, ago(note.at, now(state)));
    });
}
