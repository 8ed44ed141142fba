"""One module per noun or verb of the command line."""
