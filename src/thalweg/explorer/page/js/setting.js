// @ts-check
/** What is shown, as tables of an experiment file, and the same in the address. */

/** @import {Setting, Table, Value} from "./types.js" */

/** What each kind of data and start has, with the value that it begins with.
 * @type {Record<string, Record<string, Table>>} */
export const KINDS = {
  data: {
    gaussian: { samples: 50, features: 5, noise: 1, white: false, seed: 0 },
    conditioned: { samples: 50, features: 5, outputs: 1, condition: 100, noise: 0, seed: 0 },
    target: { matrix: [[1, 0, 0]] },
    diabetes: { standardise: true, white: false },
    linnerud: { standardise: true, white: false },
    csv: { path: "", target: [], standardise: true, white: false },
  },
  start: {
    gaussian: { scale: 0.3, zero_last_layer: false, seed: 0 },
    balanced: { scale: 0.3, zero_last_layer: false, seed: 0 },
    residual: { scale: 0.3, zero_last_layer: false, seed: 0 },
    xavier_uniform: { seed: 0 },
    pytorch_default: { seed: 0 },
    aligned: { norm: 0.1, cosine: 0.3 },
    unbalanced: { product: 0.75, factor: 1 },
    identity: {},
  },
};
/** @type {Record<string, string>} */
const KIND_FIELD = { data: "source", start: "kind" };
/** Of two fields that exclude each other, the one that is named replaces the others.
 * @type {Record<string, string[]>} */
const RIVALS = {
  "training.steps": ["training.time"],
  "training.time": ["training.steps"],
  "network.depth": ["network.hidden"],
  "network.width": ["network.hidden"],
};

/** The value of a field like "network.depth".
 * @param {Setting} setting @param {string} name @returns {Value | undefined} */
export function field(setting, name) {
  const [table = "", key] = name.split(".");
  const found = setting[table];
  if (key === undefined) return /** @type {string | undefined} */ (found);
  return typeof found === "object" ? found[key] : undefined;
}

/** The setting with some fields changed; a table that becomes of another kind keeps what both have.
 * @param {Setting} setting @param {Record<string, Value>} changes @returns {Setting} */
export function changed(setting, changes) {
  /** @type {Setting} */
  const made = structuredClone(setting);
  const names = Object.keys(changes).sort((a, b) => Number(isKind(b)) - Number(isKind(a)));
  for (const name of names) {
    const [table = "", key = ""] = name.split(".");
    const value = /** @type {Value} */ (changes[name]);
    if (isKind(name)) made[table] = ofKind(table, String(value), asTable(made[table]));
    else {
      const inner = { ...asTable(made[table]) };
      if (value === null) delete inner[key];
      else inner[key] = value;
      made[table] = inner;
    }
    for (const other of RIVALS[name] ?? []) {
      const [theirs = "", gone = ""] = other.split(".");
      const inner = { ...asTable(made[theirs]) };
      if (!(other in changes)) delete inner[gone];
      made[theirs] = inner;
    }
  }
  return made;
}

/** @param {string} name */
const isKind = (name) => name === "data.source" || name === "start.kind";

/** @param {Table | string | undefined} table @returns {Table} */
export const asTable = (table) => (typeof table === "object" ? table : {});

/** @param {string} table @param {string} kind @param {Table} before @returns {Table} */
function ofKind(table, kind, before) {
  const fresh = KINDS[table]?.[kind] ?? {};
  const kept = Object.entries(before).filter(([key]) => key in fresh);
  return { [KIND_FIELD[table] ?? "kind"]: kind, ...fresh, ...Object.fromEntries(kept) };
}

/** All fields: defaults below what was set; a table of another kind has that kind's fields.
 * @param {Setting} defaults @param {Setting} setting @returns {Setting} */
export function filled(defaults, setting) {
  /** @type {Setting} */
  const made = {};
  for (const [table, values] of Object.entries(defaults)) {
    const given = setting[table];
    if (typeof values !== "object" || values === null || typeof given === "string") {
      made[table] = /** @type {string} */ (given ?? values);
      continue;
    }
    const kind = KIND_FIELD[table];
    const other = kind && given?.[kind] !== undefined && given[kind] !== values[kind];
    const base = other ? (KINDS[table]?.[String(given[kind])] ?? {}) : values;
    made[table] = dropRivals(table, { ...base, ...given }, given ?? {});
  }
  return made;
}

/** @param {string} table @param {Table} full @param {Table} given @returns {Table} */
function dropRivals(table, full, given) {
  for (const key of Object.keys(given))
    for (const other of RIVALS[`${table}.${key}`] ?? []) {
      const rival = other.split(".")[1] ?? "";
      if (!(rival in given)) delete full[rival];
    }
  return full;
}

/** What differs from the defaults, as it is sent and as it stands in the address.
 * @param {Setting} defaults @param {Setting} setting @returns {Setting} */
export function trimmed(defaults, setting) {
  /** @type {Setting} */
  const made = {};
  for (const [table, given] of Object.entries(setting)) {
    const usual = defaults[table];
    if (typeof given !== "object" || given === null) {
      if (given && given !== usual) made[table] = given;
      continue;
    }
    const kind = KIND_FIELD[table];
    const values = asTable(usual);
    const other = kind && given[kind] !== undefined && given[kind] !== values[kind];
    const base = other ? {} : values;
    const kept = Object.entries(given).filter(
      ([key, value]) => value !== null && JSON.stringify(value) !== JSON.stringify(base[key]),
    );
    if (kept.length) made[table] = Object.fromEntries(kept);
  }
  return made;
}

// --- the address ---------------------------------------------------------------------------------

/** @typedef {{setting: Setting, time: number | null, story: string | null}} Shown */

/** @param {Shown} shown with a setting that is trimmed @returns {string} without the # */
export function written({ setting, time, story }) {
  const parts = [];
  for (const [table, given] of Object.entries(setting)) {
    if (typeof given !== "object") parts.push([table, given]);
    else for (const [key, value] of Object.entries(given)) parts.push([`${table}.${key}`, value]);
  }
  if (time !== null) parts.push(["t", time]);
  if (story !== null) parts.push(["story", story]);
  return parts.map(([name, value]) => `${name}=${encoded(/** @type {Value} */ (value))}`).join("&");
}

/** @param {string} hash @returns {Shown} */
export function read(hash) {
  /** @type {Shown} */
  const shown = { setting: {}, time: null, story: null };
  for (const part of hash.replace(/^#/, "").split("&")) {
    const cut = part.indexOf("=");
    if (cut < 1) continue;
    const name = part.slice(0, cut);
    const value = decoded(part.slice(cut + 1));
    const [table = "", key] = name.split(".");
    if (name === "t") shown.time = typeof value === "number" ? value : null;
    else if (name === "story") shown.story = String(value);
    else if (key === undefined) shown.setting[table] = String(value);
    else if (table !== "__proto__") shown.setting[table] = { ...asTable(shown.setting[table]), [key]: value };
  }
  return shown;
}

/** @param {Value} value @returns {string} */
function encoded(value) {
  const plain = typeof value === "string" && !isJson(value) ? value : JSON.stringify(value);
  return encodeURIComponent(plain).replaceAll("%2C", ",").replaceAll("%5B", "[").replaceAll("%5D", "]");
}

/** @param {string} text @returns {Value} */
function decoded(text) {
  let plain = text;
  try {
    plain = decodeURIComponent(text);
    return JSON.parse(plain);
  } catch {
    return plain;
  }
}

/** @param {string} text */
function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
