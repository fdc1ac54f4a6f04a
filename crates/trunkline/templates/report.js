"use strict";
// The players' waveforms. Each clip has its sound in its <audio> and what
// became of each packet, a letter for every 20 ms, in data-fates:
//   . arrived   r recovered in time   l late   x lost
(() => {
  const RATE = 8000, PACKET = 160, WAV_HEADER = 44;
  const FATES = { x: "--lost", l: "--late", r: "--recovered" };
  const missed = (fate) => fate === "x" || fate === "l";
  const zoom = document.getElementById("window");
  const choice = document.getElementById("call");

  // The page's colours, which change with the system's dark mode.
  let palette;
  const color = (name) => palette.get(name);
  function readPalette() {
    const style = getComputedStyle(document.documentElement);
    const names = ["--ink", "--grid", "--wave", ...Object.values(FATES)];
    palette = new Map(names.map((name) => [name, style.getPropertyValue(name)]));
  }

  // The samples of a data: URI with a WAV file of 16 bits, mono.
  function samplesOf(uri) {
    const text = atob(uri.slice(uri.indexOf(",") + 1));
    const pcm = new Int16Array((text.length - WAV_HEADER) >> 1);
    for (let i = 0; i < pcm.length; i++) {
      const at = WAV_HEADER + 2 * i;
      pcm[i] = text.charCodeAt(at) | text.charCodeAt(at + 1) << 8;
    }
    return pcm;
  }

  // A canvas with a pixel for each of the screen's; null while it is hidden.
  function prepare(canvas) {
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width) return null;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const g = canvas.getContext("2d");
    g.scale(scale, scale);
    return { g, width, height };
  }

  class Clip {
    constructor(figure) {
      this.figure = figure;
      this.call = figure.dataset.call;
      this.fates = figure.dataset.fates;
      this.audio = figure.querySelector("audio");
      this.overview = figure.querySelector(".overview");
      this.detail = figure.querySelector(".detail");
      this.cursor = figure.querySelector(".cursor");
      this.pcm = null;

      this.audio.addEventListener("play", () => this.started());
      for (const event of ["seeking", "seeked", "pause", "ended"]) {
        this.audio.addEventListener(event, () => this.follow());
      }
      this.overview.addEventListener("click", (e) =>
        this.seek(e.offsetX / this.overview.clientWidth * this.seconds));
      this.detail.addEventListener("click", (e) =>
        this.seek(this.from() + e.offsetX / this.detail.clientWidth * this.span));
      figure.querySelector(".next").addEventListener("click", () => this.next());
    }

    get seconds() { return this.pcm.length / RATE; }
    get span() { return Math.min(Number(zoom.value), this.seconds); }
    // Where the detail begins: the cursor is in its middle, save at the ends.
    from() {
      return Math.max(0, Math.min(this.audio.currentTime - this.span / 2, this.seconds - this.span));
    }

    seek(seconds) {
      this.audio.currentTime = Math.max(0, Math.min(seconds, this.seconds - 0.01));
      this.follow();
    }

    // To just before the next packet that the listener did not hear.
    next() {
      const lead = 0.3, now = this.audio.currentTime + lead + 0.001;
      let k = Math.ceil(now * RATE / PACKET);
      // Of a burst, the first.
      while (k > 0 && missed(this.fates[k]) && missed(this.fates[k - 1])) k++;
      while (k < this.fates.length && !missed(this.fates[k])) k++;
      if (k >= this.fates.length) {
        k = [...this.fates].findIndex(missed);
        if (k < 0) return;
      }
      this.seek(k * PACKET / RATE - lead);
    }

    started() {
      const before = clips.find((c) => c !== this && !c.audio.paused);
      for (const c of clips) {
        if (c !== this) c.audio.pause();
      }
      if (before && before.call === this.call) this.audio.currentTime = before.audio.currentTime;
      const step = () => {
        this.follow();
        if (!this.audio.paused) requestAnimationFrame(step);
      };
      step();
    }

    follow() {
      if (!this.pcm) return;
      this.cursor.style.left = `${100 * this.audio.currentTime / this.seconds}%`;
      this.drawDetail();
    }

    show(visible) {
      this.figure.hidden = !visible;
      if (!visible) {
        this.audio.pause();
        return;
      }
      if (!this.pcm) {
        this.pcm = samplesOf(this.audio.src);
        this.peak = this.pcm.reduce((peak, s) => Math.max(peak, Math.abs(s)), 1000);
      }
      this.draw();
    }

    draw() {
      if (!this.pcm || this.figure.hidden) return;
      this.drawOverview();
      this.follow();
    }

    // The waveform above, marks of packets below: recovered ones in the upper
    // half of that lane, missed ones in the lower, so that grey will do.
    drawOverview() {
      const to = prepare(this.overview);
      if (!to) return;
      const lane = 18, { g, width, height } = to;
      this.wave(to, 0, this.pcm.length, height - lane, () => color("--wave"));
      const mark = Math.max(1.5, width / this.fates.length);
      for (const [fate, name] of Object.entries(FATES)) {
        g.fillStyle = color(name);
        for (let k = 0; k < this.fates.length; k++) {
          if (this.fates[k] !== fate) continue;
          g.fillRect(k / this.fates.length * width, height - lane / (missed(fate) ? 2 : 1), mark, lane / 2);
        }
      }
    }

    drawDetail() {
      const to = prepare(this.detail);
      if (!to) return;
      const lane = 20, { g, width, height } = to;
      const from = this.from() * RATE, span = this.span * RATE;
      const first = Math.floor(from / PACKET), last = Math.ceil((from + span) / PACKET);
      const x = (sample) => (sample - from) / span * width;
      const wide = PACKET / span * width;
      for (let k = first; k < last; k++) {
        const name = FATES[this.fates[k]];
        if (wide > 4) {
          g.fillStyle = color("--grid");
          g.fillRect(x(k * PACKET), height - lane, 1, lane);
        }
        if (!name) continue;
        g.fillStyle = color(name);
        g.globalAlpha = 0.22;
        g.fillRect(x(k * PACKET), 0, wide, height - lane);
        g.globalAlpha = 1;
        const top = missed(this.fates[k]) ? height - lane / 2 : height - lane;
        g.fillRect(x(k * PACKET) + 0.5, top, Math.max(1, wide - 1), lane / 2);
      }
      this.wave(to, from, span, height - lane, (sample) =>
        color(FATES[this.fates[Math.floor(sample / PACKET)]] ?? "--wave"));
      g.fillStyle = color("--ink");
      g.fillRect(x(this.audio.currentTime * RATE) - 1, 0, 2, height);
    }

    // The lowest and highest sample under every pixel.
    wave({ g, width }, from, span, height, paint) {
      const middle = Math.round(height / 2);
      for (let x = 0; x < width; x++) {
        const begin = Math.floor(from + x / width * span);
        const end = Math.max(begin + 1, Math.floor(from + (x + 1) / width * span));
        let low = 0, high = 0;
        for (let i = begin; i < end && i < this.pcm.length; i++) {
          if (this.pcm[i] < low) low = this.pcm[i];
          if (this.pcm[i] > high) high = this.pcm[i];
        }
        g.fillStyle = paint(begin);
        // On whole pixels, or silence would be a blur.
        const top = Math.floor(middle - high / this.peak * middle);
        const bottom = Math.ceil(middle - low / this.peak * middle);
        g.fillRect(x, top, 1, Math.max(1, bottom - top));
      }
    }
  }

  const clips = [...document.querySelectorAll(".clip")].map((figure) => new Clip(figure));
  const choose = () => {
    for (const c of clips) c.show(!choice || c.call === choice.value);
  };
  const redraw = () => clips.forEach((c) => c.draw());
  document.body.classList.add("script");
  choice?.addEventListener("change", choose);
  zoom.addEventListener("change", redraw);
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readPalette();
    redraw();
  });
  readPalette();
  choose();
})();
