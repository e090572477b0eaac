// The list of what needs a person now.

import { byId, h, keyed, mark, say, show } from "/static/dom.js";
import { ago, byName, integer, plural } from "/static/format.js";
import { now } from "/static/state.js";
import { drawQuiet } from "./actions.js";
import { quieted } from "./needs.js";
import { showThese } from "./devices.js";

const NAMED = 3; // devices of one entry that are named

export function drawNeeds({ state, needs, alerts, fleet }) {
  keyed(byId("needs"), needs, (one) => one.key, make, (node, one) => change(node, one, fleet, now(state)));
  show(byId("needs-none"), needs.length === 0);
  show(byId("needs-count"), needs.length > 0);
  say(byId("needs-count"), integer(needs.length));
  const known = quieted(alerts, fleet);
  show(byId("needs-known"), known > 0);
  say(byId("needs-known"), `and ${plural(known, "alert")} that a person knows of`);
}

const make = () => h("li", {},
  h("i", { class: "mark" }),
  h("div", {}, h("p", { class: "what" }, h("b")), h("p", { class: "text" }), h("ul", { class: "named" }), h("p", { class: "remedy" })),
  h("div", { class: "aside" }, h("time"), h("div", { class: "buttons" })));

function change(node, one, fleet, at) {
  const [sign, body, aside] = node.children, [time, buttons] = aside.children, [what, text, named, remedy] = body.children;
  mark(sign, "level", one.level);
  say(what.firstChild, one.title);
  if (one.run) link(what, `/runs/${encodeURIComponent(one.run)}/`);
  const abouts = new Set(one.devices.map((device) => device.about)), alike = abouts.size === 1 && one.devices.length > 1;
  const shared = one.text || (alike ? [...abouts][0] : "");
  say(text, shared);
  show(text, Boolean(shared));
  mark(named, "alike", alike);
  drawNamed(named, one, fleet, alike);
  say(remedy, one.remedy ?? "");
  show(remedy, Boolean(one.remedy));
  say(time, one.since ? when(one.since, at) : "");
  drawQuiet(buttons, one.ids ?? [], one.title);
}

/** A certificate may end in days that come. */
const when = (since, at) => (since > at ? "" : ago(since, at));

/** What failed has a page, or a place in the list of runs that leads to its log. */
function link(what, href) {
  if (what.children.length === 1) what.append(" ", h("a", { href }, "open"));
}

function drawNamed(list, one, fleet, alike) {
  const sorted = [...one.devices].sort((a, b) => byName(a.name, b.name)), first = sorted.slice(0, NAMED), more = sorted.length - first.length;
  const items = [...first.map((device) => ({ id: `device ${device.name}`, ...device })), ...(more > 0 ? [{ id: "more" }] : [])];
  keyed(list, items, (item) => item.id,
    (item) => (item.id === "more"
      ? h("li", {}, h("button", { type: "button", class: "link" }))
      : h("li", {}, h("a", { class: "name", href: `#${encodeURIComponent(fleet)}/device/${encodeURIComponent(item.name)}` }, h("bdi", {}, item.name)), h("span"))),
    (node, item) => {
      if (item.id !== "more") {
        say(node.lastChild, alike ? "" : item.about);
        return;
      }
      say(node.firstChild, `and ${integer(more)} more`);
      node.firstChild.onclick = () => showThese(one.title, sorted.map((device) => device.name));
    });
}
