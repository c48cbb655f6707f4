"""The harness of the interop tests: processes, foreign peers, guests, and sluice itself."""
