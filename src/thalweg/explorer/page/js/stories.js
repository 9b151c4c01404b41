// @ts-check
/**
 * The stories. Every number in their texts is what the page shows at that step; the tests measure
 * each of them there.
 */

/** @import {Setting} from "./types.js" */

/** @typedef {{text: string, look?: string, setting: Setting, views: string[], time?: number}} Step */
/** @typedef {{name: string, title: string, steps: Step[]}} Story */

/** @param {number[]} rates @param {number} [time] @returns {Setting} */
const rates = (rates, time) => ({ training: { learning_rate: rates, ...(time ? { time } : {}) } });

/** @param {number[][]} matrix @param {number} depth @returns {Setting} */
const target = (matrix, depth) => ({ data: { source: "target", matrix }, network: { depth, width: matrix.length } });

/** @param {number} depth @returns {Setting} */
const deep = (depth) => ({ network: { depth }, ...rates([0.02]) });

/** @param {number} factor @returns {Setting} */
const unbalanced = (factor) => ({ ...target([[1]], 2), start: { kind: "unbalanced", product: 0.75, factor }, ...rates([0.1], 10) });

/** @param {number} depth @param {Record<string, any>} start @param {number} time @returns {Setting} */
const stalled = (depth, start, time) => ({ ...target([[1.5, 0], [0, -0.5]], depth), start, ...rates([0.1], time) });

/** @param {number} scale @returns {Setting} */
const modes = (scale) => ({ ...target([[3, 0, 0], [0, 1.5, 0], [0, 0, 0.6]], 2), start: { kind: "gaussian", scale, seed: 1 }, ...rates([0.02], 16) });

/** @type {Story[]} */
export const STORIES = [
  {
    name: "follow",
    title: "Small steps follow the flow",
    steps: [
      {
        text: "Ten linear layers, trained with small steps. Gradient descent at η = 0.02 is drawn as a line, gradient flow from the same start as dots: one covers the other.",
        look: "In the view of the distance you see what the eye cannot: descent is never farther than 0.049 from the flow.",
        setting: rates([0.02]),
        views: ["loss", "distance"],
      },
      {
        text: "Halve the step, and the distance halves, too: at η = 0.01 it is at most 0.026. Each learning rate has a colour of its own.",
        look: "The curves of distance have the same shape, one a constant factor above the other: the error is of first order in η.",
        setting: rates([0.01, 0.02, 0.04]),
        views: ["distance"],
      },
      {
        text: "Why is the distance largest near t = 3.8? There the network leaves its plateau, and the smallest eigenvalue of the Hessian is negative, down to −2.7: paths that are near each other drift apart. Later the valley brings them together again.",
        look: "Move over any view: the time cursor is the same in all of them.",
        setting: rates([0.02]),
        views: ["distance", "lowest"],
        time: 3.8,
      },
    ],
  },
  {
    name: "plateau",
    title: "The deeper, the later off the plateau",
    steps: [
      {
        text: "Four layers. The start is small, so the product of all layers is smaller still, and the gradient with it. Yet the loss has halved at t = 0.7, and the sharpness ends at 8.25.",
        look: "Watch the first singular value of the product: it has to grow from almost nothing.",
        setting: deep(4),
        views: ["loss", "product"],
      },
      {
        text: "Six layers from the same scale: now it takes until t = 2.6. Every further layer multiplies the product by something small.",
        setting: deep(6),
        views: ["loss", "product"],
      },
      {
        text: "Ten layers: t = 3.8; a long plateau, then a sudden fall. And the sharpness rises with depth: to 21.2 here.",
        look: "Drag the depth yourself: the sliders answer while you drag.",
        setting: deep(10),
        views: ["loss", "sharpness"],
      },
      {
        text: "Fourteen layers leave at t = 7.8. Whoever stops too early would say that this network does not learn. Theory gives that time in advance, from the balance of the layers and the size of their product.",
        look: "Turn the scale of the start up a little, and the plateau is gone.",
        setting: deep(14),
        views: ["loss", "product"],
      },
    ],
  },
  {
    name: "edge",
    title: "The edge of stability",
    steps: [
      {
        text: "At η = 0.05 the sharpness climbs to 21.2 and stays there. The edge 2/η = 40 lies above it: descent is stable, and the loss falls all the way.",
        setting: rates([0.05]),
        views: ["sharpness", "loss"],
      },
      {
        text: "At η = 0.08 the edge has come down to 25. It is still above the sharpness of 21.1 that descent ends with.",
        setting: rates([0.08]),
        views: ["sharpness"],
      },
      {
        text: "At η = 0.1 the edge is 20, and the sharpness meets it. Beyond it descent is thrown from side to side; that drives it towards flatter weights, until the sharpness is below the edge and grows again. It hovers.",
        look: "The loss rises and falls from step to step, far above where the flow goes.",
        setting: rates([0.1]),
        views: ["sharpness", "loss"],
      },
      {
        text: "In the phase diagram the edge is the yellow stripe. To its left descent converges monotonically; to its right it oscillates, and farther out it is lost.",
        look: "Drag the marker across the stripe, slowly.",
        setting: rates([0.1]),
        views: ["phases"],
      },
    ],
  },
  {
    name: "catapult",
    title: "Catapult",
    steps: [
      {
        text: "Two weights are to have the product 1. Their start is out of balance, one six times as far up as the other is down, so that the sharpness is 27: above the edge 2/η = 20. On a parabola, descent would diverge.",
        look: "The loss does rise, from 0.031 to 18.",
        setting: unbalanced(6),
        views: ["loss", "sharpness"],
      },
      {
        text: "But this is no parabola. The large steps throw the weights to another place, where the sharpness is only 8.64, and there descent converges. The flow had stayed where the start was.",
        look: "In the slice, the flow goes the short way into the valley; descent lands far off in it.",
        setting: unbalanced(6),
        views: ["slice", "sharpness"],
      },
      {
        text: "It works only up to about twice the edge. With a factor of 8 the start has a sharpness of 48, more than 4/η = 40: descent diverges.",
        setting: unbalanced(8),
        views: ["loss"],
      },
    ],
  },
  {
    name: "flat",
    title: "No minimiser is flat enough",
    steps: [
      {
        text: "A deep network has a continuum of minimisers, some sharp, some flat. Could larger steps not settle in flatter ones, always? Every minimiser of this loss has sharpness at least 18.7: the shaded part of the view has none.",
        setting: rates([0.1]),
        views: ["sharpness"],
      },
      {
        text: "At η = 0.12 the edge 2/η = 16.7 lies inside of the shaded part. Whatever minimiser descent came near to, it would be thrown out of it. It oscillates for ever.",
        setting: rates([0.12], 40),
        views: ["sharpness", "loss"],
      },
      {
        text: "In the phase diagram this is a line at η = 0.107 that no convergence crosses, whatever the start. Theory draws it without training anything.",
        look: "Turn the depth: the line moves at once, and the diagram is computed again around it.",
        setting: rates([0.12]),
        views: ["phases"],
      },
      {
        text: "With η = 0.3 the steps are so large that they throw all the weights to nearly nothing: descent ends near the saddle at zero, with a product of nearly zero, and stays there.",
        setting: rates([0.3]),
        views: ["product", "loss"],
      },
    ],
  },
  {
    name: "balance",
    title: "Balance, and its loss",
    steps: [
      {
        text: "Two weights with the product 0.75 at the start; it is to become 1. Balanced, they are equal, the sharpness is 1.25 at first and 2 at the end, and η = 0.1 has the edge at 20: nothing could be easier.",
        setting: unbalanced(1),
        views: ["loss", "sharpness", "balance"],
      },
      {
        text: "The same product, out of balance by a factor of 3 each way. Gradient flow keeps the balance it begins with; so, nearly, does descent. The sharpness is 6.79 at the start.",
        look: "The product and the loss at the start are the same as before. Balance is not seen in what the network does, only in how easily it is trained.",
        setting: unbalanced(3),
        views: ["layers", "sharpness"],
      },
      {
        text: "By a factor of 20: descent diverges within a few steps, with the same network, the same product and the same learning rate. This is claim 4 of arora2019: whatever η is, there is a start, out of balance, from which descent diverges, although the end is near.",
        look: "The condition of balance in the guarantees below is what rules this out.",
        setting: unbalanced(20),
        views: ["loss"],
      },
    ],
  },
  {
    name: "margin",
    title: "A network without margin stalls",
    steps: [
      {
        text: "Two layers, both the identity: perfectly balanced. The target is diag(1.5, −0.5). Descent learns the first entry, and stops at a loss of 0.125, although the least loss is 0.",
        setting: stalled(2, { kind: "identity" }, 30),
        views: ["loss", "product"],
      },
      {
        text: "The second layer is always the transpose of the first, so their product can have no negative eigenvalue: −0.5 is out of reach, and half its square is 0.125. That is claim 5 of arora2019, for every learning rate: balance alone is not enough, the start needs a margin.",
        look: "The smallest eigenvalue of the Hessian is −0.5 at the end: this is a saddle, and there is a way out that descent never takes.",
        setting: stalled(2, { kind: "identity" }, 30),
        views: ["lowest"],
      },
      {
        text: "Break the symmetry: from a random start, the same network comes to a loss of zero, up to rounding.",
        setting: stalled(2, { kind: "gaussian", scale: 0.1 }, 60),
        views: ["loss", "product"],
      },
    ],
  },
  {
    name: "saddles",
    title: "From saddle to saddle",
    steps: [
      {
        text: "Two layers are to become diag(3, 1.5, 0.6), from a tiny start. They learn one mode at a time, the strongest first; in between, the loss stands nearly still near a saddle.",
        look: "Each step down of the loss is a step up of one singular value: to 3, to 1.5, to 0.6.",
        setting: modes(0.01),
        views: ["product", "loss"],
      },
      {
        text: "A mode of strength s waits for a time of the order of log(1/scale)/s. From a larger start, the waits are shorter, and the steps run into each other.",
        setting: modes(0.3),
        views: ["product", "loss"],
      },
      {
        text: "Each plateau is a saddle: the smallest eigenvalue is negative there, −3 at first, and comes up step by step as the modes are learnt.",
        look: "Move the cursor along the plateaus.",
        setting: modes(0.01),
        views: ["lowest", "product"],
        time: 4,
      },
    ],
  },
  {
    name: "residual",
    title: "Residual against Gaussian starts",
    steps: [
      {
        text: "Twenty layers from a Gaussian start of scale 0.3, up to t = 16: nothing happens. The product of twenty small matrices is nearly zero, and so is its gradient.",
        setting: { network: { depth: 20 }, start: { kind: "gaussian", scale: 0.3 }, ...rates([0.02]) },
        views: ["loss", "product"],
      },
      {
        text: "The same depth, started near the identity, as a residual network is: no plateau at all. The loss falls from the first step.",
        look: "The singular values of all layers stay near 1.",
        setting: { network: { depth: 20, readout: true }, start: { kind: "residual", scale: 0.3 }, ...rates([0.02]) },
        views: ["loss", "layers"],
      },
      {
        text: "Forty layers do it, too. What grows with depth is the sharpness, and with it the need for small steps.",
        look: "Below, see which guarantees apply to residual starts alone.",
        setting: { network: { depth: 40, readout: true }, start: { kind: "residual", scale: 0.3 }, ...rates([0.01]) },
        views: ["loss", "sharpness"],
      },
    ],
  },
  {
    name: "kinks",
    title: "ReLU and its kinks",
    steps: [
      {
        text: "Three layers with ReLU. Each neuron switches on or off where its input crosses zero; there the gradient jumps. The flow crosses these kinks, or slides along them.",
        look: "The sentence above the views counts them.",
        setting: { network: { kind: "homogeneous", depth: 3, width: 5 }, start: { kind: "gaussian", scale: 0.4 }, ...rates([0.02]) },
        views: ["loss", "sharpness"],
      },
      {
        text: "Between the kinks the network is polynomial, and balance is conserved as in linear networks. The sharpness jumps where descent crosses a kink, because the Hessian belongs to one side.",
        setting: { network: { kind: "homogeneous", depth: 3, width: 5 }, start: { kind: "gaussian", scale: 0.4 }, ...rates([0.02]) },
        views: ["sharpness", "lowest"],
      },
      {
        text: "Make the slope below zero 1, and the kinks are gone: this is the linear network again, and more theorems apply.",
        look: "Compare what applies, at the foot of the page.",
        setting: { network: { kind: "homogeneous", depth: 3, width: 5, slopes: [1, 1] }, start: { kind: "gaussian", scale: 0.4 }, ...rates([0.02]) },
        views: ["loss"],
      },
    ],
  },
];
