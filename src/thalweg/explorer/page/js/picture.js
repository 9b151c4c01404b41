// @ts-check
/** All views as one picture: drawn as SVG from the same charts, and as PNG from that. */
import { evenTicks, logTicks } from "./axes.js";
import { CHARTS } from "./charts.js";
import { colours } from "./colours.js";
import { contour } from "./contours.js";
import { column, row, tick } from "./numbers.js";
import { DASHES, placing, rateTicks, scaleTicks, strips } from "./phasemap.js";
import { heights, mapping } from "./slice.js";

/** @import {Diagram} from "./phasemap.js" */
/** @import {Chart, Phase, Results} from "./types.js" */

const WIDTH = 1320;
const MARGIN = 24;
const GAP = 24;
const CELL = { width: (WIDTH - 2 * MARGIN - 2 * GAP) / 3, height: 240 };

/** @typedef {{results: Results, diagram: Diagram | null, phases: Phase[], sentences: string[]}} Seen */

/** @param {Seen} seen @returns {string} */
export function svgOf(seen) {
  const hues = colours();
  const parts = [];
  let top = MARGIN;
  for (const sentence of seen.sentences.slice(0, 3))
    for (const line of wrapped(sentence, 150)) parts.push(label(MARGIN, (top += 19), line, { size: 14, fill: hues.ink }));
  top += 18;
  const panels = [...(seen.diagram?.known ? ["phases"] : []), ...Object.keys(CHARTS), "slice"];
  panels.forEach((id, place) => {
    const x = MARGIN + (place % 3) * (CELL.width + GAP);
    const y = top + Math.floor(place / 3) * (CELL.height + GAP + 16);
    parts.push(`<g transform="translate(${n(x)} ${n(y)})">${panel(id, seen)}</g>`);
  });
  const height = top + Math.ceil(panels.length / 3) * (CELL.height + GAP + 16) + MARGIN;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${n(height)}" viewBox="0 0 ${WIDTH} ${n(height)}" font-family="system-ui, sans-serif"><rect width="100%" height="100%" fill="${hues.card}"/>${parts.join("")}</svg>`;
}

/** @param {string} svg @returns {Promise<Blob>} */
export async function pngOf(svg) {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [2 * image.width, 2 * image.height];
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture")))));
  } finally {
    URL.revokeObjectURL(image.src);
  }
}

/** @param {number} value */
const n = (value) => String(Number(value.toFixed(2)));
/** @param {string} text */
const safe = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

/** @param {number} x @param {number} y @param {string} text
 * @param {{size?: number, fill?: string, anchor?: string, weight?: string}} [how] */
const label = (x, y, text, { size = 11, fill = colours().soft, anchor = "start", weight = "400" } = {}) =>
  `<text x="${n(x)}" y="${n(y)}" font-size="${size}" fill="${fill}" text-anchor="${anchor}" font-weight="${weight}">${safe(text)}</text>`;

/** @param {string} text @param {number} most @returns {string[]} */
function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines.length - 1;
    if ((lines[last] ?? "").length + word.length > most) lines.push(word);
    else lines[last] = `${lines[last]} ${word}`.trim();
  }
  return lines;
}

/** @param {string} id @param {Seen} seen @returns {string} */
function panel(id, seen) {
  const title = CHARTS[id]?.title ?? (id === "slice" ? "A slice of the loss" : "Phase diagram");
  const head = label(0, 0, title, { size: 13, fill: colours().ink, weight: "600" });
  const inner = id === "phases" ? phases(seen) : id === "slice" ? slice(seen.results) : curves(CHARTS[id]?.chart(seen.results) ?? null);
  return head + `<g transform="translate(0 8)">${inner}</g>`;
}

/** @param {Chart | null} chart @returns {string} */
function curves(chart) {
  if (!chart) return label(20, 60, "not known here");
  const hues = colours();
  const box = { left: 50, right: CELL.width - 6, top: 4, bottom: CELL.height - 24 };
  const to = (/** @type {number} */ value) => (chart.log ? Math.log10(value) : value);
  const [low, high] = [to(chart.range[0]), to(chart.range[1])];
  const x = (/** @type {number} */ value) => box.left + (value / chart.until) * (box.right - box.left);
  const y = (/** @type {number} */ value) => {
    const share = (to(value) - low) / (high - low);
    return box.bottom - Math.min(Math.max(share, -0.02), 1.02) * (box.bottom - box.top);
  };
  const parts = [];
  for (const value of chart.log ? logTicks(chart.range, 6) : evenTicks(chart.range, 6))
    parts.push(`<line x1="${box.left}" x2="${n(box.right)}" y1="${n(y(value))}" y2="${n(y(value))}" stroke="${hues.grid}"/>`, label(box.left - 6, y(value) + 4, tick(value), { anchor: "end" }));
  for (const value of evenTicks([0, chart.until], 6)) parts.push(label(x(value), box.bottom + 15, tick(value), { anchor: "middle" }));
  parts.push(label((box.left + box.right) / 2, box.bottom + 29, "time", { anchor: "middle" }));
  if (chart.below && chart.below.y > chart.range[0]) parts.push(`<rect x="${box.left}" width="${n(box.right - box.left)}" y="${n(y(chart.below.y))}" height="${n(box.bottom - y(chart.below.y))}" ${paint("fill", chart.below.colour)}/>`);
  for (const { x: times, low: under, high: over, colour } of chart.bands) {
    const there = Array.from(times, (_, place) => place).filter((place) => Number.isFinite(times[place]) && Number.isFinite(over[place]) && (over[place] ?? 0) > 0);
    const edge = [...there.map((place) => `${n(x(times[place] ?? 0))} ${n(y(over[place] ?? 0))}`), ...there.reverse().map((place) => `${n(x(times[place] ?? 0))} ${n(y(Math.max(under[place] ?? 0, chart.range[0])))}`)];
    if (edge.length) parts.push(`<path d="M${edge.join("L")}Z" ${paint("fill", colour)}/>`);
  }
  for (const level of chart.levels)
    if (level.y >= chart.range[0] && level.y <= chart.range[1])
      parts.push(`<line x1="${box.left}" x2="${n(box.right)}" y1="${n(y(level.y))}" y2="${n(y(level.y))}" ${paint("stroke", level.colour)} stroke-dasharray="${(level.dash ?? [5, 4]).join(" ")}"/>`);
  for (const line of chart.lines) {
    const points = [];
    for (let place = 0; place < line.x.length; place += 1) {
      const [a, b] = [line.x[place] ?? NaN, line.y[place] ?? NaN];
      if (Number.isFinite(a) && Number.isFinite(b) && (!chart.log || b > 0)) points.push(`${n(x(a))} ${n(y(b))}`);
    }
    if (points.length) parts.push(`<path d="M${points.join("L")}" fill="none" ${paint("stroke", line.colour)} stroke-width="${line.width ?? 1.75}" stroke-linejoin="round"${line.dash ? ` stroke-dasharray="${line.dash.join(" ")}"` : ""}/>`);
  }
  return parts.join("");
}

/** A colour as SVG knows it: with its opacity apart. @param {"fill" | "stroke"} what @param {string} colour */
function paint(what, colour) {
  const told = /^rgb\((\d+) (\d+) (\d+) \/ ([\d.]+)\)$/.exec(colour);
  if (told) return `${what}="rgb(${told[1]},${told[2]},${told[3]})" ${what}-opacity="${told[4]}"`;
  const hex = /^(#[\da-f]{6})([\da-f]{2})$/i.exec(colour);
  return hex ? `${what}="${hex[1]}" ${what}-opacity="${n(parseInt(hex[2] ?? "ff", 16) / 255)}"` : `${what}="${colour}"`;
}

/** @param {Seen} seen @returns {string} */
function phases({ diagram, phases: kinds }) {
  if (!diagram?.known) return "";
  const map = placing(diagram, CELL.width, CELL.height);
  const parts = [];
  for (let up = 0; up < diagram.scales.length; up += 1)
    for (let right = 0; right < diagram.rates.length; right += 1) {
      let x = map.x(map.columns[right] ?? 1);
      const width = map.x(map.columns[right + 1] ?? 1) - x;
      const [low, high] = [map.y(map.rows[up] ?? 0), map.y(map.rows[up + 1] ?? 0)];
      for (const [colour, share] of strips(diagram, kinds, up, right)) {
        parts.push(`<rect x="${n(x)}" y="${n(high)}" width="${n(width * share)}" height="${n(low - high)}" fill="${colour}"/>`);
        x += width * share;
      }
    }
  for (const line of diagram.lines) {
    const points = Array.from(diagram.scales, (scale, up) => [map.x(line.rates[up] ?? NaN), map.y(scale)]).filter(([a = NaN]) => a >= map.left && a <= map.right);
    if (points.length > 1) parts.push(`<path d="M${points.map(([a = 0, b = 0]) => `${n(a)} ${n(b)}`).join("L")}" fill="none" stroke="#111" stroke-width="1.8" stroke-dasharray="${(DASHES[line.name] ?? [4, 3]).join(" ")}"/>`);
  }
  for (const rate of rateTicks(map, CELL.width)) parts.push(label(map.x(rate), map.bottom + 15, tick(rate), { anchor: "middle" }));
  for (const scale of scaleTicks(map, CELL.height)) parts.push(label(map.left - 6, map.y(scale) + 4, tick(scale), { anchor: "end" }));
  parts.push(label((map.left + map.right) / 2, map.bottom + 31, "learning rate η, against scale of the start", { anchor: "middle" }));
  return parts.join("");
}

/** @param {Results} results @returns {string} */
function slice(results) {
  const part = results.slice;
  if (!part?.arrays.loss) return label(20, 60, part?.reason ?? "not known here");
  const hues = colours();
  const [width, height] = [CELL.width, CELL.height - 10];
  const map = mapping(part, width, height);
  const [rows = 0, columns = 0] = part.arrays.loss.shape;
  const loss = row(part.arrays.loss);
  const share = heights(part);
  const parts = [`<clipPath id="plane"><rect width="${n(width)}" height="${n(height)}"/></clipPath><g clip-path="url(#plane)">`];
  for (let down = 0; down < rows; down += 1)
    for (let across = 0; across < columns; across += 1) {
      const up = share(loss[(rows - 1 - down) * columns + across] ?? NaN);
      const mixed = hues.low.map((low, channel) => Math.round(low + up * ((hues.high[channel] ?? 0) - low)));
      parts.push(`<rect x="${n((across * width) / columns)}" y="${n((down * height) / rows)}" width="${n(width / columns + 0.4)}" height="${n(height / rows + 0.4)}" fill="rgb(${mixed.join(",")})"/>`);
    }
  const surface = { x: row(part.arrays.x), y: row(part.arrays.y), z: loss };
  for (const level of part.levels ?? []) {
    const found = contour(surface, level);
    const d = [];
    for (let place = 0; place < found.length; place += 4) {
      const [from, to] = [map.point(found[place] ?? 0, found[place + 1] ?? 0), map.point(found[place + 2] ?? 0, found[place + 3] ?? 0)];
      d.push(`M${n(from[0])} ${n(from[1])}L${n(to[0])} ${n(to[1])}`);
    }
    if (d.length) parts.push(`<path d="${d.join("")}" fill="none" stroke="${hues.soft}" stroke-opacity=".6" stroke-width=".7"/>`);
  }
  const line = (/** @type {ArrayLike<number>} */ pairs, /** @type {string} */ colour, /** @type {string} */ dash) => {
    const points = [...map.path(pairs)].filter(([a, b]) => Number.isFinite(a) && Number.isFinite(b));
    if (points.length) parts.push(`<path d="M${points.map(([a, b]) => `${n(a)} ${n(b)}`).join("L")}" fill="none" stroke="${colour}" stroke-width="2" stroke-linejoin="round" stroke-dasharray="${dash}"/>`);
  };
  const runs = part.arrays.descent?.shape[0] ?? 0;
  for (let run = runs - 1; run >= 0; run -= 1) line(row(part.arrays.descent, run), hues.runs[run % hues.runs.length] ?? "", "");
  line(row(part.arrays.flow), hues.flow, "2 3");
  const points = row(part.arrays.points);
  const [across, up] = [column(points, 0, 2), column(points, 1, 2)];
  for (let place = 0; place < across.length; place += 1) {
    const [x, y] = map.point(across[place] ?? NaN, up[place] ?? NaN);
    if (Number.isFinite(x) && Number.isFinite(y)) parts.push(`<circle cx="${n(x)}" cy="${n(y)}" r="3.2" fill="${hues.card}" stroke="${hues.ink}"/>`, label(x, y - 7, part.names?.[place] ?? "", { anchor: "middle", fill: hues.ink }));
  }
  return `${parts.join("")}</g>`;
}
