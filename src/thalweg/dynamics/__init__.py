"""How weights move: gradient descent, the gradient flow, and solutions in closed form."""
