"""How agents are run. Adapters are found by entry points, so a team adds its own beside ours."""
