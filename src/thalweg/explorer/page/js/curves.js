// @ts-check
/** One view of curves over time, drawn by uPlot; what lies behind and before them is drawn here. */
import { evenTicks, logTicks } from "./axes.js";
import { colours } from "./colours.js";
import { made } from "./elements.js";
import { placeOf, shown, tick } from "./numbers.js";
import { end, hover, now, pin } from "./time.js";

/** @import {Chart, Line} from "./types.js" */

export class Curves {
  /** @param {HTMLElement} place @param {HTMLElement} reading @param {string} name */
  constructor(place, reading, name) {
    this.place = place;
    this.reading = reading;
    this.name = name;
    /** @type {Chart | null} */ this.chart = null;
    /** @type {any} */ this.plot = null;
    this.signature = "";
    this.pending = 0;
    this.isOver = false;
    place.tabIndex = 0;
    place.setAttribute("role", "slider");
    place.setAttribute("aria-label", `${name} over time`);
    place.setAttribute("aria-valuemin", "0");
    place.setAttribute("aria-valuenow", "0");
    place.setAttribute("aria-valuetext", "nothing is shown yet");
    place.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#resized()).observe(place);
  }

  /** @param {Chart} chart */
  show(chart) {
    this.chart = chart;
    if (!this.pending) this.pending = requestAnimationFrame(() => this.#draw());
  }

  /** Draw all anew, because colours changed. */
  renew() {
    this.signature = "";
  }

  #draw() {
    this.pending = 0;
    const { chart, place } = this;
    if (!chart || !place.clientWidth) return;
    const data = joined(chart);
    const signature = JSON.stringify([
      chart.log,
      chart.lines.map(({ colour, dash, width }) => [colour, dash, width]),
      colours().grid,
    ]);
    if (signature === this.signature && this.plot) {
      this.plot.batch(() => {
        this.plot.setData(data, false);
        this.plot.setScale("x", { min: 0, max: chart.until });
        this.plot.setScale("y", { min: chart.range[0], max: chart.range[1] });
      });
    } else {
      this.plot?.destroy();
      this.signature = signature;
      this.plot = new uPlot(this.#options(chart), data, place);
    }
    place.setAttribute("aria-valuemax", String(Number(chart.until.toPrecision(4))));
    this.moved();
  }

  /** @param {Chart} chart @returns {any} */
  #options(chart) {
    const hues = colours();
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: hues.soft, font, grid: { stroke: hues.grid, width: 1 }, ticks: { show: false } };
    return {
      width: this.place.clientWidth,
      height: this.place.clientHeight,
      legend: { show: false },
      padding: [8, 10, 0, 0],
      scales: {
        x: { time: false, range: () => [0, this.chart?.until ?? 1] },
        y: { distr: chart.log ? 3 : 1, range: () => this.chart?.range ?? [0, 1] },
      },
      axes: [
        { ...axis, size: 24, gap: 4, space: 48, label: "time", labelFont: font, labelSize: 15, labelGap: 0, splits: () => evenTicks([0, this.chart?.until ?? 1], this.#columns()), values: texts },
        { ...axis, size: 50, gap: 4, splits: () => this.#rows(), filter: (/** @type {any} */ _, /** @type {number[]} */ splits) => splits, values: texts },
      ],
      series: [{}, ...chart.lines.map((line) => series(line))],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: (/** @type {any} */ _, /** @type {number} */ at) => (this.chart?.lines[at - 1]?.quiet ? 0 : 6) }, x: true },
      hooks: {
        drawAxes: [() => this.#behind()],
        setCursor: [() => this.#followed()],
        ready: [(/** @type {any} */ plot) => this.#pointers(plot.over)],
      },
    };
  }

  #columns() {
    return Math.max(2, Math.floor(this.place.clientWidth / 75));
  }

  #rows() {
    const { chart } = this;
    if (!chart) return [];
    const count = Math.max(2, Math.floor(this.place.clientHeight / 34));
    return chart.log ? logTicks(chart.range, count) : evenTicks(chart.range, count);
  }

  /** What lies under the curves: where there is no minimiser, what is proven, and levels. */
  #behind() {
    const { chart, plot } = this;
    if (!chart || !plot) return;
    const { ctx, bbox } = plot;
    const x = (/** @type {number} */ value) => plot.valToPos(value, "x", true);
    const y = (/** @type {number} */ value) =>
      plot.valToPos(Math.min(Math.max(value, chart.range[0]), chart.range[1]), "y", true);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    if (chart.below && chart.below.y > chart.range[0]) {
      ctx.fillStyle = chart.below.colour;
      const top = y(chart.below.y);
      ctx.fillRect(bbox.left, top, bbox.width, bbox.top + bbox.height - top);
    }
    for (const band of chart.bands) fillBand(ctx, band, x, y);
    ctx.lineWidth = 1.25 * devicePixelRatio;
    for (const level of chart.levels) {
      if (!(level.y >= chart.range[0] && level.y <= chart.range[1])) continue;
      ctx.strokeStyle = level.colour;
      ctx.setLineDash((level.dash ?? [5, 4]).map((length) => length * devicePixelRatio));
      ctx.beginPath();
      ctx.moveTo(bbox.left, y(level.y));
      ctx.lineTo(bbox.left + bbox.width, y(level.y));
      ctx.stroke();
    }
    ctx.restore();
  }

  /** @param {HTMLElement} over */
  #pointers(over) {
    const time = (/** @type {PointerEvent} */ event) => {
      const left = event.clientX - over.getBoundingClientRect().left;
      return Math.min(Math.max(this.plot.posToVal(left, "x"), 0), end());
    };
    over.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) pin(time(event));
      else if (event.pointerType === "mouse") hover(time(event));
    });
    over.addEventListener("pointerdown", (event) => pin(time(event)));
    over.addEventListener("pointerenter", () => (this.isOver = true));
    over.addEventListener("pointerleave", () => {
      this.isOver = false;
      hover(null);
    });
  }

  /** uPlot moves its cursor with the mouse; ours is the shared one. */
  #followed() {
    if (!this.isOver && this.plot && this.plot.cursor.left < 0) this.moved();
  }

  /** The cursor has moved. */
  moved() {
    const { plot, chart } = this;
    if (!plot || !chart) return;
    const time = now();
    plot.setCursor({ left: plot.valToPos(time, "x"), top: 10 }, false);
    const text = this.reads(time);
    this.reading.replaceChildren(
      ...this.values(time).map(({ line, value }) => {
        const dot = made("i", { class: line.dash ? "dot open" : "dot" });
        dot.style.setProperty("--dot", line.colour);
        return made("span", { title: line.label }, dot, shown(value));
      }),
    );
    this.place.setAttribute("aria-valuenow", String(Number(time.toPrecision(4))));
    this.place.setAttribute("aria-valuetext", `time ${shown(time)}: ${text || "nothing recorded"}`);
  }

  /** What the lines are at a time. @param {number} time @returns {{line: Line, value: number}[]} */
  values(time) {
    const found = [];
    for (const line of this.chart?.lines ?? []) {
      if (line.quiet || !line.x.length) continue;
      let place = placeOf(line.x, time + 1e-9);
      while (place > 0 && !Number.isFinite(line.y[place] ?? NaN)) place -= 1;
      found.push({ line, value: line.y[place] ?? NaN });
    }
    return found;
  }

  /** The same in words. @param {number} time @returns {string} */
  reads(time) {
    return this.values(time)
      .map(({ line, value }) => `${line.label} ${shown(value)}`)
      .join(", ");
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const step = end() / (event.shiftKey ? 10 : 100);
    /** @type {Record<string, number>} */
    const moves = { ArrowLeft: now() - step, ArrowRight: now() + step, Home: 0, End: end() };
    const time = moves[event.key];
    if (time === undefined) return;
    event.preventDefault();
    pin(Math.max(0, time));
  }

  #resized() {
    const { clientWidth: width, clientHeight: height } = this.place;
    if (this.plot && width) {
      this.plot.setSize({ width, height });
      this.moved();
    } else if (width && this.chart) this.show(this.chart);
  }
}

/** @param {any} _ @param {number[]} values @returns {string[]} */
const texts = (_, values) => values.map(tick);

/** @param {Line} line @returns {any} */
const series = (line) => ({
  stroke: line.colour,
  width: line.width ?? 1.75,
  dash: line.dash,
  spanGaps: true,
  points: { show: false },
});

/** All lines over all their times, as uPlot wants them; without what an axis cannot show.
 * @param {Chart} chart @returns {any[]} */
function joined({ lines, log, range: [low, high] }) {
  const most = log ? high * 1e3 : high + 9 * (high - low);
  const least = log ? low / 1e3 : low - 9 * (high - low);
  const all = new Set();
  for (const line of new Set(lines.map(({ x }) => x)))
    for (let place = 0; place < line.length; place += 1) if (Number.isFinite(line[place])) all.add(line[place]);
  const times = Float64Array.from(all).sort();
  const places = new Map();
  for (let place = 0; place < times.length; place += 1) places.set(times[place], place);
  const data = lines.map((line) => {
    const values = new Array(times.length).fill(null);
    for (let place = 0; place < line.x.length; place += 1) {
      const value = line.y[place] ?? NaN;
      if (!Number.isFinite(value) || (log && value <= 0)) continue;
      values[places.get(line.x[place])] = Math.min(Math.max(value, least), most);
    }
    return values;
  });
  return [times, ...data];
}

/** @param {CanvasRenderingContext2D} ctx @param {import("./types.js").Band} band
 * @param {(value: number) => number} x @param {(value: number) => number} y */
function fillBand(ctx, band, x, y) {
  ctx.fillStyle = band.colour;
  ctx.beginPath();
  let last = -1;
  for (let place = 0; place < band.x.length; place += 1) {
    if (!Number.isFinite(band.x[place]) || !Number.isFinite(band.high[place])) break;
    ctx.lineTo(x(band.x[place] ?? 0), y(band.high[place] ?? 0));
    last = place;
  }
  for (let place = last; place >= 0; place -= 1) ctx.lineTo(x(band.x[place] ?? 0), y(band.low[place] ?? 0));
  ctx.closePath();
  ctx.fill();
}
