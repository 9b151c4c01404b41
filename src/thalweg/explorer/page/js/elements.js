// @ts-check
/** Making and finding elements. */

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag @param {Record<string, string | boolean | ((event: any) => void)>} [attributes]
 * @param {...(Node | string)} inside @returns {HTMLElementTagNameMap[T]}
 */
export function made(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...inside);
  return element;
}

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element #${id}`);
  return found;
}

/** @param {string} id @returns {HTMLInputElement} */
export const inputById = (id) => /** @type {HTMLInputElement} */ (byId(id));

/** A sample of a line, for a legend.
 * @param {string} colour @param {number[]} [dash] @param {boolean} [area] @returns {SVGElement} */
export function sample(colour, dash = [], area = false) {
  const svg = svgElement("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" });
  svg.append(
    area
      ? svgElement("rect", { width: "28", height: "10", rx: "2", fill: colour })
      : svgElement("line", { x1: "0", x2: "28", y1: "5", y2: "5", stroke: colour, "stroke-width": "2.6", "stroke-dasharray": dash.join(" ") }),
  );
  return svg;
}

/** @param {string} tag @param {Record<string, string>} attributes @returns {SVGElement} */
export function svgElement(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** Hand a text or bytes to the person, as a file.
 * @param {string} name @param {Blob} blob */
export function download(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = made("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
