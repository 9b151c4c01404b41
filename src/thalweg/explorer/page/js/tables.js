// @ts-check
/** A table of one's own: dropped on the page or chosen, kept by the server, given again to a new one. */
import { giveTable } from "./connection.js";
import { byId } from "./elements.js";
import { field } from "./setting.js";

/** @import {Beginning, Setting, Value} from "./types.js" */

/** @typedef {{begun: Beginning, setting: Setting, refuse: (sentence: string) => void, compute: () => void,
 *   change: (changes: Record<string, Value>, done: boolean) => void}} Page */

export class Tables {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.text = ""; // for a server that was restarted
    this.turn = 0;
    this.#dropping();
  }

  /** @param {File} file */
  async give(file) {
    const most = this.page.begun.limits?.csv_bytes ?? 2_000_000;
    if (file.size > most) return this.page.refuse(`A table must have at most ${most / 1e6} MB, got ${(file.size / 1e6).toFixed(1)} MB in ${file.name}; thalweg run takes larger ones.`);
    this.turn += 1;
    const { turn } = this;
    const text = await file.text();
    try {
      const found = await giveTable(text);
      if (turn !== this.turn) return; // another one was dropped meanwhile
      this.text = text;
      this.page.begun.data = found;
      const target = found.target ?? found.columns.at(-1) ?? "";
      this.page.change({ "data.source": "csv", "data.path": found.name, "data.target": [target], "network.width": null }, true);
    } catch (error) {
      this.page.refuse(error instanceof Error ? error.message : String(error));
    }
  }

  /** Once: a link may name another table than the one that is here.
   * @param {string} sentence what the server said */
  async giveAgain(sentence) {
    const text = this.text;
    this.text = "";
    try {
      const { name } = await giveTable(text);
      this.text = text;
      if (field(this.page.setting, "data.path") !== name) return this.page.refuse(sentence);
      this.page.compute();
    } catch (error) {
      this.page.refuse(error instanceof Error ? error.message : String(error));
    }
  }

  #dropping() {
    const veil = byId("veil");
    let depth = 0;
    const isFile = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files");
    window.addEventListener("dragenter", (event) => {
      if (!isFile(event) || this.page.begun.mode === "own") return;
      depth += 1;
      veil.hidden = false;
    });
    window.addEventListener("dragleave", (event) => {
      if (!isFile(event)) return;
      depth = Math.max(0, depth - 1);
      veil.hidden = depth === 0;
    });
    window.addEventListener("dragover", (event) => event.preventDefault());
    window.addEventListener("drop", (event) => {
      event.preventDefault();
      depth = 0;
      veil.hidden = true;
      const [file] = event.dataTransfer?.files ?? [];
      if (file && this.page.begun.mode !== "own") void this.give(file);
    });
  }
}
