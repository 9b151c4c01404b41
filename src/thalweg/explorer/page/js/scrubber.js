// @ts-check
/** The slider of time, and the button that lets it run. */
import { byId, inputById } from "./elements.js";
import { shown } from "./numbers.js";
import { end, now, onTime, pin } from "./time.js";

/** @param {() => void} moved */
export function scrubber(moved) {
  const slide = inputById("time");
  const told = byId("time-value");
  slide.addEventListener("input", () => pin((Number(slide.value) / 1000) * end()));
  onTime((time) => {
    const place = String(Math.round((1000 * time) / end()));
    if (slide.value !== place) slide.value = place;
    told.textContent = `t = ${shown(time)}`;
    slide.setAttribute("aria-valuetext", shown(time));
    moved();
  });
  const play = byId("play");
  let playing = 0;
  const stop = () => {
    cancelAnimationFrame(playing);
    playing = 0;
    play.setAttribute("aria-label", "Play time");
    play.firstElementChild?.replaceChildren("▶");
  };
  play.addEventListener("click", () => {
    if (playing) return stop();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return pin(now() >= end() ? 0 : now() + end() / 10);
    const first = now() >= end() * 0.999 ? 0 : now();
    const began = performance.now();
    play.setAttribute("aria-label", "Stop");
    play.firstElementChild?.replaceChildren("■");
    const tick = (/** @type {number} */ at) => {
      const time = first + ((at - began) / 6000) * end();
      pin(time);
      if (time >= end()) stop();
      else playing = requestAnimationFrame(tick);
    };
    playing = requestAnimationFrame(tick);
  });
}
