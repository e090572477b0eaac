// The line to the server: server-sent events of one fleet, taken up again where they ended.

const FIRST = 1000;
const LONGEST = 15000;

export class FleetConnection {
  constructor(fleet, { onDevices, onQueue, onLine, mark }) {
    Object.assign(this, { fleet, onDevices, onQueue, onLine, mark, source: null, timer: 0, pause: FIRST, over: false });
    this.until = new AbortController(); // of what it hears of the document
    const { signal } = this.until;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.hangUp() : this.open()), { signal });
    addEventListener("online", () => this.again(0), { signal });
  }

  open() {
    if (this.source || document.hidden) return;
    clearTimeout(this.timer);
    const path = `/fleets/${encodeURIComponent(this.fleet)}/events?since=${encodeURIComponent(this.mark())}`;
    const source = (this.source = new EventSource(path));
    source.onopen = () => {
      Object.assign(this, { pause: FIRST, over: false });
      this.onLine("live");
    };
    source.onmessage = (event) => this.onDevices(JSON.parse(event.data));
    source.addEventListener("queue", (event) => this.onQueue(JSON.parse(event.data)));
    source.addEventListener("end", () => {
      this.over = true;
      this.lost();
    });
    source.onerror = () => this.lost();
  }

  /** For good: another fleet is shown. */
  close() {
    this.until.abort();
    this.hangUp();
  }

  hangUp() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  lost() {
    this.hangUp();
    this.onLine(this.over ? "ended" : "away");
    this.again(this.pause);
    this.pause = Math.min(LONGEST, 1.7 * this.pause);
  }

  again(after) {
    if (this.source || this.until.signal.aborted) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), after);
  }
}
