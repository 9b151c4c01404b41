"""Exact laws of descent with steps of a finite size, where it follows no flow."""
