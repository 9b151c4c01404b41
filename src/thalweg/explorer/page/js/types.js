// @ts-check
/**
 * What modules hand to each other.
 *
 * @typedef {number | string | boolean | null | number[] | string[] | number[][]} Value
 * @typedef {Record<string, Value>} Table
 * @typedef {Record<string, Table | string>} Setting the tables of an experiment file
 *
 * @typedef {Float64Array | Float32Array | Int32Array | Int8Array} Numbers
 * @typedef {{values: Numbers, shape: number[]}} Tensor
 * @typedef {{part: string, state?: string, reason?: string, seconds?: number,
 *   arrays: Record<string, Tensor>} & Record<string, any>} Part
 * @typedef {Record<string, Part>} Results the parts of one computation, by name
 *
 * @typedef {{value: number, name: string, meaning: string}} Phase
 * @typedef {{server: string, version: string, mode: string, setting: Setting, defaults: Setting,
 *   limits: Record<string, any>, choices: Record<string, string[]>,
 *   descriptions: Record<string, string>, phases: Phase[], data: Csv | null}} Beginning
 * @typedef {{name: string, columns: string[], rows: number, target?: string}} Csv
 *
 * @typedef {{label: string, x: ArrayLike<number>, y: ArrayLike<number>, colour: string,
 *   dash?: number[], width?: number, quiet?: boolean}} Line quiet: not read out at the cursor
 * @typedef {{y: number, label: string, colour: string, dash?: number[]}} Level
 * @typedef {{x: ArrayLike<number>, low: ArrayLike<number>, high: ArrayLike<number>,
 *   colour: string}} Band
 * @typedef {{lines: Line[], levels: Level[], bands: Band[], below?: {y: number, colour: string},
 *   log: boolean, range: [number, number], until: number}} Chart
 */
export {};
