// @ts-check
/** A slice of the loss through start, end of the flow and end of descent, with the paths on it. */
import { canvasIn, fresh, trace } from "./canvas.js";
import { colours } from "./colours.js";
import { contour } from "./contours.js";
import { column, placeOf, row, shown } from "./numbers.js";
import { now } from "./time.js";

/** @import {Part, Results} from "./types.js" */

export class Slice {
  /** @param {HTMLElement} place @param {HTMLElement} reading */
  constructor(place, reading) {
    this.reading = reading;
    this.place = place;
    /** @type {Part | null} */ this.part = null;
    /** @type {Results} */ this.results = {};
    /** @type {{level: number, segments: number[]}[]} */ this.lines = [];
    this.pending = 0;
    this.canvas = canvasIn(place, () => this.draw());
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "A slice of the loss; nothing is shown yet");
  }

  /** @param {Results} results */
  show(results) {
    const part = results.slice ?? null;
    this.results = results;
    if (part !== this.part) {
      this.part = part;
      this.lines = part ? levelsOf(part) : [];
    }
    this.draw();
  }

  draw() {
    if (!this.pending) this.pending = requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    this.pending = 0;
    const { part } = this;
    const room = fresh(this.canvas);
    if (!room || !part?.arrays.loss) {
      this.reading.textContent = "";
      return;
    }
    const { ctx, width, height } = room;
    const map = mapping(part, width, height);
    paintLoss(ctx, part, width, height);
    paintContours(ctx, this.lines, map);
    const marks = this.#paths(ctx, map);
    paintPoints(ctx, part, map, marks);
  }

  /** @param {CanvasRenderingContext2D} ctx @param {ReturnType<typeof mapping>} map */
  #paths(ctx, map) {
    const { part, results } = this;
    const hues = colours();
    const marks = [];
    const descent = part?.arrays.descent;
    const rates = results.descent?.rates ?? [];
    ctx.lineJoin = "round";
    for (let run = (descent?.shape[0] ?? 0) - 1; run >= 0; run -= 1) {
      const path = row(descent, run);
      const colour = hues.runs[run % hues.runs.length] ?? hues.ink;
      ctx.strokeStyle = colour;
      ctx.lineWidth = 2;
      trace(ctx, map.path(path));
      const at = placeOf(row(results.descent?.arrays.time, run), now() + 1e-9);
      marks.push({ point: map.point(path[2 * at] ?? NaN, path[2 * at + 1] ?? NaN), colour });
      if (run === 0) {
        const off = row(part?.arrays.descent_off, run)[at] ?? NaN;
        this.reading.textContent = `off the plane by ${shown(off, 2)}`;
      }
    }
    const flow = row(part?.arrays.flow);
    ctx.strokeStyle = hues.flow;
    ctx.lineWidth = 2;
    ctx.setLineDash([2, 3]);
    trace(ctx, map.path(flow));
    ctx.setLineDash([]);
    const at = placeOf(row(results.flow?.arrays.time), now() + 1e-9);
    marks.push({ point: map.point(flow[2 * at] ?? NaN, flow[2 * at + 1] ?? NaN), colour: hues.flow });
    this.canvas.setAttribute(
      "aria-label",
      `Contour lines of the loss on the plane through start, end of the flow and end of descent, with the paths of ${rates.length} runs and of the flow. At time ${shown(now())} descent is ${this.reading.textContent}.`,
    );
    return marks;
  }
}

/** @param {Part} part */
function levelsOf(part) {
  const surface = { x: row(part.arrays.x), y: row(part.arrays.y), z: row(part.arrays.loss) };
  return /** @type {number[]} */ (part.levels ?? []).map((level) => ({ level, segments: contour(surface, level) }));
}

/** From the plane to pixels, with the same scale on both axes where that fits.
 * @param {Part} part @param {number} width @param {number} height */
export function mapping(part, width, height) {
  const [x, y] = [row(part.arrays.x), row(part.arrays.y)];
  const [left, right] = [x[0] ?? 0, x[x.length - 1] ?? 1];
  const [bottom, top] = [y[0] ?? 0, y[y.length - 1] ?? 1];
  /** @param {number} a @param {number} b @returns {[number, number]} */
  const point = (a, b) => [((a - left) / (right - left)) * width, height - ((b - bottom) / (top - bottom)) * height];
  /** @param {ArrayLike<number>} pairs */
  const path = function* (pairs) {
    const [across, up] = [column(pairs, 0, 2), column(pairs, 1, 2)];
    for (let place = 0; place < across.length; place += 1) {
      const [a, b] = point(across[place] ?? NaN, up[place] ?? NaN);
      yield /** @type {[number, number]} */ ([clip(a, width), clip(b, height)]);
    }
  };
  return { point, path };
}

/** @param {number} value @param {number} size */
const clip = (value, size) => Math.min(Math.max(value, -size), 2 * size);

/** How high the loss is, from 0 to 1 by its logarithm, in whole bands. @param {Part} part */
export function heights(part) {
  const levels = /** @type {number[]} */ (part.levels ?? []);
  return (/** @type {number} */ loss) => {
    let band = 0;
    while (band < levels.length && loss > (levels[band] ?? Infinity)) band += 1;
    return levels.length ? band / levels.length : 0;
  };
}

/** @param {CanvasRenderingContext2D} ctx @param {Part} part @param {number} width @param {number} height */
function paintLoss(ctx, part, width, height) {
  const [rows, columns] = part.arrays.loss?.shape ?? [0, 0];
  const loss = row(part.arrays.loss);
  if (!rows || !columns) return;
  const { low, high } = colours();
  const share = heights(part);
  const image = new ImageData(columns, rows);
  for (let down = 0; down < rows; down += 1)
    for (let across = 0; across < columns; across += 1) {
      const up = share(loss[(rows - 1 - down) * columns + across] ?? NaN);
      const at = 4 * (down * columns + across);
      for (let channel = 0; channel < 3; channel += 1)
        image.data[at + channel] = (low[channel] ?? 0) + up * ((high[channel] ?? 0) - (low[channel] ?? 0));
      image.data[at + 3] = 255;
    }
  const small = document.createElement("canvas");
  [small.width, small.height] = [columns, rows];
  small.getContext("2d")?.putImageData(image, 0, 0);
  ctx.imageSmoothingEnabled = true;
  ctx.imageSmoothingQuality = "high";
  ctx.drawImage(small, 0, 0, width, height);
}

/** @param {CanvasRenderingContext2D} ctx @param {{level: number, segments: number[]}[]} lines
 * @param {ReturnType<typeof mapping>} map */
function paintContours(ctx, lines, map) {
  const hues = colours();
  ctx.strokeStyle = hues.soft;
  ctx.lineWidth = 0.7;
  ctx.globalAlpha = 0.65;
  for (const { segments } of lines) {
    ctx.beginPath();
    for (let place = 0; place < segments.length; place += 4) {
      ctx.moveTo(...map.point(segments[place] ?? 0, segments[place + 1] ?? 0));
      ctx.lineTo(...map.point(segments[place + 2] ?? 0, segments[place + 3] ?? 0));
    }
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
}

/** @param {CanvasRenderingContext2D} ctx @param {Part} part @param {ReturnType<typeof mapping>} map
 * @param {{point: [number, number], colour: string}[]} marks */
function paintPoints(ctx, part, map, marks) {
  const hues = colours();
  const points = row(part.arrays.points);
  ctx.font = "11px system-ui, sans-serif";
  const width = ctx.canvas.clientWidth;
  /** @type {[number, number][]} */
  const taken = [];
  for (const [place, name] of /** @type {string[]} */ (part.names ?? []).entries()) {
    const [x, y] = map.point(points[2 * place] ?? NaN, points[2 * place + 1] ?? NaN);
    if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
    disc(ctx, x, y, 3.2, hues.card, hues.ink);
    let down = y < 20 ? 16 : -8;
    while (taken.some(([a, b]) => Math.abs(a - x) < 90 && Math.abs(b - y - down) < 13)) down += 14;
    taken.push([x, y + down]);
    ctx.textAlign = x > width - 90 ? "right" : x < 60 ? "left" : "center";
    ctx.lineWidth = 3;
    ctx.strokeStyle = hues.card;
    ctx.strokeText(name, x, y + down);
    ctx.fillStyle = hues.ink;
    ctx.fillText(name, x, y + down);
  }
  for (const { point, colour } of marks) if (point.every(Number.isFinite)) disc(ctx, ...point, 4.5, colour, hues.card);
}

/** @param {CanvasRenderingContext2D} ctx @param {number} x @param {number} y @param {number} size
 * @param {string} fill @param {string} edge */
function disc(ctx, x, y, size, fill, edge) {
  ctx.beginPath();
  ctx.arc(x, y, size, 0, 2 * Math.PI);
  ctx.fillStyle = fill;
  ctx.fill();
  ctx.strokeStyle = edge;
  ctx.lineWidth = 1.3;
  ctx.stroke();
}
