"""Descent as a numerical solution of its flow: how far they are apart."""
