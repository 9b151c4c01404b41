// @ts-check
/** The button of colours. */
import { chosenTheme, nextTheme, onTheme } from "./colours.js";
import { byId } from "./elements.js";

/** @param {() => void} told that colours have changed */
export function themes(told) {
  const theme = byId("theme");
  const name = () => theme.setAttribute("aria-label", `Colours: ${chosenTheme() === "system" ? "as the system" : chosenTheme()}`);
  theme.addEventListener("click", () => {
    nextTheme();
    name();
  });
  name();
  onTheme(told);
}
