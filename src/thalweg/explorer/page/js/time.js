// @ts-check
/** The one time cursor that all views share. */

/** @type {((time: number) => void)[]} */
const followers = [];
/** @type {{pinned: number | null, over: number | null, end: number}} */
const cursor = { pinned: null, over: null, end: 1 };

/** Where it is: under the pointer, or where it was put, or at the end. */
export const now = () => Math.min(cursor.over ?? cursor.pinned ?? cursor.end, cursor.end);
export const end = () => cursor.end;
export const pinned = () => cursor.pinned;

/** @param {(time: number) => void} follow */
export function onTime(follow) {
  followers.push(follow);
}

function tell() {
  for (const follow of followers) follow(now());
}

/** @param {number | null} time where the pointer is; null when it has left */
export function hover(time) {
  if (time === cursor.over) return;
  cursor.over = time;
  tell();
}

/** @param {number | null} time to stay at; null is the end, wherever that will be */
export function pin(time) {
  const kept = time === null || time >= cursor.end ? null : Math.max(0, time);
  cursor.pinned = kept;
  cursor.over = null;
  tell();
}

/** @param {number} time at which all runs have ended */
export function setEnd(time) {
  if (time === cursor.end) return;
  cursor.end = time;
  cursor.over = null;
  tell();
}
