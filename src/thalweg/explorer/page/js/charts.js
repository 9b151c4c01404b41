// @ts-check
/** From results to charts: which lines, levels and bands each view has. */
import { evenRange, logRange } from "./axes.js";
import { colours } from "./colours.js";
import { column, row, shown } from "./numbers.js";

/** @import {Chart, Line, Results} from "./types.js" */

const FLOW_DASH = [2, 3];
const EDGE_DASH = [6, 4];

/** Each view of curves: its title, what it is, and its chart.
 * @type {Record<string, {title: string, meaning: string, part: string, chart: (results: Results) => Chart | null}>} */
export const CHARTS = {
  loss: {
    title: "Loss above its minimum",
    meaning: "How far the loss is above the least possible, by its logarithm. Dotted: gradient flow from the same start.",
    part: "descent",
    chart: lossChart,
  },
  sharpness: {
    title: "Sharpness",
    meaning: "The largest eigenvalue of the loss's Hessian. Dashed: the edge 2/η, above which descent is unstable. Shaded: no minimiser is as flat as this.",
    part: "sharpness",
    chart: sharpnessChart,
  },
  distance: {
    title: "Distance to the flow",
    meaning: "The Euclidean distance between the weights of descent and of gradient flow at the same time. Shaded: where it is proven to be.",
    part: "flow",
    chart: distanceChart,
  },
  lowest: {
    title: "Smallest eigenvalue",
    meaning: "Of the Hessian. Where it is negative the loss is not convex, and nearby paths drift apart.",
    part: "sharpness",
    chart: lowestChart,
  },
  product: {
    title: "Singular values, product",
    meaning: "What the network as a whole does, mode by mode. Each step up is a mode that has been learnt: from saddle to saddle.",
    part: "layers",
    chart: productChart,
  },
  layers: {
    title: "Singular values, layers",
    meaning: "The largest singular values of every layer; those of balanced layers coincide.",
    part: "layers",
    chart: layersChart,
  },
  balance: {
    title: "Loss of balance",
    meaning: "How far neighbouring layers are from having equal Gram matrices. The flow keeps it exactly; descent does not.",
    part: "layers",
    chart: balanceChart,
  },
};

/** The last time that any run or the flow is recorded at. @param {Results} results */
export function lastTime(results) {
  let last = 0;
  const times = row(results.descent?.arrays.time);
  for (const time of times) if (time > last) last = time;
  return last || 1;
}

/** @param {Results} results @returns {number[]} */
const rates = (results) => results.descent?.rates ?? [];

/** @param {number} run */
export const runColour = (run) => colours().runs[run % colours().runs.length] ?? "";

/** @param {Results} results @param {number} run @returns {string} */
const name = (results, run) => (rates(results).length > 1 ? `η ${shown(rates(results)[run] ?? NaN)}:` : "descent");

/** One line per learning rate. @param {Results} results @param {(run: number) => ArrayLike<number>} y
 * @returns {Line[]} */
function runs(results, y) {
  return rates(results).map((_, run) => ({
    label: name(results, run),
    x: row(results.descent?.arrays.time, run),
    y: y(run),
    colour: runColour(run),
  }));
}

/** @param {Results} results @param {ArrayLike<number>} y @returns {Line[]} */
function ofFlow(results, y) {
  const times = results.flow?.arrays.time;
  if (!times || !y.length) return [];
  return [{ label: "flow", x: row(times), y, colour: colours().flow, dash: FLOW_DASH }];
}

/** @param {Results} results @param {Partial<Chart> & {lines: Line[], log: boolean}} chart
 * @param {number[]} [also] @returns {Chart} */
function complete(results, chart, also = []) {
  const whole = { levels: [], bands: [], until: lastTime(results), ...chart };
  const range = logRange(chart.lines, also);
  // Within less than a decade an even axis tells more.
  if (chart.log && range[1] > 9 * range[0]) return { ...whole, range };
  return { ...whole, log: false, range: evenRange(chart.lines, also) };
}

/** @param {Results} results @returns {Chart | null} */
function lossChart(results) {
  if (!results.descent) return null;
  const least = results.descent.minimum ?? 0;
  const above = (/** @type {ArrayLike<number>} */ loss) => excess(loss, least);
  const lines = runs(results, (run) => above(row(results.descent?.arrays.loss, run)));
  return complete(results, { lines: [...lines, ...ofFlow(results, above(row(results.flow?.arrays.loss)))], log: true });
}

/** Above the minimum; what is rounding is left out. @param {ArrayLike<number>} loss @param {number} least */
function excess(loss, least) {
  const rounding = 64 * Number.EPSILON * Math.max(Math.abs(loss[0] ?? 0), Math.abs(least)) * (least === 0 ? 0 : 1);
  return Float64Array.from(loss, (value) => (value - least > rounding ? value - least : NaN));
}

/** @param {Results} results @returns {Chart | null} */
function sharpnessChart(results) {
  const part = results.sharpness;
  if (!part?.arrays.sharpness) return null;
  const lines = runs(results, (run) => row(part.arrays.sharpness, run));
  const edges = /** @type {number[]} */ (results.descent?.edge ?? []);
  const levels = edges.map((y, run) => ({ y, label: "2/η", colour: edges.length > 1 ? runColour(run) : colours().edge, dash: EDGE_DASH }));
  const seen = Math.max(...lines.flatMap((line) => Array.from(line.y).filter(Number.isFinite)), 0);
  const near = [...edges, part.least_sharpness ?? NaN].filter((y) => y < 60 * seen && y > seen / 1e4);
  return complete(
    results,
    { lines, log: true, levels, ...(part.least_sharpness > 0 ? { below: { y: part.least_sharpness, colour: colours().least } } : {}) },
    near,
  );
}

/** @param {Results} results @returns {Chart | null} */
function lowestChart(results) {
  const part = results.sharpness;
  if (!part?.arrays.smallest_eigenvalue) return null;
  const lines = runs(results, (run) => row(part.arrays.smallest_eigenvalue, run));
  return complete(results, { lines, log: false, levels: [{ y: 0, label: "0", colour: colours().soft, dash: [1, 0] }] }, [0]);
}

/** @param {Results} results @returns {Chart | null} */
function distanceChart(results) {
  const { flow, proof } = results;
  if (!flow?.arrays.distance) return null;
  const lines = runs(results, (run) => row(flow.arrays.distance, run));
  const [lower, upper] = [proof?.arrays.lower, proof?.arrays.upper];
  const bands = lower && upper
    ? rates(results).map((_, run) => ({
        x: row(results.descent?.arrays.time, run),
        low: row(lower, run),
        high: row(upper, run),
        colour: rates(results).length > 1 ? `${runColour(run)}38` : colours().band,
      }))
    : [];
  return complete(results, { lines, log: true, bands });
}


/** @param {Results} results @returns {Chart | null} */
function productChart(results) {
  const part = results.layers;
  const values = part?.arrays.product_singular;
  if (!part || !values) return null;
  const modes = values.shape[2] ?? 0;
  const run = 0; // that of the slider
  const x = row(results.descent?.arrays.time, run);
  const hues = colours().modes;
  /** @type {Line[]} */
  const lines = Array.from({ length: modes }, (_, mode) => ({
    label: modes > 1 ? `${mode + 1}:` : "descent",
    x,
    y: column(row(values, run), mode, modes),
    colour: hues[mode % hues.length] ?? "",
    quiet: mode > 3,
  }));
  const flow = results.flow?.arrays.product_singular;
  const kinds = flow?.shape[1] ?? 0;
  for (let mode = 0; mode < Math.min(kinds, modes); mode += 1)
    for (const line of ofFlow(results, column(row(flow), mode, kinds)))
      lines.push({ ...line, colour: modes > 1 ? (hues[mode % hues.length] ?? "") : line.colour, quiet: modes > 1 });
  return complete(results, { lines, log: false }, [0]);
}

/** @param {Results} results @returns {Chart | null} */
function layersChart(results) {
  const part = results.layers;
  if (!part) return null;
  const run = 0; // that of the slider
  const x = row(results.descent?.arrays.time, run);
  const norms = part.arrays.layer_norms;
  const values = part.arrays.layer_singular;
  if (!values && !norms) return null;
  const layers = (values ?? norms)?.shape[2] ?? 0;
  const most = values?.shape[3] ?? 1;
  const ramp = between(colours().modes[0] ?? "", colours().modes[1] ?? "", layers);
  const flat = values ? row(values, run) : row(norms, run);
  const lines = [];
  for (let mode = most - 1; mode >= 0; mode -= 1)
    for (let layer = 0; layer < layers; layer += 1)
      lines.push({
        label: layer === 0 ? "first" : "last",
        x,
        y: column(flat, layer * most + mode, layers * most),
        colour: (ramp[layer] ?? "") + (mode ? "66" : ""),
        width: layers > 12 ? 1 : 1.3,
        quiet: mode > 0 || (layer > 0 && layer < layers - 1),
      });
  return complete(results, { lines: lines.filter((line) => line.y.length && Number.isFinite(line.y[0] ?? NaN)), log: false }, [0]);
}

/** @param {Results} results @returns {Chart | null} */
function balanceChart(results) {
  const values = results.layers?.arrays.unbalancedness;
  if (!values) return null;
  const isKept = !Array.from(values.values).some((value) => value > 0); // exactly, which has no logarithm
  return complete(results, { lines: runs(results, (run) => row(values, run)), log: !isKept }, isKept ? [0, 1] : []);
}

/** Colours from one to another. @param {string} a @param {string} b @param {number} count */
export function between(a, b, count) {
  const [from, to] = [a, b].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  return Array.from({ length: count }, (_, place) => {
    const share = count > 1 ? place / (count - 1) : 0;
    const mixed = (from ?? []).map((value, channel) => Math.round(value + share * ((to?.[channel] ?? 0) - value)));
    return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
  });
}
