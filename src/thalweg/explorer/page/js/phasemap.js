// @ts-check
/** The phase diagram: what becomes of descent over learning rate and scale, with theory's lines. */
import { evenTicks, logTicks } from "./axes.js";
import { canvasIn, fresh, trace } from "./canvas.js";
import { colours, PHASE_ORDER, phaseColour } from "./colours.js";
import { row, shown, tick } from "./numbers.js";

/** @import {Part, Phase} from "./types.js" */

export const EDGES = { left: 46, right: 10, top: 8, bottom: 40 };
/** How theory's lines are drawn. @type {Record<string, number[]>} */
export const DASHES = { start: [], least: [7, 4], paper: [2, 3] };

/** All that is known of the diagram. */
export class Diagram {
  constructor() {
    this.key = "";
    this.rates = new Float64Array(0);
    this.scales = new Float64Array(0);
    this.runs = 0;
    this.done = 0;
    this.cells = new Int8Array(0);
    /** @type {{name: string, label: string, rates: ArrayLike<number>}[]} */ this.lines = [];
  }

  /** @param {Part} part */
  begin(part) {
    this.key = part.key;
    this.rates = Float64Array.from(row(part.arrays.rates));
    this.scales = Float64Array.from(row(part.arrays.scales));
    const sameSize = this.cells.length === this.rates.length * this.scales.length * part.runs;
    this.runs = part.runs;
    this.done = 0;
    this.lines = []; // those of another setting would be read off the new axes
    // What is there stays until it is replaced, faded: better than an empty map.
    if (!sameSize) this.cells = new Int8Array(this.rates.length * this.scales.length * this.runs).fill(-2);
    this.old = new Uint8Array(this.rates.length * this.scales.length).fill(1);
  }

  /** @param {Part} part */
  add(part) {
    const [first, last] = part.rows;
    const [from, to] = part.columns;
    const values = row(part.arrays.phase);
    const across = this.rates.length;
    let place = 0;
    for (let up = first; up < last; up += 1)
      for (let right = from; right < to; right += 1)
        for (let run = 0; run < this.runs; run += 1, place += 1) {
          this.cells[(up * across + right) * this.runs + run] = values[place] ?? -1;
          if (this.old) this.old[up * across + right] = 0;
        }
    this.done = part.done ?? 1;
  }

  /** @param {Part} part */
  bound(part) {
    this.lines = part.lines.map((/** @type {any} */ line) => ({ ...line, rates: row(part.arrays[line.array]) }));
  }

  /** The runs of a cell, counted by phase. @param {number} up @param {number} right */
  counts(up, right) {
    /** @type {Map<number, number>} */
    const counts = new Map();
    const start = (up * this.rates.length + right) * this.runs;
    for (const value of this.cells.subarray(start, start + this.runs)) counts.set(value, (counts.get(value) ?? 0) + 1);
    return counts;
  }

  get known() {
    return this.rates.length > 1 && this.scales.length > 1;
  }
}

export class PhaseMap {
  /** @param {HTMLElement} place @param {HTMLElement} reading @param {Phase[]} phases
   * @param {(rate: number, scale: number, done: boolean) => void} go */
  constructor(place, reading, phases, go) {
    this.reading = reading;
    this.phases = phases;
    this.go = go;
    this.diagram = new Diagram();
    this.rate = NaN;
    this.scale = NaN;
    this.pending = 0;
    this.isScaled = true;
    /** @type {[number, number] | null} */ this.over = null;
    this.canvas = canvasIn(place, () => this.draw());
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", "Phase diagram; nothing is shown yet");
    this.canvas.setAttribute("aria-roledescription", "phase diagram");
    this.#pointers();
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  /** @param {number} rate @param {number} scale NaN if the start has none */
  mark(rate, scale) {
    [this.rate, this.scale] = [rate, scale];
    this.draw();
  }

  draw() {
    if (!this.pending) this.pending = requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    this.pending = 0;
    const room = fresh(this.canvas);
    const { diagram } = this;
    if (!room || !diagram.known) return;
    const { ctx, width, height } = room;
    const map = placing(diagram, width, height);
    paintCells(ctx, diagram, this.phases, map);
    paintAxes(ctx, map, width, height);
    paintLines(ctx, diagram, map);
    this.#paintMark(ctx, map);
    this.#tell();
  }

  /** @param {CanvasRenderingContext2D} ctx @param {Placing} map */
  #paintMark(ctx, map) {
    const hues = colours();
    const scale = Number.isFinite(this.scale) ? this.scale : NaN;
    const x = Math.min(Math.max(map.x(this.rate), map.left), map.right);
    ctx.lineWidth = 1;
    ctx.strokeStyle = "rgb(255 255 255 / .85)";
    ctx.setLineDash([3, 3]);
    trace(ctx, [[x, map.top], [x, map.bottom]]);
    const y = Math.min(Math.max(map.y(scale), map.top), map.bottom);
    if (Number.isFinite(y)) trace(ctx, [[map.left, y], [map.right, y]]);
    ctx.setLineDash([]);
    if (!Number.isFinite(y)) return;
    const outside = map.x(this.rate) !== x || map.y(scale) !== y;
    ctx.beginPath();
    ctx.arc(x, y, 7, 0, 2 * Math.PI);
    ctx.fillStyle = outside ? "rgb(255 255 255 / .4)" : "#fff";
    ctx.fill();
    ctx.lineWidth = 2.5;
    ctx.strokeStyle = "#111";
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x, y, 2.6, 0, 2 * Math.PI);
    ctx.fillStyle = hues.runs[0] ?? "#000";
    ctx.fill();
  }

  /** What is under the pointer, or else under the marker. */
  #tell() {
    const { diagram } = this;
    const [rate, scale] = this.over ?? [this.rate, this.scale];
    const [up, right] = [nearest(diagram.scales, scale), nearest(diagram.rates, rate)];
    if (up < 0 || right < 0) return;
    const text = [...diagram.counts(up, right)]
      .sort((a, b) => b[1] - a[1])
      .map(([value, count]) => `${count} of ${diagram.runs} ${this.meaning(value)}`)
      .join(", ");
    this.reading.textContent = this.over ? `η ${shown(rate)}, scale ${shown(scale)}: ${text}` : text;
    this.canvas.setAttribute(
      "aria-label",
      `Phase diagram over learning rate and scale of the start. At learning rate ${shown(rate)} and scale ${shown(scale)}: ${text}. Arrow keys move there.`,
    );
  }

  /** @param {number} value */
  meaning(value) {
    return this.phases.find((phase) => phase.value === value)?.meaning ?? (value < -1 ? "not computed yet" : "too short to say");
  }

  #pointers() {
    const { canvas } = this;
    const at = (/** @type {PointerEvent} */ event) => {
      const map = placing(this.diagram, canvas.clientWidth, canvas.clientHeight);
      const box = canvas.getBoundingClientRect();
      return /** @type {[number, number]} */ ([map.rate(event.clientX - box.left), map.scale(event.clientY - box.top)]);
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.diagram.known) return;
      canvas.setPointerCapture(event.pointerId);
      this.#goTo(at(event), false);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.diagram.known) return;
      if (event.buttons & 1) this.#goTo(at(event), false);
      else {
        this.over = at(event);
        this.draw();
      }
    });
    canvas.addEventListener("pointerup", (event) => this.diagram.known && this.#goTo(at(event), true));
    canvas.addEventListener("pointerleave", () => {
      this.over = null;
      this.draw();
    });
  }

  /** @param {[number, number]} place @param {boolean} done */
  #goTo([rate, scale], done) {
    this.over = null;
    this.go(Number(rate.toPrecision(3)), Number(scale.toPrecision(3)), done);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const { rates, scales, known } = this.diagram;
    if (!known) return;
    const wide = event.shiftKey ? 5 : 1;
    const ratio = ((rates[rates.length - 1] ?? 1) / (rates[0] ?? 1)) ** (wide / (rates.length - 1));
    const step = (wide * ((scales[scales.length - 1] ?? 1) - (scales[0] ?? 0))) / (scales.length - 1);
    /** @type {Record<string, [number, number]>} */
    const moves = { ArrowLeft: [1 / ratio, 0], ArrowRight: [ratio, 0], ArrowUp: [1, step], ArrowDown: [1, -step] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    this.#goTo([this.rate * move[0], Math.max(this.scale + move[1], 0.001)], true);
  }
}

/** @typedef {ReturnType<typeof placing>} Placing */

/** Between rates, scales and pixels; rates by ratio, scales evenly or by ratio as they were chosen.
 * @param {Diagram} diagram @param {number} width @param {number} height */
export function placing(diagram, width, height) {
  const [left, right, top, bottom] = [EDGES.left, width - EDGES.right, EDGES.top, height - EDGES.bottom];
  const columns = cells(diagram.rates, Math.log, Math.exp);
  const even = isEven(diagram.scales);
  const rows = even ? cells(diagram.scales, same, same) : cells(diagram.scales, Math.log, Math.exp);
  const across = linear(Math.log(columns[0] ?? 1), Math.log(columns.at(-1) ?? 1), left, right);
  const [to, back] = even ? [same, same] : [Math.log, Math.exp];
  const up = linear(to(rows[0] ?? 0), to(rows.at(-1) ?? 1), bottom, top);
  return {
    left, right, top, bottom, columns, rows, even,
    x: (/** @type {number} */ rate) => across.to(Math.log(rate)),
    y: (/** @type {number} */ scale) => up.to(to(scale)),
    rate: (/** @type {number} */ x) => Math.exp(across.back(Math.min(Math.max(x, left), right))),
    scale: (/** @type {number} */ y) => back(up.back(Math.min(Math.max(y, top), bottom))),
  };
}

/** @param {number} value */
const same = (value) => value;

/** @param {number} a @param {number} b @param {number} from @param {number} to */
const linear = (a, b, from, to) => ({
  to: (/** @type {number} */ value) => from + ((value - a) / (b - a)) * (to - from),
  back: (/** @type {number} */ place) => a + ((place - from) / (to - from)) * (b - a),
});

/** @param {Float64Array} values */
function isEven(values) {
  const [first = 0, second = 0] = values;
  const [before = 0, last = 0] = values.slice(-2);
  if (first <= 0) return true;
  return Math.abs(last - before - (second - first)) < Math.abs(Math.log((last / before) * (first / second))) * last;
}

/** The edges of cells around these values.
 * @param {Float64Array} values @param {(v: number) => number} to @param {(v: number) => number} back */
function cells(values, to, back) {
  const at = Array.from(values, to);
  const edges = at.slice(1).map((value, place) => (value + (at[place] ?? 0)) / 2);
  const [first = 0, last = 1] = [at[0], at.at(-1)];
  return [2 * first - (edges[0] ?? 0), ...edges, 2 * last - (edges.at(-1) ?? 0)].map(back);
}

/** @param {Float64Array} values @param {number} wanted @returns {number} */
function nearest(values, wanted) {
  if (!Number.isFinite(wanted)) return -1;
  let best = -1;
  for (let place = 0; place < values.length; place += 1)
    if (best < 0 || Math.abs((values[place] ?? 0) - wanted) < Math.abs((values[best] ?? 0) - wanted)) best = place;
  return best;
}

/** The strips of a cell: colour and share, in the order of the phases.
 * @param {Diagram} diagram @param {Phase[]} phases @param {number} up @param {number} right
 * @returns {[string, number][]} */
export function strips(diagram, phases, up, right) {
  const counts = diagram.counts(up, right);
  const named = phases.map((phase) => /** @type {const} */ ([phase.name, counts.get(phase.value) ?? 0]));
  return named
    .filter(([, count]) => count > 0)
    .sort(([a], [b]) => PHASE_ORDER.indexOf(a) - PHASE_ORDER.indexOf(b))
    .map(([name, count]) => [phaseColour(name), count / diagram.runs]);
}

/** @param {CanvasRenderingContext2D} ctx @param {Diagram} diagram @param {Phase[]} phases @param {Placing} map */
function paintCells(ctx, diagram, phases, map) {
  const gap = 0.5;
  for (let up = 0; up < diagram.scales.length; up += 1) {
    const [low, high] = [map.y(map.rows[up] ?? 0), map.y(map.rows[up + 1] ?? 0)];
    for (let right = 0; right < diagram.rates.length; right += 1) {
      let x = map.x(map.columns[right] ?? 1);
      const width = map.x(map.columns[right + 1] ?? 1) - x;
      ctx.globalAlpha = diagram.old?.[up * diagram.rates.length + right] ? 0.35 : 1;
      for (const [colour, share] of strips(diagram, phases, up, right)) {
        ctx.fillStyle = colour;
        ctx.fillRect(x, high, Math.max(width * share - (x + width * share > map.right ? 0 : gap * share), 0.5), low - high - gap);
        x += width * share;
      }
    }
  }
  ctx.globalAlpha = 1;
}

/** @param {CanvasRenderingContext2D} ctx @param {Placing} map
 * @param {number} width @param {number} height */
function paintAxes(ctx, map, width, height) {
  const hues = colours();
  ctx.fillStyle = hues.soft;
  ctx.font = "11px system-ui, sans-serif";
  ctx.textAlign = "center";
  for (const rate of rateTicks(map, width)) ctx.fillText(tick(rate), map.x(rate), map.bottom + 15);
  ctx.fillText("learning rate η", (map.left + map.right) / 2, map.bottom + 32);
  ctx.textAlign = "right";
  for (const scale of scaleTicks(map, height)) ctx.fillText(tick(scale), map.left - 6, map.y(scale) + 4);
  ctx.save();
  ctx.translate(11, (map.top + map.bottom) / 2);
  ctx.rotate(-Math.PI / 2);
  ctx.textAlign = "center";
  ctx.fillText("scale of the start", 0, 0);
  ctx.restore();
}

/** @param {Placing} map @param {number} width */
export const rateTicks = (map, width) =>
  logTicks([map.columns[0] ?? 1, map.columns.at(-1) ?? 10], Math.max(3, width / 60));
/** @param {Placing} map @param {number} height */
export function scaleTicks(map, height) {
  /** @type {[number, number]} */
  const range = [map.rows[0] ?? 0, map.rows.at(-1) ?? 1];
  return map.even ? evenTicks(range, Math.max(2, height / 50)) : logTicks(range, Math.max(2, height / 40));
}

/** @param {CanvasRenderingContext2D} ctx @param {Diagram} diagram @param {Placing} map */
function paintLines(ctx, diagram, map) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(map.left, map.top, map.right - map.left, map.bottom - map.top);
  ctx.clip();
  for (const line of diagram.lines) {
    const points = Array.from(diagram.scales, (scale, up) => /** @type {[number, number]} */ ([map.x(line.rates[up] ?? NaN), map.y(scale)]));
    const [first, last] = [points[0], points.at(-1)];
    if (first && last) {
      points.unshift([first[0], map.bottom]);
      points.push([last[0], map.top]);
    }
    for (const [colour, width] of /** @type {const} */ ([["rgb(255 255 255 / .8)", 4], ["#111", 1.8]])) {
      ctx.strokeStyle = colour;
      ctx.lineWidth = width;
      ctx.setLineDash(DASHES[line.name] ?? [4, 3]);
      trace(ctx, points);
    }
  }
  ctx.restore();
}
