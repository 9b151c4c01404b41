"""How the loss curves: bounds on the smallest Hessian eigenvalue, and sharp saddles."""
