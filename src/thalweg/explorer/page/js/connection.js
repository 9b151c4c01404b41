// @ts-check
/** The server on this machine: settings out, results in, and what to do when it is gone. */

/** @import {Beginning, Csv, Part, Setting, Tensor} from "./types.js" */

const KINDS = { f8: Float64Array, f4: Float32Array, i4: Int32Array, i1: Int8Array };
const PATIENCE = 160; // ms that a computation may keep its successor waiting
const POLL = 1000;

/** A refusal in one sentence, and the field that it is about. */
export class Refusal extends Error {
  /** @param {string} message @param {string | null} field @param {number} status */
  constructor(message, field, status) {
    super(message);
    this.field = field;
    this.status = status;
  }
}

/** @param {Response} response @returns {Promise<Refusal>} */
async function refusal(response) {
  try {
    const { error, field } = await response.json();
    return new Refusal(String(error), field ?? null, response.status);
  } catch {
    return new Refusal(`The server answered ${response.status}.`, null, response.status);
  }
}

/** @param {string} path @param {RequestInit} [options] @returns {Promise<Response>} */
async function asked(path, options) {
  const response = await fetch(path, options);
  if (!response.ok) throw await refusal(response);
  return response;
}

/** @returns {Promise<Beginning>} */
export const beginning = async () => (await asked("api/start")).json();

/** A table of one's own; it stays on this machine.
 * @param {string} text @returns {Promise<Csv>} */
export async function giveTable(text) {
  const headers = { "Content-Type": "text/csv" };
  return (await asked("api/data", { method: "POST", headers, body: text })).json();
}

/** @param {string} kind @param {Setting} setting @returns {Promise<{name: string, text: string}>} */
export async function exported(kind, setting) {
  const response = await asked(`api/export/${kind}`, posted({ setting }));
  const told = /filename="?([^";]+)/.exec(response.headers.get("Content-Disposition") ?? "");
  return { name: told?.[1] ?? `experiment.${kind}`, text: await response.text() };
}

/** @param {unknown} body @param {AbortSignal} [signal] @returns {RequestInit} */
const posted = (body, signal) => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
  ...(signal ? { signal } : {}),
});

/**
 * Computations of one tab: the newest setting is what is computed. While a slider is dragged
 * there is one request at a time; the next one goes out when the quick parts have come, or
 * patience is over, and only the newest of those waiting is sent.
 */
export class Computations {
  /** @param {{part: (part: Part, setting: Setting) => void, begun: (setting: Setting) => void,
   *   ended: (setting: Setting, superseded: boolean) => void,
   *   refused: (refusal: Refusal, setting: Setting) => void, lost: () => void,
   *   back: () => void}} told */
  constructor(told) {
    this.told = told;
    this.tab = crypto.randomUUID();
    this.number = 0;
    /** @type {Setting | null} */ this.waiting = null;
    /** @type {Setting | null} */ this.newest = null;
    /** @type {AbortController | null} */ this.running = null;
    this.since = 0;
    this.quick = true; // what is running has sent its quick parts
    this.timer = 0;
    this.isLost = false;
    /** @type {() => string | null} */ this.phasesHeld = () => null;
  }

  /** @param {Setting} setting */
  ask(setting) {
    this.waiting = this.newest = setting;
    this.#next();
  }

  #next() {
    if (!this.waiting || this.isLost) return;
    const left = this.since + PATIENCE - performance.now();
    if (this.running && !this.quick && left > 0) {
      if (!this.timer)
        this.timer = window.setTimeout(() => {
          this.timer = 0;
          this.#next();
        }, left);
      return;
    }
    const setting = this.waiting;
    this.waiting = null;
    this.running?.abort();
    this.running = new AbortController();
    this.since = performance.now();
    this.quick = false;
    void this.#run(setting, this.running);
  }

  /** @param {Setting} setting @param {AbortController} running */
  async #run(setting, running) {
    this.number += 1;
    this.told.begun(setting);
    let end = "";
    try {
      const have = this.phasesHeld();
      const body = { tab: this.tab, number: this.number, setting, ...(have ? { phase: { have } } : {}) };
      const response = await asked("api/compute", posted(body, running.signal));
      if (!response.body) throw new TypeError("no body");
      for await (const part of frames(response.body.getReader())) {
        if (running.signal.aborted) return;
        if (part.part === "end") {
          end = part.state ?? "ok";
          continue;
        }
        this.told.part(part, setting);
        if (part.part === "flow") this.#answered();
      }
      if (!end) throw new TypeError("the stream broke off");
      this.told.ended(setting, end === "superseded");
    } catch (error) {
      if (running.signal.aborted) return;
      if (error instanceof Refusal && error.status < 500) this.told.refused(error, setting);
      else this.#lose();
    } finally {
      if (this.running === running) {
        this.running = null;
        this.#next();
      }
    }
  }

  #answered() {
    this.quick = true;
    this.#next();
  }

  /** The server is gone: say so, look for it, and ask again when it is back. */
  #lose() {
    if (this.isLost) return;
    this.isLost = true;
    this.told.lost();
    const look = async () => {
      try {
        await asked("api/hello");
      } catch {
        window.setTimeout(look, POLL);
        return;
      }
      this.isLost = false;
      this.waiting ??= this.newest;
      this.told.back();
      this.#next();
    };
    window.setTimeout(look, POLL / 4);
  }

  /** Whether it still answers, asked when nothing else would tell. */
  async check() {
    if (this.isLost || this.running) return;
    try {
      await asked("api/hello");
    } catch {
      this.#lose();
    }
  }
}

/** The frames of a response: lengths of head and data, the head in JSON, the data.
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader @returns {AsyncGenerator<Part>} */
export async function* frames(reader) {
  let held = new Uint8Array(0);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held = joined(held, value);
    for (;;) {
      if (held.length < 8) break;
      const view = new DataView(held.buffer, held.byteOffset);
      const head = view.getUint32(0, true);
      const size = view.getUint32(4, true);
      if (held.length < 8 + head + size) break;
      yield decoded(held.subarray(8, 8 + head), held.slice(8 + head, 8 + head + size));
      held = held.subarray(8 + head + size);
    }
  }
}

/** @param {Uint8Array} held @param {Uint8Array} more @returns {Uint8Array<ArrayBuffer>} */
function joined(held, more) {
  const both = new Uint8Array(held.length + more.length);
  both.set(held);
  both.set(more, held.length);
  return both;
}

/** @param {Uint8Array} head @param {Uint8Array<ArrayBuffer>} data whose own buffer starts with it
 * @returns {Part} */
function decoded(head, data) {
  const part = JSON.parse(new TextDecoder().decode(head));
  /** @type {Record<string, Tensor>} */
  const arrays = {};
  for (const [name, { type, shape, offset }] of Object.entries(part.arrays ?? {})) {
    const kind = KINDS[/** @type {keyof typeof KINDS} */ (type)];
    const size = shape.reduce((/** @type {number} */ all, /** @type {number} */ each) => all * each, 1);
    arrays[name] = { values: new kind(data.buffer, offset, size), shape };
  }
  return { ...part, arrays };
}
