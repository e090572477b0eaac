// Figures for people. null is a dash: not known.

export const DASH = "–";
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export const percent = (value, digits = 1) => (known(value) ? `${(100 * value).toFixed(digits)} %` : DASH);
export const integer = (value) => (known(value) ? Math.round(value).toLocaleString("en") : DASH);

export function decimal(value) {
  if (!known(value)) return DASH;
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(2);
  return size >= 100 ? value.toFixed(1) : value.toFixed(3);
}

/** A vital sign, by its unit. */
export function reading(value, unit, digits = 1) {
  if (!known(value) && typeof value !== "boolean") return DASH;
  if (unit === "celsius") return `${value.toFixed(digits)} °C`;
  if (unit === "bytes") return bytes(value);
  if (unit === "share") return percent(value, 0);
  return unit === "flag" ? (value ? "yes" : "no") : decimal(value);
}

/** Milliseconds of one step of training. */
export const pace = (seconds) => (known(seconds) ? (1000 * seconds).toFixed(seconds < 0.1 ? 1 : 0) : DASH);

export function bytes(count) {
  if (!known(count)) return DASH;
  for (const unit of ["B", "kB", "MB"]) {
    if (Math.abs(count) < 1000) return unit === "B" ? `${Math.round(count)} B` : `${count.toFixed(1)} ${unit}`;
    count /= 1000;
  }
  return `${count.toFixed(2)} GB`;
}

export function duration(seconds) {
  if (!known(seconds)) return DASH;
  const size = Math.max(0, seconds);
  if (size < 0.0995) return `${Math.round(1000 * size)} ms`;
  if (size < 10) return `${size.toFixed(1)} s`;
  if (size < 100) return `${Math.round(size)} s`;
  if (size < 3600) return `${Math.floor(size / 60)} min ${Math.round(size % 60)} s`;
  if (size < 86400 * 2) return `${Math.floor(size / 3600)} h ${Math.floor((size % 3600) / 60)} min`;
  return `${Math.floor(size / 86400)} days`;
}

/** For clocks that tick: whole seconds. */
export function clock(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s >= 86400) return duration(s);
  const two = (n) => String(n).padStart(2, "0");
  const [hours, minutes, rest] = [Math.floor(s / 3600), Math.floor((s % 3600) / 60), two(s % 60)];
  return hours ? `${hours}:${two(minutes)}:${rest}` : `${minutes}:${rest}`;
}

const VIRTUAL = 1e8; // seconds: earlier than 1973 is the clock of an emulated fleet

export function moment(at) {
  if (!known(at) || at === 0) return DASH;
  if (at < VIRTUAL) return `t + ${duration(at)}`;
  const date = new Date(1000 * at);
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? time : `${date.toLocaleDateString("en-CA")} ${time.slice(0, 5)}`;
}

export function ago(at, now) {
  if (!known(at) || at === 0) return DASH;
  if (at < VIRTUAL) return moment(at);
  const seconds = now - at;
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 86400 * 2 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86400)} days ago`;
}

/** How long until then; behind us it is over. */
export function ahead(at, now) {
  if (!known(at)) return DASH;
  const days = (at - now) / 86400;
  if (days < 0) return "over";
  return days < 2 ? `${Math.floor(24 * days)} h` : `${Math.floor(days)} days`;
}

export const plural = (count, one, many = `${one}s`) => `${integer(count)} ${count === 1 ? one : many}`;

/** In the order that people expect: pi-2 before pi-10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;
