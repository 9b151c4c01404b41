// @ts-check
/** House colours, by light and dark; phases as in the package's figures. */

/** Hues that stay apart for colour-blind readers (Okabe and Ito). */
const LIGHT = {
  runs: ["#0072B2", "#D55E00", "#009E73", "#AA4A8A"],
  flow: "#1d232a",
  edge: "#C2570A",
  least: "rgb(90 100 110 / .16)",
  band: "rgb(0 114 178 / .20)",
  modes: ["#0072B2", "#D55E00", "#009E73", "#AA4A8A", "#A87400", "#3B8FC2"],
  grid: "#e7eaed",
  ink: "#1d232a",
  soft: "#56606a",
  card: "#ffffff",
  low: [232, 242, 248],
  high: [150, 178, 200],
};
/** @type {typeof LIGHT} */
const DARK = {
  runs: ["#56B4E9", "#FF9248", "#3FD0A0", "#E79AC8"],
  flow: "#e6e9ec",
  edge: "#F3A24A",
  least: "rgb(190 200 210 / .15)",
  band: "rgb(86 180 233 / .25)",
  modes: ["#56B4E9", "#FF9248", "#3FD0A0", "#E79AC8", "#E6C84A", "#9CC9E6"],
  grid: "#2c343c",
  ink: "#e6e9ec",
  soft: "#a5afb8",
  card: "#1b2026",
  low: [26, 44, 60],
  high: [70, 100, 125],
};

/** @type {Record<string, string>} */
const PHASES = {
  saddle: "#8D7BA8",
  descending: "#C9CCD1",
  monotone: "#4C9BC9",
  catapult: "#5CC0A0",
  edge: "#F3D34A",
  oscillating: "#E8A04C",
  diverged: "#C8553D",
};
export const PHASE_ORDER = Object.keys(PHASES);

/** @param {string} name */
export const phaseColour = (name) => PHASES[name] ?? "#ffffff";

export const isDark = () => document.documentElement.dataset.theme === "dark";
/** @returns {typeof LIGHT} */
export const colours = () => (isDark() ? DARK : LIGHT);

const wanted = window.matchMedia("(prefers-color-scheme: dark)");
const CHOICES = ["system", "light", "dark"];
/** @type {(() => void)[]} */
const followers = [];

/** @returns {string} */
export function chosenTheme() {
  try {
    return localStorage.getItem("thalweg-theme") ?? "system";
  } catch {
    return "system";
  }
}

function applyTheme() {
  const chosen = chosenTheme();
  const dark = chosen === "dark" || (chosen === "system" && wanted.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  for (const follow of followers) follow();
}

/** The system's colours, then light, then dark, then the system's again. @returns {string} */
export function nextTheme() {
  const next = CHOICES[(CHOICES.indexOf(chosenTheme()) + 1) % CHOICES.length] ?? "system";
  try {
    localStorage.setItem("thalweg-theme", next);
  } catch {
    // without storage the choice cannot be kept
  }
  applyTheme();
  return next;
}

/** @param {() => void} follow called whenever the colours change */
export function onTheme(follow) {
  followers.push(follow);
}

wanted.addEventListener("change", applyTheme);
applyTheme();
