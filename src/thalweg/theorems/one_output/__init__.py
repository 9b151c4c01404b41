"""Networks with one output on white inputs, stage by stage."""
