// @ts-check
/** What is guaranteed here: the certificates, strongest first, with their margins as bars. */
import { byId, made } from "./elements.js";
import { shown } from "./numbers.js";
import { explained } from "./words.js";

/** @import {Part} from "./types.js" */

/** @typedef {{reference: string, title: string, applies: boolean, verdict: string,
 *   margin: number | null, assumption: string, values: string, missed_by: string | null}} Statement */

/** @param {Part | undefined} part */
export function showGuarantees(part) {
  const summary = byId("guarantees-summary");
  const place = byId("answers");
  if (!part || part.state === "refused") {
    summary.textContent = part?.reason ?? "";
    place.replaceChildren();
    return;
  }
  const opened = new Set([...place.querySelectorAll("details[open]")].map((each) => each.id));
  const violated = part.violated?.length
    ? ` Violated along this run: ${part.violated.join(", ")}.`
    : part.followed
      ? " None is violated along this run."
      : " They are checked at the start alone, not along the run.";
  summary.replaceChildren(
    ...explained(`${part.applying} of ${part.checked} theorems apply at learning rate ${shown(part.learning_rate)}.${violated} Bars show margins: to the right, by how much the narrowest assumption holds; to the left, by how much it is missed.`),
  );
  const answers = made("div", { class: "answers" }, ...(part.answers ?? []).map(answer));
  const statements = /** @type {Statement[]} */ (part.statements ?? []);
  const applying = statements.filter((each) => each.applies);
  const missed = statements.filter((each) => !each.applies).sort((a, b) => (b.margin ?? -2) - (a.margin ?? -2));
  place.replaceChildren(
    answers,
    folded("applying", `What applies (${applying.length})`, applying.map(row), opened.has("applying")),
    folded("missed", `What does not apply, and by how much it is missed (${missed.length})`, missed.map(row), opened.has("missed")),
  );
}

/** @param {{question: string, rows: Record<string, any>[]}} given */
function answer({ question, rows }) {
  return made("section", { class: "answer" }, made("h3", {}, question), ...rows.map(proof));
}

/** @param {Record<string, any>} row */
function proof(row) {
  const margin = typeof row.margin === "number" ? row.margin : Number.parseFloat(String(row.margin ?? ""));
  const parts = [made("p", {}, made("strong", {}, text(row.bound)), ...(row.measured ? [` measured ${text(row.measured)}`] : []))];
  const source = [row.source, row.statement].filter(Boolean).map(text).join(", ");
  parts.push(made("p", { class: "source" }, [source, row.condition && text(row.condition)].filter(Boolean).join(": ")));
  return made("div", { class: "proof" }, ...parts, ...(Number.isFinite(margin) ? [bar(margin)] : []));
}

/** @param {unknown} value */
const text = (value) =>
  typeof value === "number" ? shown(value) : String(value ?? "").replaceAll("<=", "≤").replaceAll(">=", "≥");

/** @param {Statement} statement */
function row(statement) {
  const { reference, title, applies, verdict, margin, assumption, values, missed_by } = statement;
  const told = applies ? verdict.replaceAll("_", " ") : "does not apply";
  const element = made(
    "div",
    { class: `statement ${verdict}` },
    made("div", {}, made("span", { class: "id" }, reference), ` ${title}`),
    margin === null ? made("span", {}) : bar(margin),
    made("p", { class: "why" }, made("span", { class: "verdict" }, told), `: ${[text(assumption), values && `here ${text(values)}`, missed_by && `missed by ${text(missed_by)}`].filter(Boolean).join("; ")}`),
  );
  return element;
}

/** A margin between −1 and 1, from the middle. @param {number} margin @returns {HTMLElement} */
function bar(margin) {
  const size = Math.min(1, Math.abs(margin));
  const inner = made("b", margin < 0 ? { class: "missed" } : {});
  inner.style.width = `${50 * size}%`;
  inner.style.left = `${margin < 0 ? 50 - 50 * size : 50}%`;
  return made("div", { class: "bar", role: "img", "aria-label": `margin ${shown(margin, 2)}`, title: `margin ${shown(margin, 2)}` }, inner);
}

/** @param {string} id @param {string} title @param {HTMLElement[]} inside @param {boolean} open */
function folded(id, title, inside, open) {
  return made("details", { id, open }, made("summary", {}, title), ...inside);
}
