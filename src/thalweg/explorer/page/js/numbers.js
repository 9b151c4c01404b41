// @ts-check
/** Numbers as people read them. */

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** A few digits; a power of ten only where zeros would have to be counted.
 * @param {number} value @param {number} [digits] @returns {string} */
export function shown(value, digits = 3) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "–" : value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-4 && size < 1e5) return minus(String(Number(value.toPrecision(digits))));
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  const short = String(Number(mantissa));
  const ten = `10${raised(Number(power))}`;
  return minus(short === "1" ? ten : short === "-1" ? `-${ten}` : `${short}·${ten}`);
}

/** A tick of a logarithmic axis.
 * @param {number} value @returns {string} */
export function tick(value) {
  return Math.abs(value) >= 1e-2 && Math.abs(value) < 1e4 ? minus(String(Number(value.toPrecision(6)))) : shown(value, 2);
}

/** @param {number} power @returns {string} */
function raised(power) {
  const digits = String(Math.abs(power)).replace(/\d/g, (digit) => RAISED[Number(digit)] ?? "");
  return (power < 0 ? "⁻" : "") + digits;
}

/** @param {string} text @returns {string} */
const minus = (text) => text.replace("-", "−");

/** The place of the last entry that is not above a value, in a rising list that may end in NaN.
 * @param {ArrayLike<number>} list @param {number} value @returns {number} */
export function placeOf(list, value) {
  let low = 0;
  let high = list.length - 1;
  while (high > 0 && !Number.isFinite(list[high])) high -= 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((list[middle] ?? NaN) <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** One row of an array of several: all entries whose leading places are these.
 * @param {import("./types.js").Tensor | undefined} tensor @param {...number} places
 * @returns {import("./types.js").Numbers} */
export function row(tensor, ...places) {
  if (!tensor) return new Float64Array(0);
  let start = 0;
  let size = tensor.values.length;
  for (const [axis, place] of places.entries()) {
    size /= tensor.shape[axis] ?? 1;
    start += place * size;
  }
  return tensor.values.subarray(start, start + size);
}

/** Every n-th entry.
 * @param {ArrayLike<number>} values @param {number} first @param {number} every
 * @returns {Float64Array} */
export function column(values, first, every) {
  const found = new Float64Array(Math.ceil((values.length - first) / every) || 0);
  for (let place = 0; place < found.length; place += 1) found[place] = values[first + place * every] ?? NaN;
  return found;
}

/** The extremes of what is finite (and positive, if asked for); null where nothing is.
 * @param {Iterable<ArrayLike<number>>} lists @param {boolean} [positive]
 * @returns {[number, number] | null} */
export function extent(lists, positive = false) {
  let low = Infinity;
  let high = -Infinity;
  for (const list of lists)
    for (let place = 0; place < list.length; place += 1) {
      const value = list[place] ?? NaN;
      if (!Number.isFinite(value) || (positive && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  return low <= high ? [low, high] : null;
}
