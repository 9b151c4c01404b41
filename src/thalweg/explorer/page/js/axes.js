// @ts-check
/** Ranges and ticks of axes, shared by the screen and the pictures that are saved. */
import { extent } from "./numbers.js";

/** @import {Line} from "./types.js" */

const LEAST = 1e-16; // as a share of the largest value: below is rounding
const MOST = 1e4; // as a multiple of where a curve starts: beyond it has blown up

/** The range of lines on a logarithmic axis: whole of 1, 2, 5, 10 ...
 * @param {Line[]} lines @param {number[]} [also] values to be seen as well
 * @returns {[number, number]} */
export function logRange(lines, also = []) {
  const seen = extent([...lines.map((line) => line.y), also], true);
  if (!seen) return [0.1, 10];
  const first = extent([...lines.map((line) => Array.from(line.y).slice(0, 2)), also], true) ?? seen;
  const high = Math.min(seen[1], first[1] * MOST * 100);
  const low = Math.max(seen[0], high * LEAST);
  const [a, b] = [below(low), above(high)];
  return a < b ? [a, b] : [a / 10, b * 10];
}

/** @param {number} value */
function below(value) {
  const ten = 10 ** Math.floor(Math.log10(value) + 1e-9);
  return ten * (value >= 5 * ten ? 5 : value >= 2 * ten ? 2 : 1) * 0.999;
}

/** @param {number} value */
function above(value) {
  const ten = 10 ** Math.floor(Math.log10(value) - 1e-9);
  return ten * (value <= 2 * ten ? 2 : value <= 5 * ten ? 5 : 10) * 1.001;
}

/** @param {Line[]} lines @param {number[]} [also] @returns {[number, number]} */
export function evenRange(lines, also = []) {
  const seen = extent([...lines.map((line) => line.y), also]);
  if (!seen) return [0, 1];
  const first = extent(lines.map((line) => Array.from(line.y).slice(0, 2))) ?? seen;
  const most = MOST * Math.max(Math.abs(first[0]), Math.abs(first[1]), 1e-12);
  const [low, high] = [Math.max(seen[0], -most), Math.min(seen[1], most)];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - room, high + room];
}

/** @param {[number, number]} range @param {number} count about how many @returns {number[]} */
export function evenTicks([low, high], count) {
  const raw = (high - low) / Math.max(1, count);
  const ten = 10 ** Math.floor(Math.log10(raw));
  const step = ten * (raw / ten >= 5 ? 10 : raw / ten >= 2 ? 5 : raw / ten >= 1 ? 2 : 1);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high * (1 + 1e-12) + step * 1e-9; place += 1)
    found.push(Number((place * step).toPrecision(12)));
  return found;
}

/** Powers of ten; between few of them 2 and 5 as well.
 * @param {[number, number]} range @param {number} count at most @returns {number[]} */
export function logTicks([low, high], count) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-6), Math.floor(Math.log10(high) + 1e-6)];
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(1, count)));
  const tens = [];
  for (let power = Math.ceil(first / every) * every; power <= last; power += every) tens.push(10 ** power);
  if (tens.length > 2 || every > 1) return tens.map((ten) => Number(ten.toPrecision(12)));
  const found = [];
  for (let power = first - 1; power <= last; power += 1)
    for (const factor of [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= low && value <= high) found.push(Number(value.toPrecision(12)));
    }
  return found;
}
