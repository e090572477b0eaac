// The figures at the top: how the fleet is, in one glance.

import { byId, h, keyed, mark, say } from "/static/dom.js";
import { clock, duration, integer, plural } from "/static/format.js";
import { isOnline, now } from "/static/state.js";
import { seconds } from "./needs.js";

export function drawTiles({ state, queue }) {
  const devices = [...state.devices.values()], online = devices.filter(isOnline).length;
  const at = now(state), waiting = queue.runs.filter((run) => run.position !== null);
  const working = queue.runs.filter((run) => run.phase === "working" || run.phase === "stopping");
  const next = queue.schedules.filter((one) => one.next_due).sort((a, b) => seconds(a.next_due) - seconds(b.next_due))[0];
  const tiles = [
    ["online", "Devices there", integer(online), `of ${integer(devices.length)}`, online || !devices.length ? "" : "bad"],
    ["working", "Runs at work", integer(working.length), `${integer(queue.at_once)} at most`, ""],
    ["waiting", "Runs waiting", integer(waiting.length), waiting.length ? `next: ${waiting.find((run) => run.position === lowest(waiting)).name}` : "the queue is empty", ""],
    ["next", "Next schedule", next ? within(seconds(next.next_due) - at) : "–", next ? next.name : "none is set", ""],
    ["samples", "Samples", integer(devices.reduce((sum, one) => sum + (one.samples ?? 0), 0)), `on ${plural(devices.filter((one) => one.samples).length, "device")}`, ""],
  ];
  keyed(byId("tiles"), tiles, ([id]) => id,
    ([id]) => h("dl", { class: "tile", data: { tile: id } }, h("dt"), h("dd", {}, h("span")), h("dd", { class: "under" }, h("bdi"))),
    (node, [, title, value, under, tone]) => {
      say(node.children[0], title);
      say(node.children[1].firstChild, value);
      mark(node, "tone", tone);
      say(node.children[2].firstChild, under);
    });
}

const lowest = (waiting) => Math.min(...waiting.map((run) => run.position));

/** Until then, in words that stay short. */
export const within = (left) => (left <= 0 ? "now" : left < 60 ? `in ${clock(left)}` : `in ${duration(left).replace(/ \d+ s$/, "")}`);
