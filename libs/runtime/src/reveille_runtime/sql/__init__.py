"""SQL that the runtime itself runs."""
