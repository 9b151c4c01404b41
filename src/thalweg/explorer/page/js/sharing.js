// @ts-check
/** What leaves the page: the link, files, pictures. */
import { exported } from "./connection.js";
import { byId, download } from "./elements.js";
import { pngOf, svgOf } from "./picture.js";
import { trimmed } from "./setting.js";

/** @import {Beginning, Results, Setting} from "./types.js" */
/** @import {Views} from "./views.js" */

/** @typedef {{begun: Beginning, results: Results, setting: Setting, sentences: string[], views: Views,
 *   refuse: (sentence: string) => void, writeNow: () => void}} Page */

/** The sheet of ways out. @param {Page} page */
export function sharing(page) {
  const open = byId("open-share");
  const sheet = byId("share");
  const show = (/** @type {boolean} */ on) => {
    sheet.hidden = !on;
    open.setAttribute("aria-expanded", String(on));
  };
  open.addEventListener("click", () => show(sheet.hidden));
  document.addEventListener("click", (event) => !sheet.contains(/** @type {Node} */ (event.target)) && event.target !== open && show(false));
  sheet.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    show(false);
    open.focus();
  });
  for (const button of sheet.querySelectorAll("button"))
    button.addEventListener("click", async () => {
      show(false);
      try {
        await save(page, button.dataset.export ?? "");
      } catch (error) {
        page.refuse(error instanceof Error ? error.message : String(error));
      }
    });
}

/** @param {Page} page @param {string} kind */
async function save(page, kind) {
  if (kind === "link") {
    page.writeNow();
    const status = byId("status");
    try {
      await navigator.clipboard.writeText(location.href);
      status.textContent = "The link is copied.";
    } catch {
      status.textContent = "The link is in the address bar.";
    }
    window.setTimeout(() => (status.textContent = ""), 4000);
  } else if (kind === "svg" || kind === "png") {
    const svg = svgOf({ results: page.results, diagram: page.views.map?.diagram ?? null, phases: page.begun.phases, sentences: page.sentences });
    download(`thalweg.${kind}`, kind === "svg" ? new Blob([svg], { type: "image/svg+xml" }) : await pngOf(svg));
  } else {
    const { name, text } = await exported(kind, trimmed(page.begun.defaults, page.setting));
    download(name, new Blob([text], { type: kind === "csv" ? "text/csv" : "text/plain" }));
  }
}
