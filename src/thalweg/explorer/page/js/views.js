// @ts-check
/** All views at once: their figures, and what each shows of the results. */
import { CHARTS } from "./charts.js";
import { colours, PHASE_ORDER, phaseColour } from "./colours.js";
import { Curves } from "./curves.js";
import { byId, made, sample } from "./elements.js";
import { DASHES, PhaseMap } from "./phasemap.js";
import { Slice } from "./slice.js";
import { onTime } from "./time.js";
import { term } from "./words.js";

/** @import {Beginning, Results} from "./types.js" */

const ORDER = ["phases", "loss", "sharpness", "distance", "lowest", "balance", "slice", "product", "layers"];

/** @typedef {{figure: HTMLElement, plot: HTMLElement, reading: HTMLElement, note: HTMLElement, key: HTMLElement}} Frame */

export class Views {
  /** @param {Beginning} beginning @param {(rate: number, scale: number, done: boolean) => void} go */
  constructor(beginning, go) {
    this.own = beginning.mode === "own";
    /** @type {Record<string, Frame>} */ this.frames = {};
    for (const id of ORDER) if (!(this.own && id === "phases")) this.#add(id);
    /** @type {Record<string, Curves>} */
    this.curves = {};
    for (const [id, { title }] of Object.entries(CHARTS)) this.curves[id] = new Curves(this.#frame(id).plot, this.#frame(id).reading, title);
    this.slice = new Slice(this.#frame("slice").plot, this.#frame("slice").reading);
    this.map = this.own ? null : new PhaseMap(this.#frame("phases").plot, this.#frame("phases").reading, beginning.phases, go);
    /** @type {Results} */ this.results = {};
    this.lineNames = "";
    onTime(() => this.moved());
    this.#phaseKey(beginning);
  }

  /** @param {string} id @returns {Frame} */
  #frame(id) {
    const frame = this.frames[id];
    if (!frame) throw new Error(`no view ${id}`);
    return frame;
  }

  /** @param {string} id */
  #add(id) {
    const title = CHARTS[id]?.title ?? (id === "slice" ? "A slice of the loss" : "Phase diagram");
    const meaning = CHARTS[id]?.meaning ?? (id === "slice"
      ? "The loss on the plane through the start, the end of the flow and the end of descent, as contour lines, with both paths projected onto it. Where both end at the same point, it goes through the point of the flow that is farthest from the straight line."
      : "What becomes of descent, for 4 random starts per cell; a cell is divided among what its runs did. Click or drag to go there.");
    const reading = made("span", { class: "reading", "aria-hidden": "true" });
    const plot = made("div", { class: "plot" });
    const note = made("p", { class: "note", hidden: true });
    const key = made("div", { class: "small-key" });
    const heading = made("h3", {}, term(title, meaning));
    const figure = made("figure", { class: "view", id: `view-${id}` }, made("figcaption", {}, heading, reading), plot, key, note);
    byId("views").append(figure);
    this.frames[id] = { figure, plot, reading, note, key };
  }

  /** @param {Beginning} beginning */
  #phaseKey(beginning) {
    if (this.own) return;
    const phases = PHASE_ORDER.flatMap((name) => beginning.phases.filter((phase) => phase.name === name));
    this.#frame("phases").key.append(...phases.map((phase) => made("span", {}, sample(phaseColour(phase.name), [], true), phase.meaning)));
  }

  /** @param {Results} results */
  show(results) {
    this.results = results;
    for (const [id, { part, chart }] of Object.entries(CHARTS)) {
      const made = chart(results);
      if (made) this.curves[id]?.show(made);
      this.#note(id, results[part], Boolean(made));
    }
    this.#name("layers", results.layers?.arrays.layer_norms ? "Norms of layers" : "Singular values, layers");
    this.slice.show(results);
    this.#note("slice", results.slice, Boolean(results.slice?.arrays.loss));
    if (this.map) this.#note("phases", results.phase, this.map.diagram.known);
    this.#keys(results);
  }

  /** @param {string} id @param {string} title */
  #name(id, title) {
    const heading = this.#frame(id).figure.querySelector("h3 .term");
    if (heading && heading.textContent !== title) heading.textContent = title;
  }

  /** Why there is nothing to be seen. @param {string} id @param {import("./types.js").Part | undefined} part
   * @param {boolean} seen */
  #note(id, part, seen) {
    const { figure, note, plot, reading } = this.#frame(id);
    const refused = part?.state === "refused";
    figure.classList.toggle("refused", refused);
    figure.hidden = Boolean(part && !part.old && !refused && !seen); // such as the product of no matrices
    note.hidden = !refused && seen;
    note.textContent = refused ? (part.reason ?? "Not known here.") : seen ? "" : "…";
    plot.style.visibility = refused ? "hidden" : "";
    if (refused) reading.textContent = "";
  }

  /** @param {Results} results */
  #keys(results) {
    const hues = colours();
    const { sharpness, proof } = results;
    const names = JSON.stringify([hues.ink, Boolean(sharpness?.least_sharpness), Boolean(proof?.arrays.lower), this.map?.diagram.lines.map((line) => line.label), results.descent?.rates.length]);
    if (names === this.lineNames) return;
    this.lineNames = names;
    const runs = results.descent?.rates.length ?? 1;
    byId("key").replaceChildren(
      ...(runs === 1 ? [made("li", {}, sample(hues.runs[0] ?? ""), "gradient descent")] : []),
      made("li", {}, sample(hues.flow, [3, 3]), "gradient flow"),
    );
    this.#frame("sharpness").key.replaceChildren(
      made("span", {}, sample(hues.edge, [6, 4]), "edge, 2/η"),
      ...(sharpness?.least_sharpness > 0 ? [made("span", {}, sample(hues.least, [], true), "no minimiser is this flat")] : []),
    );
    this.#frame("distance").key.replaceChildren(...(proof?.arrays.lower ? [made("span", {}, sample(hues.band, [], true), "proven to be in here")] : []));
    this.#frame("slice").key.replaceChildren(
      ...(runs === 1 ? [made("span", {}, sample(hues.runs[0] ?? ""), "descent")] : []),
      made("span", {}, sample(hues.flow, [3, 3]), "flow"),
      made("span", {}, sample(hues.soft), "contours: factors of two in the loss"),
    );
    if (!this.map) return;
    const { key } = this.#frame("phases");
    for (const old of key.querySelectorAll(".theory")) old.remove();
    key.append(...this.map.diagram.lines.map((line) => made("span", { class: "theory" }, sample(hues.ink, DASHES[line.name] ?? [4, 3]), line.label)));
  }

  moved() {
    for (const curves of Object.values(this.curves)) curves.moved();
    this.slice.draw();
  }

  /** Draw all in other colours. */
  renew() {
    for (const curves of Object.values(this.curves)) curves.renew();
    this.lineNames = "";
    this.slice.draw();
    this.map?.draw();
    this.show(this.results);
  }

  /** Point at some views, for a story. @param {string[]} ids */
  look(ids) {
    for (const [id, { figure }] of Object.entries(this.frames)) figure.classList.toggle("look", ids.includes(id));
  }

  /** @param {string} id @param {boolean} stale */
  stale(id, stale) {
    this.frames[id]?.plot.classList.toggle("stale", stale);
  }
}
