// @ts-check
/** Sentences whose terms explain themselves, on hover, focus or touch. */

/** @type {[string, RegExp, string][]} */
const TERMS = [
  ["gradient flow", /gradient flow|\bthe flow\b/i, "Gradient flow: what gradient descent becomes as its steps go to zero, dθ/dt = −∇L(θ). Time t is learning rate × number of steps."],
  ["learning rate", /learning rates?/i, "Learning rate η: how far a step goes along the negative gradient."],
  ["sharpness", /sharpness/i, "Sharpness: the largest eigenvalue of the loss's Hessian, its strongest curvature. A quadratic of sharpness above 2/η throws descent off."],
  ["edge of stability", /edge of stability/i, "Edge of stability: the sharpness has grown to about 2/η and hovers there, while the loss falls on average without falling at every step."],
  ["catapult", /catapult/i, "Catapult: a start sharper than 2/η makes the loss rise at first, until the weights are thrown to a flatter place where descent converges."],
  ["saddle", /saddles?\b/i, "Saddle: the gradient vanishes, but the loss falls in some direction. Near one, descent stands still for a long time."],
  ["certified", /certified|proven/i, "Certified: an interval around the number is proven with rounding errors included, not only estimated."],
  ["minimiser", /minimisers?/i, "Minimiser: weights of least loss. A deep network has a continuum of them, some flat, some sharp."],
  ["linearly stable", /linearly stable/i, "Linearly stable: small deviations do not grow from step to step; for descent that is sharpness at most 2/η."],
  ["balanced", /\b(?:un)?balanced\b|imbalance|unbalancedness|\bbalance\b/i, "Balance: neighbouring layers have equal Gram matrices, WᵀW of one = WWᵀ of the one before. The flow keeps the difference exactly; descent only nearly."],
  ["singular values", /singular values?/i, "Singular values: how strongly a matrix stretches its principal directions. Those of the product say which features the network has learnt."],
  ["kinks", /\bkinks?\b/i, "Kink: where a ReLU switches on or off, and the gradient jumps."],
  ["monotonically", /monotonically/i, "Monotonically: the loss never rises noticeably on the way."],
  ["oscillates", /oscillat\w+/i, "Oscillating: the loss keeps rising and falling and does not settle."],
  ["theorems", /theorems apply/i, "Theorems: the statements listed below, published ones and ours, each checked against its own assumptions for this very setting."],
  ["plateau", /plateau/i, "Plateau: a stretch where the loss hardly changes, because all layers are small at once."],
  ["Hessian", /Hessian/, "Hessian: the matrix of second derivatives of the loss with respect to all weights."],
  ["residual", /residual/i, "Residual start: every layer begins near the identity, as in a network with skip connections."],
  ["margin", /\bmargins?\b/i, "Margin: by how much an assumption holds, as a share of the larger side. Negative: missed by so much."],
];

/** A paragraph with its terms marked; each term once.
 * @param {string} text @param {Set<string>} [used] terms that were explained already
 * @returns {(Node | string)[]} */
export function explained(text, used = new Set()) {
  /** @type {{at: number, size: number, name: string, meaning: string}[]} */
  const found = [];
  for (const [name, pattern, meaning] of TERMS) {
    const match = used.has(name) ? null : pattern.exec(text);
    if (!match) continue;
    const [at, size] = [match.index, match[0].length];
    if (found.some((other) => at < other.at + other.size && other.at < at + size)) continue;
    found.push({ at, size, name, meaning });
    used.add(name);
  }
  found.sort((a, b) => a.at - b.at);
  const nodes = [];
  let done = 0;
  for (const { at, size, meaning } of found) {
    nodes.push(text.slice(done, at), term(text.slice(at, at + size), meaning));
    done = at + size;
  }
  nodes.push(text.slice(done));
  return nodes;
}

/** @param {string} text @param {string} meaning @returns {HTMLElement} */
export function term(text, meaning) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "term";
  made.textContent = text;
  explain(made, meaning);
  return made;
}

/** Show a meaning while an element is pointed at or has the focus.
 * @param {HTMLElement} element @param {string} meaning */
export function explain(element, meaning) {
  const known = element.dataset.meaning;
  element.dataset.meaning = meaning;
  if (known !== undefined) return;
  const show = () => {
    const box = document.getElementById("explain");
    if (!box) return;
    box.textContent = element.dataset.meaning ?? "";
    box.hidden = false;
    const at = element.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.left), innerWidth - box.offsetWidth - 8);
    const under = at.bottom + 8 + box.offsetHeight < innerHeight;
    box.style.left = `${left}px`;
    box.style.top = `${under ? at.bottom + 6 : Math.max(4, at.top - box.offsetHeight - 6)}px`;
    element.setAttribute("aria-describedby", "explain");
  };
  const hide = () => {
    document.getElementById("explain")?.setAttribute("hidden", "");
    element.removeAttribute("aria-describedby");
  };
  element.addEventListener("pointerenter", show);
  element.addEventListener("focus", show);
  element.addEventListener("click", show);
  element.addEventListener("pointerleave", hide);
  element.addEventListener("blur", hide);
  element.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}
