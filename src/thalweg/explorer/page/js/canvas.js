// @ts-check
/** Drawing on a canvas of one's own, sharp on every screen. */

/** @param {HTMLElement} place @param {() => void} draw called when its size has changed
 * @returns {HTMLCanvasElement} */
export function canvasIn(place, draw) {
  const canvas = document.createElement("canvas");
  canvas.className = "own";
  place.append(canvas);
  new ResizeObserver(draw).observe(place);
  return canvas;
}

/** Its size in CSS pixels, with a context scaled to them and emptied.
 * @param {HTMLCanvasElement} canvas
 * @returns {{ctx: CanvasRenderingContext2D, width: number, height: number} | null} */
export function fresh(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ctx = canvas.getContext("2d");
  if (!ctx || !width || !height) return null;
  const ratio = devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return { ctx, width, height };
}

/** A line through points; those that are not numbers are left out.
 * @param {CanvasRenderingContext2D} ctx @param {Iterable<[number, number]>} points */
export function trace(ctx, points) {
  ctx.beginPath();
  for (const [x, y] of points) if (Number.isFinite(x) && Number.isFinite(y)) ctx.lineTo(x, y);
  ctx.stroke();
}
