// @ts-check
/** What a person turns: sliders, choices and the table dropped on the page. */
import { runColour } from "./charts.js";
import { byId, made } from "./elements.js";
import { asTable, field } from "./setting.js";
import { shown } from "./numbers.js";
import { explain } from "./words.js";

/** @import {Beginning, Setting, Value} from "./types.js" */

/**
 * @typedef {{name: string, label: string, log?: boolean, whole?: boolean, step?: number,
 *   range: [number, number], if?: (setting: Setting) => boolean, second?: boolean,
 *   instead?: (full: Setting) => number}} Slider
 */

const NAMES = {
  "data.source": {
    gaussian: "Gaussian", conditioned: "ill-conditioned", target: "a target matrix",
    diabetes: "diabetes (442)", linnerud: "linnerud (20)", csv: "my own table",
  },
  "network.kind": { linear: "linear", homogeneous: "ReLU" },
  "start.kind": {
    gaussian: "Gaussian", balanced: "balanced", residual: "residual", identity: "identity", aligned: "aligned",
    unbalanced: "unbalanced", xavier_uniform: "Xavier uniform", pytorch_default: "PyTorch's default",
  },
};

const has = (/** @type {string} */ name) => (/** @type {Setting} */ setting) => field(setting, name) !== undefined;
const isLinear = (/** @type {Setting} */ setting) => field(setting, "network.kind") !== "homogeneous";

/** @type {Slider[]} */
const FIRST = [
  { name: "training.learning_rate", label: "Learning rate η", log: true, range: [1e-4, 4] },
  { name: "start.scale", label: "Scale of the start", log: true, range: [0.01, 3], if: has("start.scale") },
  { name: "training.time", label: "Time to train for", log: true, range: [0.5, 500], second: true, instead: (full) => Number(field(full, "training.time") ?? 16), if: (setting) => !has("training.steps")(setting) },
  { name: "training.steps", label: "Steps to train for", whole: true, range: [8, 4000], second: true, if: has("training.steps") },
];
/** @type {Slider[]} */
const NETWORK = [
  { name: "network.depth", label: "Depth", whole: true, range: [1, 40], instead: (full) => Number(field(full, "network.depth") ?? 10) },
  { name: "network.width", label: "Width", whole: true, range: [1, 10], if: (setting) => field(setting, "network.readout") !== true, instead: (full) => Number(field(full, "network.width") ?? field(full, "data.features") ?? 5) },
  { name: "network.slope", label: "Slope below zero", step: 0.05, range: [0, 1], if: (setting) => !isLinear(setting), instead: (full) => Number(/** @type {number[]} */ (field(full, "network.slopes") ?? [1, 0])[1]) },
];
/** @type {Slider[]} */
const START = [
  { name: "start.product", label: "First entry of the product", step: 0.01, range: [0.05, 0.99], if: has("start.product") },
  { name: "start.factor", label: "Loss of balance (factor)", log: true, range: [1, 5000], if: has("start.factor") },
  { name: "start.norm", label: "Norm of the product", log: true, range: [0.001, 2], if: has("start.norm") },
  { name: "start.cosine", label: "Cosine to the solution", step: 0.05, range: [-1, 1], if: has("start.cosine") },
];
/** @type {Slider[]} */
const DATA = [
  { name: "data.samples", label: "Samples", whole: true, range: [1, 200], if: has("data.samples") },
  { name: "data.features", label: "Features", whole: true, range: [1, 10], if: has("data.features") },
  { name: "data.outputs", label: "Outputs", whole: true, range: [1, 10], if: has("data.outputs") },
  { name: "data.condition", label: "Condition number", log: true, range: [1, 10000], if: has("data.condition") },
  { name: "data.noise", label: "Noise", step: 0.05, range: [0, 5], if: has("data.noise") },
];
const SEEDS = { "start.seed": "Seed of the start", "data.seed": "Seed of the data" };

export class Controls {
  /** @param {Beginning} beginning
   * @param {(changes: Record<string, Value>, done: boolean) => void} change
   * @param {(file: File) => void} giveFile */
  constructor(beginning, change, giveFile) {
    this.beginning = beginning;
    this.change = change;
    /** @type {((full: Setting) => void)[]} */ this.follow = [];
    /** @type {Setting} */ this.full = {};
    /** @type {Setting} */ this.wanted = {};
    const own = beginning.mode === "own";
    byId("main-controls").append(...FIRST.filter((each) => !own || each.name.startsWith("training")).map((each) => this.#slider(each)), this.#compare());
    if (own) byId("more").hidden = true;
    else byId("other-controls").append(
      this.#group("Network", this.#choice("network.kind", "Kind"), ...NETWORK.map((each) => this.#slider(each))),
      this.#group("Start", this.#choice("start.kind", "Kind"), ...START.map((each) => this.#slider(each)), this.#seed("start.seed")),
      this.#group("Data", this.#choice("data.source", "From"), this.#matrix(), this.#target(), ...DATA.map((each) => this.#slider(each)), this.#tick("data.white", "Whitened inputs"), this.#seed("data.seed"), this.#drop(giveFile)),
      made("button", { type: "button", id: "reset", click: () => this.change({}, true) }, "Back to the beginning"),
    );
    const more = byId("more");
    more.addEventListener("click", () => {
      const open = byId("other-controls").classList.toggle("open");
      more.setAttribute("aria-expanded", String(open));
    });
  }

  /** @param {Setting} full all fields of the setting */
  show(full) {
    this.full = full;
    for (const follow of this.follow) follow(full);
  }

  /** Mark what a refusal is about; nothing, if null. @param {string | null} name */
  wrong(name) {
    for (const each of document.querySelectorAll(".field")) each.classList.toggle("wrong", each.getAttribute("data-field") === name);
  }

  /** @param {string} title @param {...HTMLElement} inside */
  #group(title, ...inside) {
    return made("fieldset", {}, made("legend", {}, title), ...inside);
  }

  /** @param {string} name @param {string} label @param {...(Node | string)} inside */
  #field(name, label, ...inside) {
    const id = `field-${name.replaceAll(".", "-")}`;
    const tag = made("label", { for: id }, label);
    const told = this.beginning.descriptions?.[name];
    if (told) explain(tag, told.charAt(0).toUpperCase() + told.slice(1) + ".");
    return { id, element: made("div", { class: "field", "data-field": name }, tag, ...inside) };
  }

  /** The range of a slider: ours within the server's limits. @param {Slider} spec @returns {[number, number]} */
  #range(spec) {
    const limits = this.beginning.limits ?? {};
    const key = spec.name.split(".")[1] ?? "";
    const own = limits[spec.name] ?? limits[key];
    const [low, high] = spec.range;
    if (Array.isArray(own)) return [Math.max(low, own[0]), Math.min(high, own[1])];
    return typeof own === "number" ? [low, Math.min(high, own)] : [low, high];
  }

  /** @param {Slider} spec */
  #slider(spec) {
    const [low, high] = this.#range(spec);
    const { id, element } = this.#field(spec.name, spec.label);
    if (spec.second) element.classList.add("second");
    const to = (/** @type {number} */ value) => (spec.log ? 1000 * (Math.log(value / low) / Math.log(high / low)) : value);
    const back = (/** @type {number} */ place) => {
      const value = spec.log ? low * (high / low) ** (place / 1000) : place;
      return spec.whole ? Math.round(value) : Number(value.toPrecision(3));
    };
    const step = spec.log ? "1" : String(spec.step ?? (spec.whole ? 1 : "any"));
    const number = made("input", { type: "number", step: "any", "aria-label": `${spec.label}, as a number` });
    const slide = made("input", { type: "range", id, step, min: String(spec.log ? 0 : low), max: String(spec.log ? 1000 : high) });
    let last = ""; // what is shown of the setting
    const send = (/** @type {number} */ value, /** @type {boolean} */ done) => {
      number.value = String(value);
      slide.setAttribute("aria-valuetext", shown(value));
      this.change({ [spec.name]: value }, done);
    };
    slide.addEventListener("input", () => send(back(Number(slide.value)), false));
    slide.addEventListener("change", () => send(back(Number(slide.value)), true));
    number.addEventListener("change", () => {
      const value = Number(number.value);
      if (number.value.trim() && Number.isFinite(value)) send(spec.whole ? Math.round(value) : value, true);
      else number.value = last;
    });
    element.append(number, slide);
    this.follow.push((full) => {
      element.hidden = spec.if ? !spec.if(full) : false;
      const raw = field(full, spec.name);
      const value = spec.instead ? spec.instead(full) : Number(Array.isArray(raw) ? raw[0] : raw);
      if (!Number.isFinite(value)) return;
      last = String(value);
      if (document.activeElement !== number) number.value = last;
      if (document.activeElement !== slide || back(Number(slide.value)) !== value) slide.value = String(to(value));
      slide.setAttribute("aria-valuetext", shown(value));
    });
    return element;
  }

  /** @param {string} name @param {string} label */
  #choice(name, label) {
    const { id, element } = this.#field(name, label);
    /** @type {Record<string, string>} */
    const names = NAMES[/** @type {keyof typeof NAMES} */ (name)];
    const choices = (this.beginning.choices?.[name] ?? Object.keys(names)).filter((each) => each in names);
    const select = made("select", { id, change: () => this.change({ [name]: select.value }, true) }, ...choices.map((each) => made("option", { value: each }, names[each] ?? each)));
    element.append(select);
    this.follow.push((full) => (select.value = String(field(full, name))));
    if (name === "data.source")
      this.follow.push((full) => {
        const csv = select.querySelector('option[value="csv"]');
        csv?.toggleAttribute("disabled", !this.beginning.data && field(full, name) !== "csv");
      });
    return element;
  }

  /** @param {keyof typeof SEEDS} name */
  #seed(name) {
    const { id, element } = this.#field(name, SEEDS[name]);
    const number = made("input", { type: "number", id, min: "0", step: "1" });
    const go = (/** @type {number} */ seed) => this.change({ [name]: Math.max(0, Math.round(seed)) }, true);
    number.addEventListener("change", () => go(Number(number.value)));
    const another = made("button", { type: "button", click: () => go(Number(number.value) + 1), "aria-label": `${SEEDS[name]}: the next` }, "another");
    element.append(made("span", { class: "pair" }, number, another));
    this.follow.push((full) => {
      const seed = field(full, name);
      element.hidden = seed === undefined;
      number.value = String(seed ?? 0);
    });
    return element;
  }

  /** @param {string} name @param {string} label */
  #tick(name, label) {
    const { id, element } = this.#field(name, label);
    const box = made("input", { type: "checkbox", id, change: () => this.change({ [name]: box.checked }, true) });
    element.append(box);
    this.follow.push((full) => {
      element.hidden = field(full, name) === undefined;
      box.checked = field(full, name) === true;
    });
    return element;
  }

  #matrix() {
    const { id, element } = this.#field("data.matrix", "Target, rows by ;");
    const text = made("input", { type: "text", id, class: "wide", spellcheck: "false" });
    text.addEventListener("change", () => {
      const rows = text.value.split(";").map((line) => line.trim().split(/[\s,]+/).map(Number));
      this.change({ "data.matrix": rows }, true);
    });
    element.append(text);
    this.follow.push((full) => {
      const rows = field(full, "data.matrix");
      element.hidden = rows === undefined;
      if (Array.isArray(rows)) text.value = rows.map((line) => (Array.isArray(line) ? line.join(" ") : line)).join("; ");
    });
    return element;
  }

  #target() {
    const { id, element } = this.#field("data.target", "Column to predict");
    const select = made("select", { id, change: () => this.change({ "data.target": [select.value] }, true) });
    element.append(select);
    this.follow.push((full) => {
      element.hidden = field(full, "data.source") !== "csv";
      const columns = this.beginning.data?.columns ?? [];
      if (select.options.length !== columns.length || columns.some((each, place) => select.options[place]?.value !== each))
        select.replaceChildren(...columns.map((each) => made("option", { value: each }, each)));
      const target = field(full, "data.target");
      select.value = String(Array.isArray(target) ? target[0] : target);
    });
    return element;
  }

  /** @param {(file: File) => void} give */
  #drop(give) {
    const file = made("input", { type: "file", accept: ".csv,text/csv", class: "unseen", id: "file", tabindex: "-1", "aria-label": "A CSV table" });
    file.addEventListener("change", () => {
      const [chosen] = file.files ?? [];
      if (chosen) give(chosen);
      file.value = "";
    });
    const button = made("button", { type: "button", class: "drop", id: "drop", click: () => file.click() }, "Drop a CSV table on the page, or choose one. It stays on this machine.");
    return made("div", {}, button, file);
  }

  /** Up to four learning rates side by side: the slider's, and those that were kept. */
  #compare() {
    const place = made("div", { class: "compare", role: "group", "aria-label": "Learning rates to compare with" });
    this.follow.push((full) => {
      const rates = /** @type {number[]} */ ([field(full, "training.learning_rate")].flat());
      const [first = 0.05, ...others] = rates;
      const most = this.beginning.limits?.rates ?? 4;
      const chips = others.map((rate, at) => {
        const swatch = made("span", { class: "swatch" });
        swatch.style.background = runColour(at + 1);
        return made("button", { type: "button", "aria-label": `Stop comparing with ${shown(rate)}`, click: () => this.change({ "training.learning_rate": [first, ...others.filter((other) => other !== rate)] }, true) }, swatch, `η ${shown(rate)} ×`);
      });
      const keep = made("button", { type: "button", id: "keep", click: () => this.change({ "training.learning_rate": [Number((first / 2).toPrecision(3)), first, ...others] }, true) }, "Keep this η, to compare");
      if (rates.length >= most) keep.disabled = true;
      const before = place.contains(document.activeElement);
      place.replaceChildren(keep, ...chips);
      if (before) keep.focus();
    });
    return place;
  }
}

/** What a change of one field brings with it, so that the whole stays possible.
 * @param {Setting} setting @param {Setting} full @param {Record<string, Value>} changes
 * @returns {Record<string, Value>} */
export function withCompanions(setting, full, changes) {
  const made = { ...changes };
  if (typeof changes["training.learning_rate"] === "number") {
    const others = /** @type {number[]} */ ([field(full, "training.learning_rate")].flat()).slice(1);
    const first = changes["training.learning_rate"];
    made["training.learning_rate"] = [first, ...others.filter((rate) => rate !== first)];
  }
  if ("network.slope" in changes) {
    made["network.slopes"] = [1, Number(changes["network.slope"])];
    delete made["network.slope"];
  }
  const kind = changes["start.kind"];
  if (kind !== undefined) {
    const before = asTable(setting.network);
    if (kind === "residual") Object.assign(made, { "network.readout": true, "network.width": null, "network.kind": "linear" });
    else if (before.readout) made["network.readout"] = null;
  }
  if (changes["network.kind"] === "homogeneous") {
    made["network.readout"] = null;
    if (!["gaussian", "xavier_uniform", "pytorch_default"].includes(String(field(full, "start.kind")))) made["start.kind"] = "gaussian";
    if (field(full, "data.source") === "target") made["data.source"] = "gaussian";
  } else if (changes["network.kind"] === "linear") made["network.slopes"] = null;
  if (changes["data.source"] === "target") Object.assign(made, { "network.kind": "linear", "network.slopes": null });
  return made;
}

