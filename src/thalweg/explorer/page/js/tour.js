// @ts-check
/** Stories: short guided tours that turn the controls, and say what to look at. */
import { byId, made } from "./elements.js";
import { STORIES } from "./stories.js";
import { explained } from "./words.js";

/** @import {Story} from "./stories.js" */
/** @import {Setting} from "./types.js" */

export class Tour {
  /** @param {{go: (setting: Setting) => void, look: (views: string[], time: number | null) => void, moved: () => void}} told */
  constructor(told) {
    this.told = told;
    /** @type {Story | null} */ this.story = null;
    this.step = 0;
    byId("story-list").append(
      ...STORIES.map((story) => made("li", {}, made("button", { type: "button", "data-story": story.name, click: () => this.begin(story.name) }, story.title))),
    );
    byId("tour-next").addEventListener("click", () => this.#move(1));
    byId("tour-back").addEventListener("click", () => this.#move(-1));
    byId("tour-close").addEventListener("click", () => this.leave());
    byId("open-stories").addEventListener("click", () => this.#list(byId("stories").hidden));
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.story && !byId("tour").hidden && this.leave());
  }

  /** The place in the address; null outside of a story. */
  get place() {
    return this.story ? `${this.story.name}.${this.step + 1}` : null;
  }

  /** @param {boolean} open */
  #list(open) {
    byId("stories").hidden = !open;
    byId("open-stories").setAttribute("aria-expanded", String(open));
  }

  /** @param {string} name @param {number} [step] @param {boolean} [turn] whether to set the controls */
  begin(name, step = 0, turn = true) {
    const story = STORIES.find((each) => each.name === name);
    if (!story) return this.leave();
    this.story = story;
    this.step = Math.min(Math.max(0, step), story.steps.length - 1);
    this.#show(turn);
    if (turn) byId("tour-title").focus({ preventScroll: true });
  }

  /** Continue where an address says. @param {string | null} place */
  resume(place) {
    const [name = "", step = "1"] = (place ?? "").split(".");
    if (place) this.begin(name, Number(step) - 1 || 0, false);
    else if (this.story) this.leave(false);
  }

  /** @param {number} by */
  #move(by) {
    if (!this.story) return;
    if (this.step + by >= this.story.steps.length) return this.leave();
    this.step = Math.max(0, this.step + by);
    this.#show(true);
  }

  /** @param {boolean} [tell] */
  leave(tell = true) {
    this.story = null;
    byId("tour").hidden = true;
    document.body.classList.remove("touring");
    this.#mark();
    this.told.look([], null);
    if (tell) this.told.moved();
  }

  /** @param {boolean} turn */
  #show(turn) {
    const { story } = this;
    const step = story?.steps[this.step];
    if (!story || !step) return;
    this.#list(false);
    byId("tour").hidden = false;
    document.body.classList.add("touring");
    byId("tour-title").textContent = story.title;
    byId("tour-place").textContent = `Step ${this.step + 1} of ${story.steps.length}`;
    const used = new Set();
    byId("tour-text").replaceChildren(
      made("p", {}, ...explained(step.text, used)),
      ...(step.look ? [made("p", { class: "look" }, ...explained(step.look, used))] : []),
    );
    /** @type {HTMLButtonElement} */ (byId("tour-back")).disabled = this.step === 0;
    byId("tour-next").textContent = this.step + 1 === story.steps.length ? "Done" : "Next";
    this.#mark();
    if (turn) this.told.go(step.setting);
    this.told.look(step.views, turn ? (step.time ?? null) : null);
    if (turn) this.told.moved();
  }

  #mark() {
    for (const button of document.querySelectorAll("[data-story]"))
      if (button.getAttribute("data-story") === this.story?.name) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
  }
}
