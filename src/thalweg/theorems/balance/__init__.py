"""Nearly balanced layers: their products, and what moves a product."""
