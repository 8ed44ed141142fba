"""Pure rules of planning and retrying; no clock, no database, no RPC."""
