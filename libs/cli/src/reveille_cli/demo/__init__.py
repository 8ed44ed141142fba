"""The main job, played on real parts: `reveille demo`."""
