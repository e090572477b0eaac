// The line to the coordinator: server-sent events, taken up again where they ended. A page that is not visible hangs up.

const FIRST = 1000;
const LONGEST = 15000;

export class Connection {
  constructor({ onChange, onLine, mark }) {
    Object.assign(this, { onChange, onLine, mark, source: null, timer: 0, pause: FIRST, over: false });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.hangUp() : this.open()));
    addEventListener("online", () => this.again(0));
  }

  open() {
    if (this.source || document.hidden) return;
    clearTimeout(this.timer);
    const source = (this.source = new EventSource(`events?since=${encodeURIComponent(this.mark())}`));
    source.onopen = () => {
      this.pause = FIRST;
      this.over = false;
      this.onLine("live");
    };
    source.onmessage = (event) => this.onChange(JSON.parse(event.data));
    source.addEventListener("end", () => {
      this.over = true;
      this.lost();
    });
    source.onerror = () => this.lost();
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
    if (this.source) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), after);
  }
}
