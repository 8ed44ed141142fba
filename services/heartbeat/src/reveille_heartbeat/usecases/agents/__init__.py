"""Agents, squads and runtimes: who can be woken, by whom, and by which timer."""
