"""The rules of the rule plane: pure, synchronous, without any input or output."""
