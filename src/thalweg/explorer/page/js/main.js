// @ts-check
/** The page: one setting, its results as they stream in, and the address that holds both. */
import { lastTime } from "./charts.js";
import { Computations, beginning } from "./connection.js";
import { Controls, withCompanions } from "./controls.js";
import { byId, made } from "./elements.js";
import { showGuarantees } from "./guarantees.js";
import { scrubber } from "./scrubber.js";
import { changed, field, filled, read, trimmed, written } from "./setting.js";
import { sharing } from "./sharing.js";
import { Tables } from "./tables.js";
import { themes } from "./themes.js";
import { pin, pinned, setEnd } from "./time.js";
import { Tour } from "./tour.js";
import { Views } from "./views.js";
import { explained } from "./words.js";

/** @import {Beginning, Part, Results, Setting, Value} from "./types.js" */

class Page {
  /** @param {Beginning} begun */
  constructor(begun) {
    this.begun = begun;
    /** @type {Setting} */ this.setting = {};
    /** @type {Results} */ this.results = {};
    /** @type {Results} */ this.coming = {};
    /** @type {string[]} */ this.sentences = [];
    this.drawing = 0;
    /** @type {number | undefined} */ this.staleTimer = undefined;
    /** @type {number | null} */ this.wantedTime = null;
    this.writing = 0;
    this.complete = ""; // the setting that all is shown of
    this.curves = ""; // the setting of the curves
    this.views = new Views(begun, (rate, scale, done) => this.change({ "training.learning_rate": rate, ...(field(this.full, "start.scale") === undefined ? {} : { "start.scale": scale }) }, done));
    this.controls = new Controls(begun, (changes, done) => this.change(changes, done), (file) => void this.tables.give(file));
    this.work = new Computations({
      part: (part, setting) => this.receive(part, setting),
      begun: () => this.begin(),
      ended: (setting, superseded) => this.finish(setting, superseded),
      refused: (refusal) => this.refuse(refusal.message, refusal.field),
      lost: () => this.lost(),
      back: () => void this.back(),
    });
    this.work.phasesHeld = () => (this.views.map && this.views.map.diagram.done >= 1 ? this.views.map.diagram.key : null);
    this.tour = new Tour({
      go: (setting) => this.go(setting),
      look: (views, time) => {
        this.views.look(views);
        if (time !== null) pin(time);
        this.bringIntoView(views);
      },
      moved: () => this.write(),
    });
    sharing(this);
    scrubber(() => this.write());
    this.tables = new Tables(this);
    themes(() => {
      this.controls.show(this.full);
      this.views.renew();
    });
    window.addEventListener("hashchange", () => this.restore());
    window.setInterval(() => document.visibilityState === "visible" && void this.work.check(), 3000);
    byId("version").textContent = `thalweg ${begun.version}`;
    if (begun.mode === "own") {
      byId("open-stories").hidden = true;
      byId("stories").hidden = true;
      for (const kind of ["toml", "python", "command"]) document.querySelector(`[data-export="${kind}"]`)?.setAttribute("hidden", "");
    }
    this.restore();
  }

  /** All fields of the setting. */
  get full() {
    return filled(this.begun.defaults, this.setting);
  }

  // --- the setting -----------------------------------------------------------------------------

  /** What the address says, or else what the command line said. */
  restore() {
    const hash = location.hash.replace(/^#/, "");
    if (hash && hash === this.address()) return;
    const { setting, time, story } = read(hash);
    this.setting = hash ? setting : trimmed(this.begun.defaults, this.begun.setting);
    if (hash && this.begun.mode === "own" && !setting.training) this.setting = this.begun.setting;
    this.wantedTime = time;
    pin(time);
    this.tour.resume(story);
    this.compute();
  }

  /** @param {Record<string, Value>} changes @param {boolean} done whether the slider was let go */
  change(changes, done) {
    if (!Object.keys(changes).length) return this.go({});
    const whole = withCompanions(this.setting, this.full, changes);
    this.setting = trimmed(this.begun.defaults, within(changed(this.rooted(whole), whole), this.begun, changes));
    if (done) this.tour.told.moved();
    this.compute();
  }

  /** A table that is changed in part has all its fields. @param {Record<string, Value>} changes @returns {Setting} */
  rooted(changes) {
    const { full } = this;
    /** @type {Setting} */
    const rooted = { ...this.setting };
    for (const name of Object.keys(changes)) {
      const [table = ""] = name.split(".");
      if ((table === "data" || table === "start" || table === "training") && full[table] !== undefined) rooted[table] = full[table];
    }
    return rooted;
  }

  /** @param {Setting} setting */
  go(setting) {
    this.setting = structuredClone(setting);
    pin(null);
    this.compute();
  }

  compute() {
    this.controls.show(this.full);
    this.mark();
    this.write();
    this.work.ask(trimmed(this.begun.defaults, this.setting));
  }

  mark() {
    const rate = [field(this.full, "training.learning_rate")].flat()[0];
    this.views.map?.mark(Number(rate), Number(field(this.full, "start.scale") ?? NaN));
  }

  // --- the address -----------------------------------------------------------------------------

  address() {
    return written({ setting: trimmed(this.begun.defaults, this.setting), time: pinned(), story: this.tour?.place ?? null });
  }

  write() {
    if (this.writing) return;
    // Browsers allow few changes of the address a second.
    this.writing = window.setTimeout(() => {
      this.writing = 0;
      this.writeNow();
    }, 120);
  }

  writeNow() {
    const hash = this.address() || "default";
    if (location.hash !== `#${hash}`) history.replaceState(null, "", `#${hash}`);
  }

  // --- results ---------------------------------------------------------------------------------

  begin() {
    this.coming = {};
    this.controls.wrong(null);
    byId("refusal").hidden = true;
    document.body.classList.add("working");
    this.staleTimer ??= window.setTimeout(() => document.getElementById("main")?.classList.add("stale"), 500);
  }

  /** @param {Part} part @param {Setting} setting */
  receive(part, setting) {
    const map = this.views.map;
    if (part.part === "descent" && part.state === "refused") return this.refuse(part.reason ?? "");
    if (part.part === "descent") {
      this.curves = JSON.stringify(setting);
      this.complete = "";
      // From here on the views show the new setting; what has not come yet is left out.
      this.coming = { descent: part, ...kept(this.results, part) };
      this.results = this.coming;
      setEnd(lastTime(this.results));
      if (this.wantedTime != null) {
        pin(this.wantedTime);
        this.wantedTime = null;
      }
    } else if (part.part === "phase" && part.state !== "refused" && !part.same) {
      map?.diagram.begin(part);
      this.results.phase = part;
    } else if (part.part === "phase_tile") map?.diagram.add(part);
    else if (part.part === "phase_boundaries") map?.diagram.bound(part);
    else if (part.part === "phase") {
      if (part.state === "refused" || !this.results.phase || this.results.phase.state === "refused") this.results.phase = part;
    } else this.results[part.part] = part;
    if (part.part.startsWith("phase")) map?.draw();
    if (part.part === "words") this.say(part);
    if (part.part === "certificates") showGuarantees(part);
    this.draw();
  }

  /** Whether all that is shown is of the setting. */
  get isComplete() {
    const { running, waiting } = this.work;
    return !this.drawing && !running && !waiting && this.isCurrent && this.complete === JSON.stringify(trimmed(this.begun.defaults, this.setting));
  }

  /** Whether the curves are. */
  get isCurrent() {
    return this.curves === JSON.stringify(trimmed(this.begun.defaults, this.setting));
  }

  /** @param {Setting} setting @param {boolean} superseded */
  finish(setting, superseded) {
    if (superseded) return;
    this.settled();
    this.complete = JSON.stringify(setting);
    for (const [name, part] of Object.entries(this.results)) if (part.old) delete this.results[name];
    this.draw();
    document.body.dataset.done = "";
  }

  settled() {
    window.clearTimeout(this.staleTimer);
    this.staleTimer = undefined;
    document.body.classList.remove("working");
    document.getElementById("main")?.classList.remove("stale");
  }

  draw() {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => {
      this.drawing = 0;
      this.views.show(this.results);
      if (this.results.descent) document.body.dataset.drawn = "";
    });
  }

  /** @param {Part} part */
  say(part) {
    const told = /** @type {(string | {text: string})[]} */ (part.sentences ?? []);
    const texts = told.map((each) => (typeof each === "string" ? each : each.text));
    byId("about").textContent = part.setting ?? "";
    if (JSON.stringify(texts) === JSON.stringify(this.sentences)) return;
    this.sentences = texts;
    const used = new Set();
    byId("sentences").replaceChildren(...texts.map((text) => made("p", {}, ...explained(text, used))));
    window.clearTimeout(this.staleTimer);
    this.staleTimer = undefined;
    document.getElementById("main")?.classList.remove("stale");
  }

  /** @param {string} sentence @param {string | null} [name] */
  refuse(sentence, name = null) {
    this.settled();
    if (name === "data.path" && this.tables.text) return void this.tables.giveAgain(sentence);
    byId("refusal").textContent = sentence;
    byId("refusal").hidden = false;
    this.controls.wrong(name);
  }

  // --- the server ------------------------------------------------------------------------------

  lost() {
    this.settled();
    const status = byId("status");
    status.classList.add("lost");
    status.textContent = "The server has stopped answering. Start thalweg explore again; this page reconnects by itself.";
  }

  async back() {
    const status = byId("status");
    status.classList.remove("lost");
    status.textContent = "Connected again.";
    window.setTimeout(() => (status.textContent = ""), 4000);
    if (this.views.map) this.views.map.diagram.done = 0;
  }

  /** @param {string[]} views */
  bringIntoView(views) {
    const [first] = views;
    if (!first || innerWidth > 832) return;
    byId(`view-${first}`).scrollIntoView({ block: "center" });
  }
}

/** Parts of the results before that stay until their successors come, so that nothing flickers
 * while a slider moves; only where they fit the new runs.
 * @param {Results} before @param {Part} descent @returns {Results} */
function kept(before, descent) {
  const old = before.descent;
  const alike = old && JSON.stringify([old.arrays.time?.shape, old.rates.length]) === JSON.stringify([descent.arrays.time?.shape, descent.rates.length]);
  /** @type {Results} */
  const held = before.phase ? { phase: before.phase } : {};
  for (const name of ["slice", "flow", "layers", "sharpness"]) {
    const part = before[name];
    if (alike && part && part.state !== "refused") held[name] = { ...part, old: true };
  }
  return held;
}

/** As many steps as the server takes, and no more.
 * @param {Setting} setting @param {Beginning} begun
 * @param {Record<string, Value>} changes @returns {Setting} */
function within(setting, begun, changes) {
  const most = Number(begun.limits?.steps ?? 4000);
  const full = filled(begun.defaults, setting);
  const rates = /** @type {number[]} */ ([field(full, "training.learning_rate")].flat());
  const time = Number(field(full, "training.time") ?? NaN);
  const least = Math.min(...rates);
  if (!(time / least > most)) return setting;
  if ("training.time" in changes) return changed(setting, { "training.time": Math.floor(most * least * 0.999) });
  const lowest = Number(((time / most) * 1.001).toPrecision(4));
  return changed(setting, { "training.learning_rate": [...new Set(rates.map((rate) => Math.max(rate, lowest)))] });
}

beginning().then(
  (begun) => Object.assign(window, { explorer: new Page(begun) }),
  (error) => {
    byId("sentences").textContent = "";
    byId("refusal").hidden = false;
    byId("refusal").textContent = `The explorer could not begin: ${error instanceof Error ? error.message : error}`;
  },
);
