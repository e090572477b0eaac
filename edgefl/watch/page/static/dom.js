// Small helpers around the document. Text goes in as text, never as markup: whatever a device says is shown, not read.

/** An element with attributes and children; a child that is no node becomes text. */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "on") for (const [event, what] of Object.entries(value)) node.addEventListener(event, what);
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Say something, unless it is said already: to write the same text again costs a layout. */
export function say(node, text) {
  const words = text === null || text === undefined ? "" : String(text);
  if (node.textContent !== words) node.textContent = words;
}

export function mark(node, name, value) {
  const words = String(value);
  if (node.dataset[name] !== words) node.dataset[name] = words;
}

export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

/** Children of `parent` for these items, in their order: known ones are kept and changed, others made or removed. */
export function keyed(parent, items, keyOf, make, change) {
  const known = parent.knownChildren ?? (parent.knownChildren = new Map());
  const wanted = new Set();
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    wanted.add(key);
    let node = known.get(key);
    if (!node) known.set(key, (node = make(item)));
    change(node, item);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  for (const [key, node] of known) {
    if (!wanted.has(key)) {
      node.remove();
      known.delete(key);
    }
  }
}

/** A link to the story of a device. */
export const deviceLink = (name) => `#device/${encodeURIComponent(name)}`;
