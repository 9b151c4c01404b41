// @ts-check
/** Contour lines by marching squares. */

/** @typedef {{x: ArrayLike<number>, y: ArrayLike<number>, z: ArrayLike<number>}} Surface z row by row */

/** The segments of one level: x, y, x, y of each.
 * @param {Surface} surface @param {number} level @returns {number[]} */
export function contour({ x, y, z }, level) {
  const segments = [];
  const columns = x.length;
  for (let row = 0; row + 1 < y.length; row += 1)
    for (let column = 0; column + 1 < columns; column += 1) {
      const at = row * columns + column;
      const corners = [z[at], z[at + 1], z[at + columns + 1], z[at + columns]].map((value) => value ?? NaN);
      if (!corners.every(Number.isFinite)) continue;
      const met = crossings(corners, level, cell(x, y, column, row));
      for (let place = 0; place + 1 < met.length; place += 2) segments.push(...(met[place] ?? []), ...(met[place + 1] ?? []));
    }
  return segments;
}

/** @param {ArrayLike<number>} x @param {ArrayLike<number>} y @param {number} column @param {number} row
 * @returns {[number, number][]} */
const cell = (x, y, column, row) => [
  [x[column] ?? 0, y[row] ?? 0],
  [x[column + 1] ?? 0, y[row] ?? 0],
  [x[column + 1] ?? 0, y[row + 1] ?? 0],
  [x[column] ?? 0, y[row + 1] ?? 0],
];

/** Where a level meets the sides of a cell, in pairs that belong together.
 * @param {number[]} z @param {number} level @param {[number, number][]} corners
 * @returns {[number, number][]} */
function crossings(z, level, corners) {
  /** @type {[number, number][]} */
  const met = [];
  for (let side = 0; side < 4; side += 1) {
    const next = (side + 1) % 4;
    const [a, b] = [z[side] ?? 0, z[next] ?? 0];
    if (a > level === b > level) continue;
    const share = (level - a) / (b - a);
    const from = corners[side] ?? [0, 0];
    const to = corners[next] ?? [0, 0];
    met.push([from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1])]);
  }
  const [first, second, third, fourth] = met;
  if (!fourth || !first || !second || !third) return met;
  // A saddle: the centre decides which corners are cut off.
  const centre = z.reduce((sum, value) => sum + value, 0) / 4 > level;
  return centre === (z[0] ?? 0) > level ? [first, second, third, fourth] : [fourth, first, second, third];
}
